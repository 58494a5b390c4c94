import { beginningOf } from '../adapters/kafka/answered.ts';
import { Backoff } from '../async/retrying.ts';
import { atMost, every } from '../async/waiting.ts';
import { type CommittedPosition, decodePosition, type RequestPosition } from '../codec/request-position.ts';
import { describeError } from '../errors.ts';
import { Member } from '../kafka/loops/member.ts';
import type { Report } from '../kafka/loops/member-claims.ts';
import type { Assigned, MemberSettings } from '../kafka/loops/member-options.ts';
import { Tail } from '../kafka/loops/tail.ts';
import type { Purpose } from '../kafka/wire/broker.ts';
import type { RequestVitals } from '../metrics/vitals.ts';
import { MAX_RECORD_BYTES } from '../pipeline/intake.ts';
import { RECORDS_PER_TURN } from '../pipeline/record-turns.ts';
import { RequestPartition, type RequestPartitionOptions, type Serving } from './request-partition.ts';

export interface RequestGroupOptions extends Serving {
  readonly settings: MemberSettings;
  /** This worker's copies of ledger partitions, and the partitions that it can't serve. */
  readonly report: () => Report;
  /** The partitions that this worker owns and stands by for from now on. */
  readonly onAssigned: (assigned: Assigned) => void;
  /** How many partitions the request topic has beyond those that are assigned; see `grown`. */
  readonly added: () => number;
  /** States in the ledger that every request below this offset was answered before. */
  readonly stateReplay: (partition: number, answeredBelow: number) => Promise<void>;
  /** Another process has this instance ID: this one must stop. */
  readonly onFenced: (error: Error) => void;
}

/**
 * How long a broker holds a fetch when there is nothing new. A partition that resumes meanwhile waits for it; a shorter
 * time wakes an idle worker more often.
 */
const MAX_WAIT_MS = 250;
/** Requests that are fetched together share calls, which costs broker and worker less. Single ones do not wait. */
const BUSY_GAP_MS = 2;
/** 1 MiB: the largest record batch of the request topic must fit; room for two would not help. */
const MAX_BYTES_PER_PARTITION = 1_048_576;
/**
 * Two steps of what waits. It takes its time, and each garbage collection copies the records that do: 20,000 in each
 * of four partitions cost 10 ms each time.
 */
const LARGE_CHUNK_ITEMS = 2 * RECORDS_PER_TURN;
const RETRY_MS = { minMs: 200, maxMs: 1_000 };

/**
 * One stay in the request group, with a session for each assigned partition.
 *
 * A partition whose ledger copy is incomplete is assigned, but not read until the copy is ready; the others continue. A
 * partition that stays through a rebalance keeps its session, so its requests don't wait for the others to join. The
 * session of a partition that leaves ends immediately; the part in progress settles in the background, and the next
 * owner may answer the same requests: the ledger decides their batches, so the replies are equal.
 *
 * Partitions that were added to the topic are assigned to nobody. Whoever serves partition p of the n others also reads
 * p + n, p + 2n and so on, whose requests are forwarded to their homes.
 *
 * Offsets are committed for partitions that this member owns in the current generation: shortly after their requests
 * were answered, and before the member joins again.
 */
export class RequestGroup {
  readonly #options: RequestGroupOptions;
  readonly #member: Member;
  readonly #serving: RequestPartitionOptions;
  readonly #served = new Map<number, RequestPartition>();
  /** The assigned partitions, including those whose committed offset is still being read. */
  #assigned: ReadonlySet<number> = new Set();
  #open = true;
  #stopped = false;
  readonly #ending = new AbortController();
  #committing: Disposable | undefined;
  #commitFailing = false;

