/**
 * The log decides.
 *
 * Which IDs has the request with this correlation ID? Two workers may both believe that the partition is theirs, and
 * both have allocated for it: one of them was paused, and doesn't know yet that it lost its place. Leases, generations
 * and fences all make that rarer. None excludes it.
 *
 * So nobody is asked to be alone. Each worker appends what it would reply to the ledger, and the first entry of a key
 * in log order is the decision, for everybody and for ever. A Kafka partition has one order, so all readers find the
 * same first entry, whoever wrote it and however often. The IDs of the others become a gap.
 *
 * What is left is to know which entry came first, and here are the traps:
 *
 * - An append that was not answered is not one that failed. It may be in the log, or get there later. It is never taken
 *   as a success either: no reply is sent, the log is read to its end, and the requests come again. Whichever of the
 *   copies is first then decides.
 * - An answer alone says little: it has the offset at which our entries begin, and somebody else's may be right before
 *   them. An append is settled when the index has applied everything below that offset, and then our entries. From then
 *   on only the index is asked.
 * - Answers may come in another order than their appends. So one append of a partition is in flight at a time. The turn
 *   belongs to the partition and not to the consumer's session, or a new session would overtake the late append of the
 *   one before.
 * - The log that we looked in may not be the log that we append to: `partition` tells how a log loses its tail. So
 *   drafts carry the life of the copy in which their keys were looked up, and are dropped if that is over.
 */
import { Mutex } from '../async/mutex.ts';
import { encodeLedgerEntry } from '../codec/ledger-entry.ts';
import { replayRecord } from '../codec/request-position.ts';
import { MAX_STATEMENTS, statedOf } from '../core/sequence-row.ts';
import type { WallMs } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import {
  type DecidedDeps,
  type Decisions,
  decidedUnread,
  type Keyed,
  type ReadAhead,
  readAhead,
  readDecided,
} from './decided.ts';
import type { EndHeads } from './end-heads.ts';
import { type EndEvents, LedgerEnds } from './ends.ts';
import type { Appended, Draft, KeptEntries, LedgerIndex, LedgerLog, LedgerRecord, TimeStep } from './ledger-ports.ts';
import type { LedgerPartition } from './partition.ts';
import { statedRecord } from './sequence-rule.ts';

/**
 * The entries of one append. `end` and `life` are those of the copy when their keys were looked up: in a later life the
 * look-up may not hold any more.
 */
export interface Drafts {
  readonly end: number;
  readonly life: number;
  readonly entries: readonly Draft[];
}

/** What a ledger is built on. */
export interface LedgerOptions {
  readonly log: LedgerLog;
  readonly entries: KeptEntries;
  readonly index: LedgerIndex;
  readonly partitions: readonly LedgerPartition[];
  /** What a sequence is, is written again when that was written this long ago: well before the ledger forgets it. */
  readonly restateAfterMs: number;
  readonly now: () => WallMs;
  readonly monotonicMs: () => number;
  /** The time, while this worker's clock is trusted. */
  readonly trustedNow: () => WallMs | undefined;
  readonly timeStep: TimeStep;
  /** How far each partition had gone, and what becomes of that. */
  readonly heads: EndHeads;
  readonly endEvents: EndEvents;
}

/** Settled entries: their offsets, and which of them decide. */
export interface Settled extends Appended {
  /** Offsets that hold the first entry of a key, as far as that is known without reading the ledger. */
  readonly firsts: ReadonlySet<number>;
}

function mutexOf(mutexes: Map<number, Mutex>, partition: number): Mutex {
  const mutex = mutexes.get(partition) ?? new Mutex();
  mutexes.set(partition, mutex);
  return mutex;
}

/** The ledger protocol of one process, for all partitions. */
export class Ledger {
  readonly #log: LedgerLog;
  readonly #entries: KeptEntries;
  readonly #index: LedgerIndex;
  readonly #partitions: readonly LedgerPartition[];
  readonly #restateAfterMs: number;
  readonly #now: () => WallMs;
  readonly #monotonicMs: () => number;
  readonly #trustedNow: () => WallMs | undefined;
  readonly #timeStep: TimeStep;
  readonly #turns = new Map<number, Mutex>();
  readonly #reads = new Map<number, Mutex>();
  /** Partitions that need a marker before anything else is decided. */
  readonly #markerDue = new Set<number>();

