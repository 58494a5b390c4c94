import { digestEntry } from '../codec/ledger-digest.ts';
import { describeError, type ErrorCode, IdallocError } from '../errors.ts';
import { absent, type CopyProgress, PartitionState } from './partition-state.ts';
import type { LedgerFollower, LedgerIndex, LedgerRecord, LogBounds } from './ports.ts';

export interface FollowerOptions {
  readonly index: LedgerIndex;
  readonly partitions: number;
  /** Calls back after so many milliseconds, unless cancelled first. */
  readonly setTimer: (run: () => void, delayMs: number) => { cancel(): void };
  /** The reader has to stop at the partition, ask for its bounds, call `begin` and read from there. */
  readonly onRestart: (partition: number, cause: string) => void;
  /** Something has changed of what `progress` says besides offsets. */
  readonly onChange: (partition: number) => void;
  /** A partition can't be read any more, until its log has lost what is unreadable. Called before `onChange`. */
  readonly onStop: (partition: number, fault: IdallocError) => void;
}

/** How long somebody waits for the reader before giving up. */
const REACH_TIMEOUT_MS = 10_000;
/** What an index refuses with when it is its store, not an entry, that can't be used. */
const STORE_FAULTS: ReadonlySet<ErrorCode> = new Set(['INDEX_RESTORING', 'INDEX_UNUSABLE', 'STOPPING']);

/**
 * Follows ledger partitions and keeps the index's copies of them in step with the log.
 *
 * Modes of a partition:
 * - absent: the index has no copy of it, and is not to have one.
 * - restoring: behind the end that the log had when reading began, or the index is not yet recognised as this log's; it
 *   may not be asked.
 * - following: at the end, or about to be; the index may be asked.
 * - stopped: the log holds something that can't be read. Once that is removed, the partition is restored.
 *
 * Reading begins at the last entry applied. Whenever it passes that entry, be it one from before or one of our own that
 * was settled since, it must find it with the digest that the index stored. Every delivery must start where the one
 * before ended and be without a hole, and no entry may tell of a longer log than there was at its place. Anything else
 * means that the log lost entries or is another log: the partition is wiped and restored, since what the index says
 * below its end would otherwise be believed. What a restore from nothing meets again is how the log is now.
 */
