import { digestEntry } from '../codec/ledger-digest.ts';
import { describeError, type ErrorCode, IdallocError } from '../errors.ts';
import type { LedgerFollower, LedgerIndex, LedgerRecord, LogBounds } from '../ledger/ports.ts';
import { absent, type CopyProgress, FollowedLedger } from './partition-state.ts';

export interface FollowerOptions {
  readonly index: LedgerIndex;
  readonly partitions: number;
  /** Calls back after the delay, unless cancelled first. */
  readonly setTimer: (run: () => void, delayMs: number) => { cancel(): void };
  /** The reader must stop reading the partition, look up its bounds, call `begin` and read from there. */
  readonly onRestart: (partition: number, cause: string) => void;
  /** The result of `progress` has changed in more than its offsets. */
  readonly onChange: (partition: number) => void;
  /** A partition can't be read until its log loses the unreadable part. Called before `onChange`. */
  readonly onStop: (partition: number, error: IdallocError) => void;
}

/** How long a caller waits for the reader. */
const REACH_TIMEOUT_MS = 10_000;
/** The codes of an index whose store, not an entry, is unusable. */
const STORE_ERRORS: ReadonlySet<ErrorCode> = new Set(['INDEX_RESTORING', 'INDEX_UNUSABLE', 'STOPPING']);

/**
 * Follows ledger partitions and keeps the index's copies of them in step with the log.
 *
 * Modes of a partition:
 * - absent: the index has no copy of it and needs none.
 * - restoring: the copy has not reached the end that the log had when reading started, or is not yet recognised as this
 *   log's. It may not be queried.
 * - following: at the end of the log, or close to it. The copy may be queried.
 * - stopped: the log holds something unreadable. Once that is removed, the partition is restored.
 *
 * Reading starts at the last applied entry. Whenever reading passes that entry (an old one, or one of our own settled
 * since), it must match the digest that the index stored. Every delivery must start where the last one ended and have no
 * gap, and no entry may show that its writer had read a longer log. Anything else means that the log lost entries or is
 * another log: the partition is wiped and restored, because the index would otherwise be trusted. A restore from an empty
 * copy accepts the log as it is.
 *
 * Offsets are reused after a log has lost its tail. So "read up to here" holds for one life of the log: after each
 * interruption the copy is in doubt, and may not be queried, until the last applied entry has been found again.
 */
