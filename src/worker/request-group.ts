import type { Runtime, Timer } from '../core/runtime.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Copy } from '../kafka/loops/copies.ts';
import { Member } from '../kafka/loops/member.ts';
import type { Assigned } from '../kafka/loops/member-options.ts';
import { Tail } from '../kafka/loops/tail.ts';
import type { Followed } from '../kafka/loops/tail-port.ts';
import type { WireLog } from '../kafka/wire/broker.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { type Log, repeatFilter } from '../log.ts';
import type { RequestHandler } from '../pipeline/lane.ts';
import { RequestSession } from '../pipeline/request-session.ts';
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
  /** Static membership: whoever restarts with it takes its partitions back without a rebalance. */
  readonly instanceId: string;
  readonly sessionTimeoutMs: number;
  readonly commitIntervalMs: number;
  /** How long leaving waits for the parts under way. */
  readonly drainTimeoutMs: number;
  readonly handler: RequestHandler;
  /** Whether requests of the partition can be decided now; see `refresh`. */
  readonly isReady: (partition: number) => boolean;
  /** The copies of the ledger's partitions that this worker has, and how far each reaches. */
  readonly copies: () => ReadonlyMap<number, Copy>;
  readonly standbys: number | 'all';
  readonly acceptableLag: number;
  /** What this worker owns from now on, and what it stands by for. */
  readonly onAssigned: (assigned: Assigned) => void;
  /** Records of the partition, up to its end, that were not answered; undefined once it is another member's. */
  readonly onLag: (partition: number, records: number | undefined) => void;
  /** The request topic ends before where reading was: it was made anew, or has lost its tail. */
  readonly onTruncated: (partition: number) => void;
  /** Another process has this instance ID: this one must not go on. */
  readonly onFenced: (error: Error) => void;
}

/**
 * A broker holds a fetch that finds nothing for so long. A partition that resumes meanwhile waits for it; a shorter time
 * wakes an idle worker more often.
 */
const MAX_WAIT_MS = 250;
/** 1 MiB: two of the largest record batches that the request topic takes would not help, one must fit. */
const MAX_BYTES_PER_PARTITION = 1_048_576;
const RETRY_MS = 200;

interface Served {
  readonly session: RequestSession;
  readonly followed: Followed;
  readonly lag: RequestLag;
  committed: number | undefined;
}

/**
 * One stay in the request group: a membership, and a session for each partition that it brings.
 *
 * A partition whose copy of the ledger is not complete is assigned, but waits alone: nothing of it is read until it is
 * ready. One that stays through a rebalance keeps its session, so its requests don't wait for the others to join. One
 * that goes ends at once; the part under way settles in the background, and whoever has the partition next may answer the
 * same requests: the ledger decides which batch they have, so their replies are equal.
 *
 * Offsets are committed for partitions that this member has in the present generation, a moment after they were
 * answered, and before the group is joined again.
 */
export class RequestGroup implements GroupMember {
  readonly #options: RequestGroupOptions;
  readonly #member: Member;
  readonly #tail: Tail;
  readonly #served = new Map<number, Served>();
  /** What this member has, those included whose committed offset is still looked up. */
  #assigned: ReadonlySet<number> = new Set();
  #open = true;
  #stopped = false;
  #commitTimer: Timer | undefined;
  #commitFailing = false;
  /** Each partition is tried again five times a second: a cause is worth one line in a while. */
  readonly #isRepeated: (cause: string) => boolean;