  readonly ends: LedgerEnds;

  constructor(options: LedgerOptions) {
    const { log, entries, index, partitions, restateAfterMs, now, trustedNow, timeStep, heads, endEvents } = options;
    this.#monotonicMs = options.monotonicMs;
    const copyOf = (partition: number) => this.#of(partition);
    this.ends = new LedgerEnds({ heads, index, log, entries, copyOf, events: endEvents });
    this.#restateAfterMs = restateAfterMs;
    this.#now = now;
    this.#trustedNow = trustedNow;
    this.#timeStep = timeStep;
    this.#log = log;
    this.#entries = entries;
    this.#index = index;
    this.#partitions = partitions;
  }

  /**
   * Writes a marker: at a take-over, and from time to time, so that the log of a served partition never runs empty and
   * a later restore finds a point at which an index was complete. Nothing is decided on the partition before the marker
   * is written. Rejects as `inTurn` does.
   */
  mark(partition: number): Promise<void> {
    this.requireMarker(partition);
    return this.inTurn(partition, async () => {});
  }

  /** Nothing is decided on the partition before its next marker. */
  requireMarker(partition: number): void {
    this.#markerDue.add(partition);
  }

  /**
   * States that every request below this offset was answered before, since some are about to be read again; unless that
   * is stated already. Rejects as `inTurn` and `commit` do; OVERTAKEN if another writer came first, and it is void.
   */
  stateReplay(partition: number, below: number): Promise<void> {
    return this.inTurn(partition, async () => {
      if (below <= this.#index.answeredBelow(partition)) return;
      const end = this.#index.end(partition);
      await this.commit(partition, { end, life: this.life(partition), entries: [replayRecord(below, end)] });
      if (below <= this.#index.answeredBelow(partition)) return;
      throw new IdallocError('OVERTAKEN', `another process wrote to ledger partition ${partition} before a statement`);
    });
  }

  /** The copy of the partition is about to be restored: the marker due then also detects a recreated request topic. */
  restarted(partition: number): void {
    this.requireMarker(partition);
    this.ends.restarted(partition);
  }

  /** Raises what etcd remembers of these partitions, which this worker owns. */
  raise(partitions: readonly number[]): Promise<void> {
    return this.ends.raise(partitions.filter((partition) => !this.#markerDue.has(partition)));
  }

  /**
   * Runs `work` when all earlier work on the partition has ended, successfully or not, and the copy has been compared
   * with what etcd remembers of it. Rejects with INDEX_RESTORING or LEDGER_UNREADABLE while the index can't be queried,
   * and as a due marker does.
   */
  inTurn<T>(partition: number, work: () => Promise<T>): Promise<T> {
    return mutexOf(this.#turns, partition).run(async () => {
      this.#requireTrusted(partition);
      const isDue = this.#markerDue.has(partition) || this.#index.horizon(partition) === undefined;
      if (isDue || !(await this.ends.isCompared(partition))) await this.#writeMarker(partition);
      // A broker whose clock is ahead must not make all that was decided before look unknown.
      const nowMs = this.#trustedNow();
      if (nowMs !== undefined) this.#index.missedBefore(partition, nowMs);
      return work();
    });
  }

  /**
   * What `decided` has to read for these keys. Call it outside a turn: others of the partition don't wait for it. One
   * part reads at a time, since the next one often finds its entries where the last one did.
   */
  readAhead(partition: number, keyed: readonly Keyed[]): Promise<ReadAhead> {
    return mutexOf(this.#reads, partition).run(() => readAhead(this.#decidedDeps(partition), keyed));
  }

  /** As `decided`, but undefined if the ledger has to be read for it. Call within a turn of the partition. */
  decidedUnread(partition: number, keyed: readonly Keyed[], hashes: number[]): Decisions | undefined {
    return decidedUnread(this.#decidedDeps(partition), keyed, hashes);
  }

  /** The decisions for keys of a partition, as readDecided returns them. Call within a turn of the partition. */
  decided(partition: number, keyed: readonly Keyed[], hashes?: number[], ahead?: ReadAhead): Promise<Decisions> {
    return readDecided(this.#decidedDeps(partition), keyed, hashes, ahead);
  }

  #decidedDeps(partition: number): DecidedDeps {
    const [index, entries, monotonicMs] = [this.#index, this.#entries, this.#monotonicMs];
    return { index, copy: this.#of(partition), entries, monotonicMs };
  }

  /**
   * Rises whenever the copy of the partition is restored: what was looked up before may not hold for the log as it is
   * now.
   */
  life(partition: number): number {
    return this.#of(partition).life;
  }

  /**
   * Reads the partition to the end that its leader reports now. Call within a turn of the partition. Rejects as
   * `inTurn` does, or with KAFKA_UNAVAILABLE when the leader does not answer.
   */
  async catchUp(partition: number): Promise<void> {
    await this.#reachEnd(partition);
    this.#requireTrusted(partition);
  }

  /**
   * The offset after the last request of the partition, as its leader reports it now; asked again for a while if it is
   * not above `known`. Rejects with KAFKA_UNAVAILABLE when the leader does not answer.
   */
  requestEnd(partition: number, known: number): Promise<number> {
    return this.#log.requestEnd(partition, known);
  }

  /**
   * Appends and settles. Afterwards the index holds the first entry of each key, ours or an earlier one. Rejects with
   * APPEND_UNANSWERED (the entries may or may not be in the log), LEDGER_TRUNCATED, or as `inTurn` does when the index
   * was found wrong meanwhile (the entries are in the log).
   */
  async commit(partition: number, drafts: Drafts): Promise<Settled> {
    this.#requireTrusted(partition); // the copy may be in doubt since the look-up
    this.#requireSameLog(partition, drafts);
    const release = this.#of(partition).hold();
    try {
      return await this.#timeStep('settle', () => this.#settle(partition, drafts, release));
    } finally {
      release();
    }
  }

  async #settle(partition: number, drafts: Drafts, release: () => void): Promise<Settled> {
    const appended = await this.#append(partition, drafts, release);
    const { baseOffset, appendedAtMs } = appended;
    if (baseOffset < drafts.end) {
      const cause = `an append went to offset ${baseOffset}, below ${drafts.end} that was read before`;
      this.#of(partition).invalidate(cause);
      throw new IdallocError('LEDGER_TRUNCATED', `ledger partition ${partition} has lost entries: ${cause}`);
    }
    if (this.#index.end(partition) < baseOffset) {
      release();
      await this.#of(partition).reached(baseOffset);
    }
    this.#requireTrusted(partition); // the copy may have been invalidated during the append
    this.#requireSameLog(partition, drafts);
    const end = this.#index.end(partition); // the reader may have applied some of the entries already
    const unread: LedgerRecord[] = [];
    for (let i = Math.max(0, end - baseOffset); i < drafts.entries.length; i += 1) {
      const { key, value, headers, entry, hash } = drafts.entries[i] as Draft;
      unread.push({ offset: baseOffset + i, key, value, headers, appendedAtMs, entry, hash });
    }
    const firsts = new Set<number>();
    this.#index.apply(partition, unread, firsts);
    return { baseOffset, appendedAtMs, firsts };
  }

  /**
   * The marker states what the log has lost: `end` is the old end, above the marker's own offset. Readers then refuse
   * unknown requests up to `through`, whichever of them had noticed the loss.
   *
   * If nothing left in the log shows the horizon, every existing request may have been decided by entries that are
   * gone: the marker's `through` covers them all.
   */
  async #writeMarker(partition: number): Promise<void> {
    this.#markerDue.add(partition);
    const life = this.life(partition);
    const compared = await this.ends.compare(partition);
    // Read first: a request that another worker decides during the broker call must not look like a recreated topic.
    const known = Math.max(this.#index.through(partition), compared.through);
    const requestEnd = await this.#log.requestEnd(partition, known);
    this.ends.requireSameRequests(partition, compared, { known, requestEnd });
    const end = this.#index.end(partition);
    const lostEnd = compared.loss && Math.max(compared.loss.end, end + 1);
    // The end is never below what the index shows: requests may have arrived and been decided since the broker
    // answered.
    const atLeast = this.#index.horizon(partition) === undefined ? requestEnd - 1 : -1;
    const through = Math.max(atLeast, this.#index.through(partition), compared.loss?.through ?? -1);
    const marker = { kind: 'marker', end: lostEnd ?? end, through } as const;
    const statements = this.#statementsDue(partition, { end, through }, end + 1);
    const entries = [{ key: null, value: encodeLedgerEntry(marker), entry: marker }, ...statements];
    const { baseOffset } = await this.commit(partition, { end, life, entries });
    // If the log has lost its tail and is as long again, the marker has a later leader epoch: reading it starts a
    // comparison.
    await this.#of(partition).readBack(baseOffset + entries.length);
    const isOvertaken = lostEnd !== undefined && baseOffset >= lostEnd; // so it says nothing of the loss
    if (isOvertaken || this.#index.horizon(partition) === undefined) {
      const message = `another process wrote to ledger partition ${partition} before its marker: the marker is written again`;
      throw new IdallocError('INDEX_RESTORING', message);
    }
    await this.ends.settle(partition, compared);
    if (statements.length < MAX_STATEMENTS) this.#markerDue.delete(partition);
  }

  /** Statements of what was stated long ago and has no gap, to be appended from the offset `at` on. */
  #statementsDue(partition: number, view: { end: number; through: number }, at: number): Draft[] {
    const dueMs = this.#now() - this.#restateAfterMs;
    const drafts: Draft[] = [];
    for (const [name, row] of this.#index.sequences(partition)) {
      if (drafts.length === MAX_STATEMENTS) break;
      const known = statedOf(row);
      if (known === undefined || row.gap > 0 || row.stated.appendedAtMs > dueMs) continue;
      const due = { kind: 'again', sequence: name, next: known.next, definition: known } as const;
      drafts.push(statedRecord(due, known.next, { ...view, at: at + drafts.length }));
    }
    return drafts;
  }

  #of(partition: number): LedgerPartition {
    const found = this.#partitions[partition];
    if (found === undefined) throw new RangeError(`the ledger has no partition ${partition}`);
    return found;
  }

  #requireTrusted(partition: number): void {
    const refusal = this.#of(partition).refusal;
    if (refusal !== undefined) throw refusal;
  }

  /** A copy that was restored since the look-up may hold a decision that the look-up did not find. */
  #requireSameLog(partition: number, { life }: Drafts): void {
    if (life === this.life(partition)) return;
    const message = `ledger partition ${partition} was restored since the requests were looked up: they are looked up again`;
    throw new IdallocError('INDEX_RESTORING', message);
  }

  async #append(partition: number, drafts: Drafts, release: () => void): Promise<Appended> {
    try {
      return await this.#timeStep('append', () => this.#log.append(partition, drafts.entries));
    } catch (error) {
      release();
      await this.#catchUpAfter(partition, error);
      throw error;
    }
  }

  async #reachEnd(partition: number): Promise<void> {
    await this.#of(partition).reached(await this.#log.endOffset(partition));
  }

  /** After an unanswered append: its entries, if they arrived, are read before the requests are retried. */
  async #catchUpAfter(partition: number, cause: unknown): Promise<void> {
    try {
      await this.#reachEnd(partition);
    } catch (error) {
      throw new IdallocError(
        'APPEND_UNANSWERED',
        `ledger partition ${partition} did not answer an append (${describeError(cause)}) and can't be read to its end`,
        { cause: error },
      );
    }
  }
}
