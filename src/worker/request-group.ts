import { atMost } from '../async/at-most.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import { Throttle } from '../async/throttle.ts';
import {
  type CommittedPosition,
  decodePosition,
  encodeMetadata,
  type RequestPosition,
} from '../codec/request-position.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Copy } from '../kafka/loops/copies.ts';
import type { PartitionBounds } from '../kafka/loops/leader-calls.ts';
import { Member } from '../kafka/loops/member.ts';
import type { Assigned } from '../kafka/loops/member-options.ts';
import { Tail } from '../kafka/loops/tail.ts';
import type { Followed } from '../kafka/loops/tail-port.ts';
import type { WireLog } from '../kafka/wire/broker.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { KafkaError } from '../kafka/wire/kafka-error.ts';
import type { Log } from '../log.ts';
import { type RequestChunk, type RequestHandler, RequestSession } from '../pipeline/request-session.ts';
import { LostRequests } from './lost-requests.ts';
import type { GroupMember } from './membership.ts';
import { RequestLag } from './request-lag.ts';

export interface RequestGroupOptions {
  readonly cluster: Cluster;
  readonly runtime: Runtime;
  readonly log: Log;
  readonly wireLog: WireLog;
  readonly topic: string;
  readonly partitions: number;
  readonly groupId: string;
  /** Static membership: a process that restarts with this ID gets its partitions back without a rebalance. */
  readonly instanceId: string;
  readonly sessionTimeoutMs: number;
  readonly commitIntervalMs: number;
  /** How long leaving the group waits for parts in progress. */
  readonly drainTimeoutMs: number;
  readonly handler: RequestHandler;
  /** Requests could not be served and will be retried. */
  readonly onError: (error: unknown) => void;
  /** A chunk of records was answered, this long after its delivery. */
  readonly onAnswered: (milliseconds: number) => void;
  /** Whether requests of the partition can be decided now; see `refresh`. */
  readonly isReady: (partition: number) => boolean;
  /** This worker's copies of ledger partitions, with their ends. */
  readonly copies: () => ReadonlyMap<number, Copy>;
  /** Partitions that this worker can't serve now, since it does not reach a broker that they depend on. */
  readonly unreached: () => readonly number[];
  readonly standbys: number | 'all';
  readonly acceptableLag: number;
  /** The partitions that this worker owns and stands by for from now on. */
  readonly onAssigned: (assigned: Assigned) => void;
  /** Unanswered records of the partition, up to its end; undefined once another member owns it. */
  readonly onLag: (partition: number, records: number | undefined) => void;
  /** The request topic ends below the read position: it was recreated, or has lost its tail. */
  readonly onTruncated: (partition: number) => void;
  /** Another process has this instance ID: this one must stop. */
  readonly onFenced: (error: Error) => void;
}

/**
 * How long a broker holds a fetch when there is nothing new. A partition that resumes meanwhile waits for it; a shorter
 * time wakes an idle worker more often.
 */
const MAX_WAIT_MS = 250;
/** 1 MiB: the largest record batch of the request topic must fit; room for two would not help. */
const MAX_BYTES_PER_PARTITION = 1_048_576;
const RETRY_MS = 200;
const SAME_CAUSE_MS = 10_000;
/** From here a broker reports the bounds of the log, as for any position that the log has lost. */
const BEYOND_ANY_END = Number.MAX_SAFE_INTEGER;

interface Served {
  readonly session: RequestSession;
  readonly followed: Followed;
  readonly lag: RequestLag;
  readonly lost: LostRequests;
  committed: RequestPosition | undefined;
}

/**
 * One membership of the request group, with a session for each assigned partition.
 *
 * A partition whose ledger copy is incomplete is assigned, but not read until the copy is ready; the others continue. A
 * partition that stays through a rebalance keeps its session, so its requests don't wait for the others to join. The
 * session of a partition that leaves ends immediately; the part in progress settles in the background, and the next owner
 * may answer the same requests: the ledger decides their batches, so the replies are equal.
 *
 * Offsets are committed for partitions that this member owns in the current generation: shortly after their requests
 * were answered, and before the member joins again.
 */