  constructor(options: RequestGroupOptions) {
    this.#options = options;
    this.#isRepeated = repeatFilter(options.runtime.monotonicMs);
    const { cluster, runtime, wireLog, topic, groupId, instanceId, sessionTimeoutMs, partitions, onFenced } = options;
    const { copies, standbys, acceptableLag } = options;
    this.#tail = new Tail({
      cluster,
      runtime,
      lane: 'requests',
      isolation: 'read_committed',
      maxWaitMs: MAX_WAIT_MS,
      maxBytes: partitions * MAX_BYTES_PER_PARTITION,
      maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
      log: wireLog,
    });
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
      standbys,
      acceptableLag,
      onAssigned: (assigned) => this.#assign(assigned),
      onLost: () => this.#lose(),
      onFenced,
    });
  }

  /** Joined, and not thrown out since. */
  get joined(): boolean {
    return this.#member.joined;
  }

  /** For how long the oldest request of each partition has waited that this member knows of. */
  get oldestUnread(): readonly { readonly partition: number; readonly milliseconds: number }[] {
    return [...this.#served].map(([partition, { lag }]) => ({ partition, milliseconds: lag.oldestMs }));
  }

  start(): void {
    this.#member.start();
    this.#scheduleCommit();
  }

  /**
   * Leaves the group once the parts under way have ended, or the drain time is over. What was answered is committed; what
   * was not comes again to whoever has the partition next.
   */
  async stop(): Promise<void> {
    const { runtime, drainTimeoutMs } = this.#options;
    this.#stopped = true;
    this.pause();
    this.#commitTimer?.cancel();
    const over = new AbortController();
    const settled = Promise.all([...this.#served.values()].map(({ session }) => session.settled));
    await Promise.race([settled, runtime.sleep(drainTimeoutMs, over.signal)]);
    over.abort();
    await this.#commit();
    this.#lose();
    await this.#member.leave();
    await this.#tail.close();
  }

  /** Takes no more requests; the parts under way end by themselves. */
  pause(): void {
    this.#open = false;
    this.#refreshAll();
  }

  /** Goes on with all partitions that are ready, in this turn of the event loop. */
  resume(): void {
    if (this.#stopped) return;
    this.#open = true;
    this.#refreshAll();
  }

  /** Joins again, for its copies have changed: whoever leads the group is to plan anew. */
  rejoin(why: string): void {
    this.#member.rejoin(why);
  }

  /** The partition has become ready, or is not ready any more. */
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

  /** Reads on from what was committed, as soon as the coordinator answers. */
  async #begin(added: readonly number[]): Promise<void> {
    const { runtime, log } = this.#options;
    const due = (): number[] => added.filter((at) => this.#assigned.has(at) && !this.#served.has(at));
    for (let left = due(); left.length > 0 && !this.#stopped; left = due()) {
      try {
        const committed = await this.#member.fetchCommitted(left);
        for (const partition of due()) this.#serve(partition, committed.get(partition));
      } catch (error) {
        log.debug({ error: describeError(error) }, 'could not read committed offsets; retrying');
        await runtime.sleep(RETRY_MS);
      }
    }
  }

  #serve(partition: number, committed: number | undefined): void {
    const { topic, handler, runtime, log, onLag } = this.#options;
    const { monotonicMs } = runtime;
    const lag = new RequestLag({ next: committed ?? 0, monotonicMs, onChange: (records) => onLag(partition, records) });
    const session = new RequestSession({
      partition,
      handler,
      runtime,
      isOpen: this.#isOpen(partition),
      onProgress: (next) => lag.progressed(next),
      onFault: (error, lasting) => {
        const code = error instanceof IdallocError ? error.code : undefined;
        const fields = { partition, code, error: describeError(error) };
        const level = lasting ? 'error' : this.#isRepeated(String(code)) ? 'debug' : 'warn';
        log[level](fields, 'requests could not be served and will be retried');
      },
    });
    const followed = this.#tail.follow(
      { topic, partition, offset: committed ?? 0 },
      {
        deliver: (chunk) => session.deliver(chunk),
        looked: (end) => lag.looked(end),
        // A waiting request topic is read from its beginning, and nothing in it is skipped.
        outOfRange: ({ logStart, end: logEnd }, position) => {
          if (position > logEnd) this.#options.onTruncated(partition);
          if (committed !== undefined) {
            log.warn(
              { partition, position, logStart },
              'requests at the committed offset are gone: reading from the first that is left',
            );
          }
          lag.progressed(logStart);
          return logStart;
        },
      },
    );
    this.#served.set(partition, { session, followed, lag, committed });
    if (!this.#isOpen(partition)) followed.pause();
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

  /** Never rejects: what could not be committed is part of the next commit. */
  async #commit(): Promise<void> {
    const due = [...this.#served].flatMap(([partition, served]) => {
      const { next } = served.session;
      return next === undefined || next === served.committed ? [] : [{ partition, served, next }];
    });
    if (due.length === 0 || !this.joined) return;
    const { log } = this.#options;
    try {
      await this.#member.commit(new Map(due.map(({ partition, next }) => [partition, next])));
      for (const { served, next } of due) served.committed = next;
      this.#commitFailing = false;
    } catch (error) {
      const level = this.#commitFailing ? 'debug' : 'warn';
      this.#commitFailing = true;
      log[level]({ error: describeError(error) }, 'could not commit offsets; replies may be sent again');
    }
  }
}