export class Follower implements LedgerFollower {
  readonly #options: FollowerOptions;
  readonly #partitions: FollowedLedger[];

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#partitions = Array.from({ length: options.partitions }, () => new FollowedLedger());
  }

  /** The index has opened its copy of the partition, which is restoring from now on. */
  addCopy(partition: number): void {
    this.#state(partition).hasCopy = true;
  }

  /** The index is about to drop its copy of the partition. Waiting callers are rejected. */
  removeCopy(partition: number): void {
    const state = this.#state(partition);
    state.reset();
    state.fail(absent(partition));
    this.#options.onChange(partition);
  }

  /** The offset after the last known entry of this log; 0 when the copy belongs to another log. */
  knownEnd(partition: number): number {
    return this.#state(partition).invalidated ? 0 : this.#options.index.end(partition);
  }

  /**
   * Returns the offset to read from, given the log's bounds. A copy that the log can't confirm is wiped; if it had
   * entries, the loss is reported like any other, and the reader starts again.
   */
  begin(partition: number, bounds: LogBounds): number {
    const { index } = this.#options;
    const state = this.#state(partition);
    const end = index.end(partition);
    const lastOffset = this.#lastOffset(partition);
    // Retention may have removed everything that the index has read; it is still complete if the log starts at its end.
    const continues = end === bounds.low;
    if (end > bounds.high || end < bounds.low || (lastOffset < bounds.low && !continues)) {
      if (end > 0)
        this.invalidate(partition, `the log spans ${bounds.low} to ${bounds.high} now, but was read up to ${end}`);
      state.invalidated = true;
    }
    if (state.invalidated) {
      index.wipe(partition, bounds.low);
      state.epoch += 1;
    }
    state.begin(bounds, index.last(partition) !== undefined, continues);
    return this.resume(partition);
  }

  /** The offset to read from after the reader lost its place, for example in a rebalance. */
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
   * The lowest offset that must be read: the last applied entry, by which the log is recognised. Resolves when no append
   * holds the partition.
   */
  async neededFrom(partition: number): Promise<number> {
    await this.#state(partition).held;
    return this.#lastOffset(partition);
  }

  #lastOffset(partition: number): number {
    const { index } = this.#options;
    return index.last(partition)?.offset ?? index.end(partition);
  }

  /** Takes records in log order; those below `from` were skipped because they were not needed. */
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

  /**
   * Reading was interrupted, and the log may have lost its tail and grown again meanwhile. The copy may not be queried until its last
   * entry has been compared. Returns false if the copy is not in use, or is restored anyway. The state is not reported as
   * changed: nearly always the copy is found to be right a moment later.
   */
  doubt(partition: number): boolean {
    const state = this.#state(partition);
    if (!state.hasCopy || state.invalidated || state.stopped !== undefined) return false;
    state.recognised = false;
    return true;
  }

  /** The log holds records that can't be decoded, the first at this offset: the partition stops. */
  unreadable(partition: number, offset: number, cause: string): void {
    const state = this.#state(partition);
    if (state.invalidated || state.stopped !== undefined) return;
    this.#stop(partition, offset, cause);
  }

  /** The index lost its content: every partition is restored from the log. */
  restore(cause: string): void {
    for (const [partition, state] of this.#partitions.entries()) {
      if (state.stopped !== undefined || !state.hasCopy) continue;
      const message = `ledger partition ${partition} is being restored from the log: ${cause}`;
      this.#restart(partition, new IdallocError('INDEX_RESTORING', message), cause);
    }
  }

  /**
   * Forgets some of the entries below `low`, the current start of the log; returns true while there is more to do.
   *
   * A partition whose unread entries were trimmed, or truncated at the log's end `high`, is restored again: with nothing
   * left to read, no delivery would reveal the loss, and the restore would never end. So is a stopped partition, once the
   * log no longer holds what was unreadable.
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
    // A following copy may re-read an older entry, and is worth keeping; a restoring one must read every entry.
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
    if (state.stopped !== undefined) return state.stopped.error;
    const end = this.#options.index.end(partition);
    if (!state.invalidated && state.recognised && end >= state.target) return undefined;
    const message = `ledger partition ${partition} is being restored: at offset ${end} of ${state.target}`;
    return new IdallocError('INDEX_RESTORING', message);
  }

  /** Why partitions are stopped. */
  stopped(): readonly IdallocError[] {
    return this.#partitions.flatMap(({ stopped }) => stopped?.error ?? []);
  }

  progress(partition: number): CopyProgress {
    const state = this.#state(partition);
    if (!state.hasCopy) return { state: 'absent' };
    return state.progress(this.#options.index.end(partition), this.refusal(partition) === undefined);
  }

  reached(partition: number, offset: number): Promise<void> {
    const state = this.#state(partition);
    if (state.stopped !== undefined) return Promise.reject(state.stopped.error);
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

  /** Whether the offsets continue from the last delivery without a gap. */
  #isWhole(partition: number, state: FollowedLedger, records: readonly LedgerRecord[]): boolean {
    const at = records.findIndex(({ offset }, i) => offset !== state.expected + i);
    if (at === -1) return true;
    const cause = `reading continued at offset ${records[at]?.offset}, but ${state.expected + at} was expected`;
    // Between deliveries retention may have overtaken the reader; within one the log itself has the gap.
    if (at > 0 && state.expected + at < state.acceptedBelow) {
      const why = `${cause}: the ledger topic was compacted, or another program wrote to it in transactions`;
      this.#stop(partition, (records[at]?.offset ?? 0) - 1, why);
    } else this.invalidate(partition, cause);
    return false;
  }

  /** Whether the log still has the entry that the index applied last, if these records include its offset. */
  #isKnown(partition: number, state: FollowedLedger, records: readonly LedgerRecord[]): boolean {
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
   * An entry that can't be applied stops its partition: deciding without it could allocate a second batch. Bisection
   * finds the entry. A failed store has reported itself, and has been replaced or has ended the worker.
   */
  #apply(partition: number, state: FollowedLedger, records: readonly LedgerRecord[]): void {
    try {
      const { lossAt } = this.#options.index.apply(partition, records);
      if (lossAt === undefined || lossAt < state.acceptedBelow) return;
      this.invalidate(partition, `the writer of the entry at offset ${lossAt} had read a longer log`);
    } catch (error) {
      if (error instanceof IdallocError && STORE_ERRORS.has(error.code)) return;
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
    const error = new IdallocError('LEDGER_UNREADABLE', message, { cause });
    state.stopped = { error, offset };
    state.fail(error);
    this.#options.onStop(partition, error);
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

  #state(partition: number): FollowedLedger {
    const state = this.#partitions[partition];
    if (state === undefined) throw new RangeError(`the ledger has no partition ${partition}`);
    return state;
  }
}