  constructor(options: RequestGroupOptions) {
    const { context, settings, report, onFenced } = options;
    const { cluster, runtime, wireLog: log } = context;
    this.#options = options;
    const tail = {
      cluster,
      runtime,
      isolation: 'read_committed',
      maxWaitMs: MAX_WAIT_MS,
      maxBytes: settings.partitions * MAX_BYTES_PER_PARTITION,
      maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
      longestRecord: MAX_RECORD_BYTES,
      log,
    } as const;
    // A tail follows a partition once, and the lanes of a partition are at different places.
    const again = { ...tail, maxChunkItems: LARGE_CHUNK_ITEMS };
    const againTail = (purpose: Purpose) => new Tail({ ...again, purpose, skipsDense: true });
    this.#serving = {
      ...options,
      tail: new Tail({ ...tail, purpose: 'requests', skipsDense: true, busyGapMs: BUSY_GAP_MS }),
      againTails: {
        large: againTail('large requests'),
        debts: new Tail({ ...again, purpose: 'indebted requests' }), // dense batches wait there
        numbers: againTail('requests for numbers'),
      },
      isOpen: (partition) => this.#open && options.isReady(partition),
      onLost: (partition, from, position) => this.#lost(partition, from, position),
    };
    this.#member = new Member({
      settings,
      cluster,
      runtime,
      log,
      report,
      beforeRejoin: () => this.#commit(),
      onAssigned: (assigned) => this.#assign(assigned),
      onLost: () => this.#endAll(),
      onForeign: (names) => context.refusals.foreignMembers(names),
      onFenced,
    });
  }

  /** Whether the member has joined and has not been removed since. */
  get joined(): boolean {
    return this.#member.joined;
  }

  /** What is answered of a partition; undefined while this worker does not know. */
  answered(partition: number): CommittedPosition | undefined {
    return this.#served.get(partition)?.answered;
  }

  get vitals(): RequestVitals {
    const served = [...this.#served.values()];
    return {
      oldestUnread: served.map(({ partition, oldestMs }) => ({ partition, milliseconds: oldestMs })),
      largeWaiting: served.flatMap(({ largeWaiting }) => largeWaiting ?? []),
      numbersWaiting: served.flatMap(({ numbersWaiting }) => numbersWaiting ?? []),
    };
  }

  start(): void {
    const { runtime, config } = this.#options.context;
    this.#member.start();
    this.#committing = every(runtime, config.commitIntervalMs, () => this.#commit());
  }

  /**
   * Leaves the group once the parts in progress have ended, or the drain time is over. Answered requests are committed;
   * the next owner of the partition gets the others.
   */
  async stop(): Promise<void> {
    const { runtime, config } = this.#options.context;
    this.#stopped = true;
    this.#ending.abort();
    this.pause();
    this.#committing?.[Symbol.dispose]();
    const sessions = [...this.#served.values()].map(({ session }) => session);
    await atMost(runtime, config.drainTimeoutMs, () => Promise.all(sessions.map(({ settled }) => settled)));
    await this.#commit();
    this.#endAll();
    await this.#member.leave();
    const { tail, againTails } = this.#serving;
    await Promise.all([tail, ...Object.values(againTails)].map((one) => one.close()));
  }

  /** Starts no more requests; the parts in progress are completed. */
  pause(): void {
    this.#open = false;
    for (const one of this.#served.values()) one.refresh();
  }

  /** Resumes all partitions that are ready, in this turn of the event loop. */
  resume(): void {
    if (this.#stopped) return;
    this.#open = true;
    for (const one of this.#served.values()) one.refresh();
  }

  /** Joins again after a change of copies, so that the group leader makes a new assignment. */
  rejoin(why: string): void {
    this.#member.rejoin(why);
  }

  /** Resumes or pauses a partition by whether it is ready. */
  refresh(partition: number): void {
    this.#served.get(partition)?.refresh();
  }

  #assign(assigned: Assigned): void {
    if (this.#stopped) return;
    const [added, removed] = [this.#withAdded(assigned.added), this.#withAdded(assigned.removed)];
    this.#assigned = new Set(this.#withAdded(assigned.partitions));
    for (const partition of removed) this.#end(partition);
    if (added.length > 0) void this.#begin(added);
    this.#options.onAssigned(assigned);
  }

  /** The topic has got partitions: begins to read those that go with its own. */
  grown(): void {
    const due = this.#withAdded([...this.#assigned]).filter((partition) => !this.#assigned.has(partition));
    if (this.#stopped || due.length === 0) return;
    this.#assigned = new Set([...this.#assigned, ...due]);
    void this.#begin(due);
  }

  /** These partitions, and the added ones that go with them. */
  #withAdded(partitions: readonly number[]): number[] {
    const { settings, added } = this.#options;
    const beyond = Array.from({ length: added() }, (_, i) => settings.partitions + i);
    return [...new Set([...partitions, ...beyond.filter((one) => partitions.includes(one % settings.partitions))])];
  }

  /** Starts to read from the committed offsets, as soon as the coordinator returns them. */
  async #begin(added: readonly number[]): Promise<void> {
    const { runtime, log } = this.#options.context;
    const rests = new Backoff(RETRY_MS);
    const due = (): number[] => added.filter((at) => this.#assigned.has(at) && !this.#served.has(at));
    for (let left = due(); left.length > 0 && !this.#stopped; left = due()) {
      try {
        const committed = await this.#member.fetchCommitted(left);
        for (const partition of due()) {
          const found = committed.get(partition);
          const start = found && decodePosition(found.offset, found.metadata);
          if (start !== undefined) this.#serve(partition, start);
        }
        const looking = due().map((partition) => this.#beginBefore(partition, committed.get(partition)?.offset));
        for (const outcome of await Promise.allSettled(looking))
          if (outcome.status === 'rejected') throw outcome.reason;
      } catch (error) {
        log.debug({ error: describeError(error) }, 'could not begin to read requests; retrying');
        await runtime.sleep(rests.nextMs());
      }
    }
  }

  /**
   * Something that is not a worker has committed this offset, or nobody any. Of an added partition no ledger says what
   * is answered: all of it is forwarded again. Where it begins behind such an offset is committed, whether or not there
   * are requests. What is read again although it was answered is a replay, which the ledger must say before anything is
   * decided.
   */
  async #beginBefore(partition: number, offset: number | undefined): Promise<void> {
    const { context, settings, stateReplay } = this.#options;
    const { cluster, runtime, log, config, metrics } = context;
    const { requests: topic, ledger } = config.topics;
    const place = { topic, partition, ledger: partition < settings.partitions ? ledger : undefined };
    const { start, answeredBelow } = await beginningOf({ cluster, runtime }, place, offset, this.#ending.signal);
    const isDue = (): boolean => this.#assigned.has(partition) && !this.#served.has(partition);
    const fields = { partition, offset, from: start.next };
    if (answeredBelow !== undefined && isDue()) {
      await stateReplay(partition, answeredBelow);
      log.warn({ ...fields, answeredBelow }, 'requests are read again: those that were refused stay refused');
    }
    if (!isDue()) return;
    if (offset === undefined) return this.#serve(partition, undefined);
    metrics.addForeignOffset();
    log.warn(fields, 'the committed offset is not from a worker: reading from what the ledger shows as answered');
    this.#serve(partition, start, { next: offset, small: offset });
  }

  #serve(partition: number, start: CommittedPosition | undefined, committed?: RequestPosition): void {
    this.#served.set(partition, new RequestPartition(this.#serving, partition, start, committed));
  }

  /** A new session serves the partition: the old one would drop the requests at reused offsets as answered. */
  #lost(partition: number, from: number, position: number): void {
    this.#end(partition);
    this.#serve(partition, { next: from, small: from }, { next: position, small: position });
    // The next owner must not begin at the old offset either, should this worker end before it has answered anything.
    void this.#commit();
  }

  #end(partition: number): void {
    this.#served.get(partition)?.end();
    this.#served.delete(partition);
  }

  #endAll(): void {
    this.#assigned = new Set();
    for (const partition of [...this.#served.keys()]) this.#end(partition);
  }

  /** Never rejects: uncommitted offsets are part of the next commit. */
  async #commit(): Promise<void> {
    const due = [...this.#served.values()].flatMap((one) => (one.due === undefined ? [] : { one, ...one.due }));
    if (due.length === 0 || !this.joined) return;
    const { log } = this.#options.context;
    try {
      await this.#member.commit(new Map(due.map(({ one, offset, metadata }) => [one.partition, { offset, metadata }])));
      for (const { one, position } of due) one.committed(position);
      this.#commitFailing = false;
    } catch (error) {
      const level = this.#commitFailing ? 'debug' : 'warn';
      this.#commitFailing = true;
      log[level]({ error: describeError(error) }, 'could not commit offsets; replies may be sent again');
    }
  }
}