export class RequestGroup implements GroupMember {
  readonly #options: RequestGroupOptions;
  readonly #member: Member;
  readonly #tail: Tail;
  /** Reads partitions again, for large requests that do not fit into memory. */
  readonly #largeTail: Tail;
  readonly #served = new Map<number, Served>();
  /** The assigned partitions, including those whose committed offset is still being read. */
  #assigned: ReadonlySet<number> = new Set();
  #open = true;
  #stopped = false;
  #commitTimer: Timer | undefined;
  #commitFailing = false;
  /** Each partition is retried five times a second: log a cause only once in a while. */
  readonly #throttle: Throttle;

  constructor(options: RequestGroupOptions) {
    this.#options = options;
    this.#throttle = new Throttle(options.runtime, SAME_CAUSE_MS);
    const { cluster, runtime, wireLog, topic, groupId, instanceId, sessionTimeoutMs, partitions, onFenced } = options;
    const { copies, unreached, standbys, acceptableLag } = options;
    const tail = {
      cluster,
      runtime,
      isolation: 'read_committed',
      maxWaitMs: MAX_WAIT_MS,
      maxBytes: partitions * MAX_BYTES_PER_PARTITION,
      maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
      log: wireLog,
    } as const;
    this.#tail = new Tail({ ...tail, lane: 'requests' });
    this.#largeTail = new Tail({ ...tail, lane: 'large requests' });
    this.#member = new Member({
      cluster,
      runtime,
      log: wireLog,
      topic,
      partitions,
      groupId,
      instanceId,
      sessionTimeoutMs,
      beforeRejoin: () => this.#commit(),
      copies,
      unreached,
      standbys,
      acceptableLag,
      onAssigned: (assigned) => this.#assign(assigned),
      onLost: () => this.#lose(),
      onFenced,
    });
  }

  /** Whether the member has joined and has not been removed since. */
  get joined(): boolean {
    return this.#member.joined;
  }

  /** How long the oldest known request of each partition has waited. */
  get oldestUnread(): readonly { readonly partition: number; readonly milliseconds: number }[] {
    return [...this.#served].map(([partition, { lag }]) => ({ partition, milliseconds: lag.oldestMs }));
  }

  /** Partitions with unanswered large requests: how many, and how long the oldest has been in the topic. */
  get largeWaiting(): readonly {
    readonly partition: number;
    readonly waiting: number;
    readonly milliseconds: number;
  }[] {
    const nowMs = this.#options.runtime.wallMs();
    return [...this.#served].flatMap(([partition, { session }]) => {
      const oldest = session.oldestLarge();
      if (oldest === undefined) return [];
      return { partition, waiting: oldest.waiting, milliseconds: Math.max(0, nowMs - oldest.sinceMs) };
    });
  }

  start(): void {
    this.#member.start();
    this.#scheduleCommit();
  }

  /**
   * Leaves the group once the parts in progress have ended, or the drain time is over. Answered requests are committed; the
   * next owner of the partition gets the others.
   */
  async stop(): Promise<void> {
    const { runtime, drainTimeoutMs } = this.#options;
    this.#stopped = true;
    this.pause();
    this.#commitTimer?.cancel();
    const sessions = [...this.#served.values()].map(({ session }) => session);
    await atMost(runtime, drainTimeoutMs, () => Promise.all(sessions.map(({ settled }) => settled)));
    await this.#commit();
    this.#lose();
    await this.#member.leave();
    await Promise.all([this.#tail.close(), this.#largeTail.close()]);
  }

  /** Starts no more requests; the parts in progress are completed. */
  pause(): void {
    this.#open = false;
    this.#refreshAll();
  }

  /** Resumes all partitions that are ready, in this turn of the event loop. */
  resume(): void {
    if (this.#stopped) return;
    this.#open = true;
    this.#refreshAll();
  }

  /** Joins again after a change of copies, so that the group leader makes a new assignment. */
  rejoin(why: string): void {
    this.#member.rejoin(why);
  }

  /** Resumes or pauses a partition by whether it is ready. */
  refresh(partition: number): void {
    const served = this.#served.get(partition);
    if (served === undefined) return;
    const { session, followed } = served;
    if (this.#isOpen(partition)) {
      followed.resume();
      session.resume();
    } else {
      session.pause();
      followed.pause();
    }
  }

  #refreshAll(): void {
    for (const partition of this.#served.keys()) this.refresh(partition);
  }

  #isOpen(partition: number): boolean {
    return this.#open && this.#options.isReady(partition);
  }

  #assign(assigned: Assigned): void {
    if (this.#stopped) return;
    const { partitions, added, removed } = assigned;
    this.#assigned = new Set(partitions);
    for (const partition of removed) this.#end(partition);
    if (added.length > 0) void this.#begin(added);
    this.#options.onAssigned(assigned);
  }

  /** Starts to read from the committed offsets, as soon as the coordinator returns them. */
  async #begin(added: readonly number[]): Promise<void> {
    const { runtime, log } = this.#options;
    const due = (): number[] => added.filter((at) => this.#assigned.has(at) && !this.#served.has(at));
    for (let left = due(); left.length > 0 && !this.#stopped; left = due()) {
      try {
        const committed = await this.#member.fetchCommitted(left);
        for (const partition of due()) {
          const found = committed.get(partition);
          this.#serve(partition, found && decodePosition(found.offset, found.metadata));
        }
      } catch (error) {
        log.debug({ error: describeError(error) }, 'could not read committed offsets; retrying');
        await runtime.sleep(RETRY_MS);
      }
    }
  }

  /** `committed`: what the coordinator has, unless it is where reading begins. */
  #serve(
    partition: number,
    start: CommittedPosition | undefined,
    committed: RequestPosition | undefined = start,
  ): void {
    const { cluster, topic, handler, runtime, log, onLag, onError, onAnswered } = this.#options;
    const { monotonicMs } = runtime;
    const lost = new LostRequests({ cluster, runtime, topic, partition, last: start?.last });
    const next = start?.next ?? 0;
    const lag = new RequestLag({ next, monotonicMs, onChange: (records) => onLag(partition, records) });
    const session = new RequestSession({
      partition,
      handler,
      runtime,
      isOpen: this.#isOpen(partition),
      position: start,
      onProgress: ({ next }) => lag.progressed(next),
      readAgain: (from, deliver) => this.#readAgain(partition, from, deliver),
      onError: (error, lasting) => {
        onError(error);
        const code = error instanceof IdallocError ? error.code : undefined;
        const fields = { partition, code, error: describeError(error) };
        const level = lasting ? 'error' : this.#throttle.passes(String(code)) ? 'warn' : 'debug';
        log[level](fields, 'requests could not be served and will be retried');
      },
    });
    const followed = this.#tail.follow(
      { topic, partition, offset: start?.last?.offset ?? start?.small ?? 0 },
      {
        deliver: async (chunk) => {
          if (!lost.fits(chunk.records)) return followed.seek(BEYOND_ANY_END);
          const startedMs = monotonicMs();
          const answered = lost.reading(chunk.records);
          await session.deliver({
            ...chunk,
            answered: () => {
              answered();
              if (chunk.records.length > 0) onAnswered(monotonicMs() - startedMs);
            },
          });
        },
        interrupted: () => {
          const from = lost.compareFrom();
          if (from !== undefined) followed.seek(from);
        },
        fetched: (end) => {
          if (lost.fetched(end)) followed.seek(BEYOND_ANY_END);
          lag.fetched(end);
        },
        outOfRange: async (bounds, position) => {
          const known = Math.min(position, lost.readTo);
          if (position > bounds.end) return this.#findLost(partition, lost, session, bounds, known);
          lost.expired();
          const { small = 0 } = session.position ?? {};
          if (small >= bounds.logStart) return small; // only what was to be compared is gone
          // Reads from the first record left: no waiting request is skipped.
          if (start !== undefined) {
            const fields = { partition, position, logStart: bounds.logStart };
            log.warn(fields, 'requests at the committed offset are gone: reading from the first that is left');
          }
          lag.progressed(bounds.logStart);
          return bounds.logStart;
        },
      },
    );
    this.#served.set(partition, { session, followed, lag, lost, committed });
    if (!this.#isOpen(partition)) followed.pause();
  }

  /** Requests below the log's start are gone; a log that ends below is what the first reader finds, and ends the session. */
  #readAgain(partition: number, offset: number, deliver: (chunk: RequestChunk) => Promise<void>): Followed {
    const outOfRange = async ({ logStart, end }: PartitionBounds, position: number) => {
      if (position <= end) return logStart;
      throw new KafkaError('OFFSET_OUT_OF_RANGE', `requests ${partition} end at ${end}, below offset ${position}`);
    };
    return this.#largeTail.follow({ topic: this.#options.topic, partition, offset }, { deliver, outOfRange });
  }

  /**
   * The partition has lost records that were read. A new session serves it: the old one would drop the requests at reused
   * offsets as answered. Rejects as `continueAt` does.
   */
  async #findLost(
    partition: number,
    lost: LostRequests,
    session: RequestSession,
    bounds: PartitionBounds,
    position: number,
  ): Promise<number> {
    this.#options.onTruncated(partition);
    const from = await lost.continueAt(bounds, position, session.position?.next);
    if (this.#served.get(partition)?.session !== session) return from;
    const fields = { partition, position, logStart: bounds.logStart, end: bounds.end, from };
    this.#options.log.warn(fields, 'the request partition has lost records that were read: reading again');
    this.#end(partition);
    this.#serve(partition, { next: from, small: from }, { next: position, small: position });
    // The next owner must not begin at the old offset either, should this worker end before it has answered anything.
    void this.#commit();
    return from;
  }

  #end(partition: number): void {
    const served = this.#served.get(partition);
    this.#served.delete(partition);
    served?.followed.stop();
    served?.session.end();
    this.#options.onLag(partition, undefined);
  }

  #lose(): void {
    this.#assigned = new Set();
    for (const partition of [...this.#served.keys()]) this.#end(partition);
  }

  #scheduleCommit(): void {
    const { runtime, commitIntervalMs } = this.#options;
    this.#commitTimer = runtime.schedule(commitIntervalMs, () => {
      void this.#commit().finally(() => {
        if (!this.#stopped) this.#scheduleCommit();
      });
    });
  }

  /** Never rejects: uncommitted offsets are part of the next commit. */
  async #commit(): Promise<void> {
    const due = [...this.#served].flatMap(([partition, served]) => {
      const { position } = served.session;
      return position === undefined || position === served.committed ? [] : [{ partition, served, position }];
    });
    if (due.length === 0 || !this.joined) return;
    const { log } = this.#options;
    try {
      const offsets = due.map(({ partition, position, served: { lost } }) => {
        const metadata = encodeMetadata({ ...position, last: lost.last });
        return [partition, { offset: position.next, metadata }] as const;
      });
      await this.#member.commit(new Map(offsets));
      for (const { served, position } of due) served.committed = position;
      this.#commitFailing = false;
    } catch (error) {
      const level = this.#commitFailing ? 'debug' : 'warn';
      this.#commitFailing = true;
      log[level]({ error: describeError(error) }, 'could not commit offsets; replies may be sent again');
    }
  }
}