export class Follower implements LedgerFollower {
  readonly #options: FollowerOptions;
  readonly #partitions: PartitionState[];

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#partitions = Array.from({ length: options.partitions }, () => new PartitionState());
  }

  /** The index has opened its copy of the partition: it is restoring from now on. */
  addCopy(partition: number): void {
    this.#state(partition).hasCopy = true;
  }

  /** The index is to drop its copy of the partition. Whoever waits for it is refused. */
  removeCopy(partition: number): void {
    const state = this.#state(partition);
    state.reset();
    state.fail(absent(partition));
    this.#options.onChange(partition);
  }

  /** The offset behind the last entry that is known of this log; 0 when what is known is of another one. */
  knownEnd(partition: number): number {
    return this.#state(partition).invalidated ? 0 : this.#options.index.end(partition);
  }

  /** Returns where reading has to begin, the log being as `bounds` say; wipes what the log can't confirm. */
  begin(partition: number, bounds: LogBounds): number {
    const { index } = this.#options;
    const state = this.#state(partition);
    const end = index.end(partition);
    const lastOffset = this.#lastOffset(partition);
    // Retention may have taken all that the index has read: it lacks nothing where the log goes on at its end.
    const continues = end === bounds.low;
    if (state.invalidated || end > bounds.high || end < bounds.low || (lastOffset < bounds.low && !continues)) {
      index.wipe(partition, bounds.low);
      state.epoch += 1;
    }
    state.begin(bounds, index.last(partition) !== undefined, continues);
    return this.resume(partition);
  }

  /** Where reading goes on after the reader lost its place, e.g. by a rebalance. */
  resume(partition: number): number {
    const state = this.#state(partition);
    state.expected = Math.max(state.low, this.#lastOffset(partition));
    this.#advanced(partition);
    return state.expected;
  }

  hold(partition: number): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#state(partition).held = promise;
    return resolve;
  }

  /**
   * Where reading has to show something: the last entry applied, by which the log is recognised, and what follows.
   * Resolves when no append holds the partition.
   */
  async neededFrom(partition: number): Promise<number> {
    await this.#state(partition).held;
    return this.#lastOffset(partition);
  }

  #lastOffset(partition: number): number {
    const { index } = this.#options;
    return index.last(partition)?.offset ?? index.end(partition);
  }

  /** Takes records in log order as they were read; those below `from` were left out, since they were not needed. */
  deliver(partition: number, records: readonly LedgerRecord[], from = 0): void {
    const state = this.#state(partition);
    if (records.length === 0 || !state.hasCopy || state.invalidated || state.stopped !== undefined) return;
    state.expected = Math.max(state.expected, from);
    if (!this.#isWhole(partition, state, records) || !this.#isKnown(partition, state, records)) return;
    this.#apply(partition, state, records);
    if (state.invalidated || state.stopped !== undefined) return;
    state.expected += records.length;
    this.#advanced(partition);
  }

  invalidate(partition: number, cause: string): void {
    const error = new IdallocError('LEDGER_TRUNCATED', `ledger partition ${partition} has lost entries: ${cause}`);
    this.#restart(partition, error, cause);
  }

  /** The log holds records that can't be decoded, at this offset to begin with: the partition stops. */
  unreadable(partition: number, offset: number, cause: string): void {
    const state = this.#state(partition);
    if (state.invalidated || state.stopped !== undefined) return;
    this.#stop(partition, offset, cause);
  }

  /** The index lost what it knew: every partition is restored from the log. */
  restore(cause: string): void {
    for (const [partition, state] of this.#partitions.entries()) {
      if (state.stopped !== undefined || !state.hasCopy) continue;
      const message = `ledger partition ${partition} is being restored from the log: ${cause}`;
      this.#restart(partition, new IdallocError('INDEX_RESTORING', message), cause);
    }
  }

  /**
   * Does some of the work of forgetting what lies below `low`, where the log starts now; true while there is more.
   *
   * A partition whose unread entries were trimmed, or cut off at the log's end `high`, is restored anew: when nothing is
   * left to be read, no delivery would ever show it, and its restore would never end. So is one that stopped, once the
   * log no longer has what could not be read.
   */
  expire(partition: number, low: number, high = Number.POSITIVE_INFINITY): boolean {
    const state = this.#state(partition);
    if (state.invalidated || !state.hasCopy) return false;
    if (Number.isFinite(high)) state.logEnd = Math.max(state.logEnd, high);
    if (state.stopped !== undefined) {
      const { offset } = state.stopped;
      if (offset < low) this.invalidate(partition, `the log now starts at offset ${low}, after what could not be read`);
      if (offset >= high)
        this.invalidate(partition, `the log now ends at offset ${high}, before what could not be read`);
      return false;
    }
    const following = this.refusal(partition) === undefined;
    // Following may have gone back to an entry of before, and what the index holds is worth keeping; a restore has to
    // read what is due.
    const due = following ? this.#options.index.end(partition) : state.expected;
    if (due < low) {
      this.invalidate(partition, `the log now starts at offset ${low}, but ${due} was expected`);
      return false;
    }
    if (!following && state.target > high) {
      this.invalidate(partition, `the log now ends at offset ${high}, but ended at ${state.target} before`);
      return false;
    }
    return following && this.#options.index.expire(partition, low);
  }

  epoch(partition: number): number {
    return this.#state(partition).epoch;
  }

  refusal(partition: number): IdallocError | undefined {
    const state = this.#state(partition);
    if (!state.hasCopy) return absent(partition);
    if (state.stopped !== undefined) return state.stopped.fault;
    const end = this.#options.index.end(partition);
    if (!state.invalidated && state.recognised && end >= state.target) return undefined;
    const message = `ledger partition ${partition} is being restored: at offset ${end} of ${state.target}`;
    return new IdallocError('INDEX_RESTORING', message);
  }

  /** Why partitions stand still. */
  stopped(): readonly IdallocError[] {
    return this.#partitions.flatMap(({ stopped }) => stopped?.fault ?? []);
  }

  progress(partition: number): CopyProgress {
    const state = this.#state(partition);
    if (!state.hasCopy) return { state: 'absent' };
    return state.progress(this.#options.index.end(partition), this.refusal(partition) === undefined);
  }

  reached(partition: number, offset: number): Promise<void> {
    const state = this.#state(partition);
    if (state.stopped !== undefined) return Promise.reject(state.stopped.fault);
    if (!state.hasCopy) return Promise.reject(absent(partition));
    if (this.#options.index.end(partition) >= offset) return Promise.resolve();
    return state.wait(offset, (giveUp) => {
      return this.#options.setTimer(() => {
        const at = this.#options.index.end(partition);
        const message = `ledger partition ${partition} was read only up to offset ${at}, not ${offset}, within ${REACH_TIMEOUT_MS} ms`;
        giveUp(new IdallocError('INDEX_RESTORING', message));
      }, REACH_TIMEOUT_MS);
    });
  }

  /** Offsets go up one by one, from where reading was. */
  #isWhole(partition: number, state: PartitionState, records: readonly LedgerRecord[]): boolean {
    const at = records.findIndex(({ offset }, i) => offset !== state.expected + i);
    if (at === -1) return true;
    const cause = `reading continued at offset ${records[at]?.offset}, but ${state.expected + at} was expected`;
    // Between deliveries retention may have overtaken the reader; inside of one the log itself has the hole.
    if (at > 0 && state.expected + at < state.acceptedBelow) {
      const why = `${cause}: the ledger topic was compacted, or another program wrote to it in transactions`;
      this.#stop(partition, (records[at]?.offset ?? 0) - 1, why);
    } else this.invalidate(partition, cause);
    return false;
  }

  /** The entry that the index applied last is the one that the log has at its place, if these records reach there. */
  #isKnown(partition: number, state: PartitionState, records: readonly LedgerRecord[]): boolean {
    const last = this.#options.index.last(partition);
    const found = records[(last?.offset ?? -1) - state.expected];
    if (last === undefined || found === undefined) return true;
    if (!digestEntry(found).equals(last.digest)) {
      this.invalidate(partition, `the entry at offset ${found.offset} differs from the one that was applied before`);
      return false;
    }
    const isNews = !state.recognised;
    state.recognised = true;
    if (isNews) this.#options.onChange(partition);
    return true;
  }

  /**
   * An entry that can't be applied stops its partition: deciding without it could give a second batch. Halving
   * finds which one it is. A store that fails has reported that itself, and has been replaced or has ended the worker.
   */
  #apply(partition: number, state: PartitionState, records: readonly LedgerRecord[]): void {
    try {
      const { lossAt } = this.#options.index.apply(partition, records);
      if (lossAt === undefined || lossAt < state.acceptedBelow) return;
      this.invalidate(partition, `the writer of the entry at offset ${lossAt} had read a longer log`);
    } catch (error) {
      if (error instanceof IdallocError && STORE_FAULTS.has(error.code)) return;
      const half = Math.floor(records.length / 2);
      if (half > 0) this.#apply(partition, state, records.slice(0, half));
      if (state.invalidated || state.stopped !== undefined) return;
      if (half > 0) this.#apply(partition, state, records.slice(half));
      else this.#stop(partition, records[0]?.offset ?? 0, describeError(error), error);
    }
  }

  #stop(partition: number, offset: number, why: string, cause?: unknown): void {
    const state = this.#state(partition);
    const message = `ledger partition ${partition} stops at offset ${offset}: ${why}`;
    const fault = new IdallocError('LEDGER_UNREADABLE', message, { cause });
    state.stopped = { fault, offset };
    state.fail(fault);
    this.#options.onStop(partition, fault);
    this.#options.onChange(partition);
  }

  #restart(partition: number, error: IdallocError, cause: string): void {
    const state = this.#state(partition);
    if (state.invalidated || !state.hasCopy) return;
    state.invalidated = true;
    state.stopped = undefined;
    state.target = Number.POSITIVE_INFINITY;
    state.epoch += 1;
    state.fail(error);
    this.#options.onChange(partition);
    this.#options.onRestart(partition, cause);
  }

  #advanced(partition: number): void {
    const state = this.#state(partition);
    const end = this.#options.index.end(partition);
    state.release(end);
    if (state.restored || !state.recognised || end < state.target) return;
    state.restored = true;
    this.#options.onChange(partition);
  }

  #state(partition: number): PartitionState {
    const state = this.#partitions[partition];
    if (state === undefined) throw new RangeError(`the ledger has no partition ${partition}`);
    return state;
  }
}
