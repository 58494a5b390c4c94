/**
 * A log has lives.
 *
 * A worker has read the ledger up to offset 1,000 and keeps an index of it. May it say that an unknown key has no entry
 * below 1,000? Only if the log below 1,000 is still the one that it read, and offsets do not tell. After an unclean
 * election a log has lost its tail: it ends at 900, and other entries are appended at 900 to 1,000. A topic that was
 * deleted and created again starts at 0 and grows. A reader that was in back-off meanwhile asks for offset 1,000, gets
 * what follows, and sees no error and no gap. Its index now has a hundred decisions that don't exist any more, and
 * lacks a hundred that do: the next request with one of those keys gets a second batch.
 *
 * So "read up to here" is a statement about one life of the log. The idea is to recognise the log, as one recognises a
 * person: not by where somebody stands, but by something that only this one can have. The last entry that was read is
 * remembered by its digest, over key, value, offset and append time. After each interruption the copy is in doubt, and
 * answers no question, until that entry was read again and has the same digest. Reading therefore starts one entry
 * early, which costs nothing.
 *
 * One entry is not always enough. Own entries are applied as soon as their append is acknowledged, before they were
 * read back; they may stand behind others than those that we had read. So both must be found: the last entry that was
 * read, and the last one that was applied (`read-position`).
 *
 * In between each delivery must begin where the one before ended, without a gap, and no entry may show that its writer
 * had read a longer log than there is. Anything else means that this is not the log that the copy was read from. Then
 * there is nothing to repair: the copy is wiped, and restored from the log as it is now. A restore from nothing accepts
 * the log as it is, for it contradicts no memory of ours. What etcd remembers of the partition, and whether that is
 * still there, is compared by `ends`.
 *
 * Callers hold on to what they looked up while they wait. So the copy counts its own lives: `life` rises whenever what
 * was looked up before may not hold any more, and whoever acts on a look-up compares it.
 */
import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';
import type { CopyProgress, LedgerIndex, LedgerRecord, LogBounds } from './ledger-ports.ts';
import {
  applied,
  type Held,
  lossAtStart,
  lossLater,
  type Objection,
  ReadPosition,
  type Unreadable,
} from './read-position.ts';

export interface LedgerPartitionOptions {
  readonly index: LedgerIndex;
  readonly runtime: Pick<Runtime, 'schedule'>;
  /** The reader must stop reading the partition, look up its bounds, call `begin` and read from there. */
  readonly onRestart: (partition: number, cause: string) => void;
  /** The result of `progress` has changed in more than its offsets. */
  readonly onChange: (partition: number) => void;
  /** The partition can't be read until its log loses the unreadable part. Called before `onChange`. */
  readonly onStop: (partition: number, error: IdallocError) => void;
}

/**
 * One partition of the ledger on this worker: keeps the index's copy of it in step with the log, and says whether the
 * copy may be queried.
 *
 *   absent  ──open──▶ kept    may be queried once it is recognised, and has reached the end that the log had at the
 *                             start
 *   kept    ─────────▶ lost   the log contradicts the copy, or the index lost it: wiped and restored, from `begin` on
 *   kept    ─────────▶ stopped   the log holds something unreadable; once that is removed, the copy is lost, too
 *   any     ──drop──▶ absent
 */
export class LedgerPartition {
  readonly partition: number;
  readonly #options: LedgerPartitionOptions;
  #mode: 'absent' | 'kept' | 'lost' | 'stopped' = 'absent';
  /** Rises when reading starts anew, and with a wipe or drop: what was fetched or looked up before may not hold now. */
  #life = 0;
  readonly #position = new ReadPosition();
  /** The start of the log when reading began. */
  #low = 0;
  /** The end that must be reached before the index may be queried. */
  #target = Number.POSITIVE_INFINITY;
  /** The last end of the log that a broker reported. */
  #logEnd = 0;
  /** It was reported that the copy may be queried. */
  #isReported = false;
  /** Why the partition is stopped, and the last unreadable offset. */
  #stopped: { readonly error: IdallocError; readonly offset: number } | undefined;
  /** Resolves when the append in progress, if any, no longer holds up reading. */
  #held: Promise<void> | undefined;
  readonly #waiters = new Waiters();
  readonly #readers = new Waiters();

  constructor(partition: number, options: LedgerPartitionOptions) {
    this.partition = partition;
    this.#options = options;
  }

  get life(): number {
    return this.#life;
  }

  /** Why the copy can't be queried now; undefined when it can. */
  get refusal(): IdallocError | undefined {
    if (this.#mode === 'absent') return this.#absent;
    if (this.#stopped !== undefined) return this.#stopped.error;
    const end = this.#end;
    if (this.#mode === 'kept' && this.#position.isRecognised && end >= this.#target) return undefined;
    const message = `ledger partition ${this.partition} is being restored: at offset ${end} of ${this.#target}`;
    return new IdallocError('INDEX_RESTORING', message);
  }

  /** Why the partition is stopped. */
  get stopped(): IdallocError | undefined {
    return this.#stopped?.error;
  }

  /**
   * Undefined without a copy. One that was restored from a log without its head is not complete before a marker: until
   * then new requests may be FORGOTTEN.
   */
  get progress(): CopyProgress | undefined {
    if (this.#mode === 'absent') return undefined;
    const isFollowing = this.refusal === undefined && this.#options.index.horizon(this.partition) !== undefined;
    const state = this.#mode === 'stopped' ? 'stopped' : isFollowing ? 'following' : 'restoring';
    const isRecognised = this.#position.isRecognised && this.#mode !== 'lost';
    return { state, isRecognised, low: this.#low, end: this.#end, logEnd: Math.max(this.#logEnd, this.#end) };
  }

  /** The offset after the last known entry of this log; 0 when the copy belongs to another log. */
  get knownEnd(): number {
    return this.#mode === 'lost' ? 0 : this.#end;
  }

  /** The last entry that was read from this log, while the copy may be queried. */
  get lastRead(): ReadPosition['last'] {
    return this.refusal === undefined ? this.#position.last : undefined;
  }

  /** Resolves once the index has applied everything below `offset`; rejects when it can't in time. */
  reached(offset: number): Promise<void> {
    const isReached = this.#end >= offset;
    return this.#until(this.#waiters, offset, isReached, () => `read only up to offset ${this.#end}`);
  }

  /**
   * Resolves once everything below `offset` was read from the log and fits the copy, what this worker has settled
   * included; rejects when it can't in time.
   */
  readBack(offset: number): Promise<void> {
    const isBack = this.refusal === undefined && this.#position.expected >= offset;
    return this.#until(this.#readers, offset, isBack, () => `read back only up to offset ${this.#position.expected}`);
  }

  #until(waiters: Waiters, offset: number, isReached: boolean, what: () => string): Promise<void> {
    if (this.#mode === 'absent' || this.#mode === 'stopped') return Promise.reject(this.refusal);
    if (isReached) return Promise.resolve();
    return waiters.wait(offset, this.#options.runtime, () => `ledger partition ${this.partition} was ${what()}`);
  }

  /**
   * Stops reading the partition until the returned function is called, which may be called more than once: an append is
   * in progress, and its response is cheaper than reading its entries back.
   */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held = promise;
    return resolve;
  }

  /** The index has opened its copy, which is restoring from now on. */
  open(): void {
    if (this.#mode === 'absent') this.#mode = 'kept';
  }

  /** The index is about to drop its copy. Waiting callers are rejected. */
  drop(): void {
    this.#mode = 'absent';
    this.#life += 1;
    this.#target = Number.POSITIVE_INFINITY;
    this.#position.forget();
    this.#stopped = undefined;
    this.#held = undefined;
    this.#fail(this.#absent);
    this.#options.onChange(this.partition);
  }

  /**
   * Returns the offset to read from, given the log's bounds. A copy that the log can't confirm is wiped; if it had
   * entries, the loss is reported like any other.
   */
  begin({ low, high }: LogBounds): number {
    const { index } = this.#options;
    const loss = lossAtStart({ low, high }, this.#known);
    if (loss !== undefined && this.#end > 0) this.invalidate(loss);
    if (loss !== undefined || this.#mode === 'lost') {
      index.wipe(this.partition, low);
      this.#life += 1;
      this.#mode = 'kept';
      this.#position.forget();
    }
    this.#isReported = false; // reported again when it is, also after the reader was replaced
    this.#target = high;
    this.#low = low;
    this.#logEnd = high;
    const from = this.#position.begin({ low, high }, this.#known);
    this.#advanced();
    return from;
  }

  /**
   * The lowest offset that must be read: an entry by which the log is recognised. Resolves when no append holds the
   * partition.
   */
  async neededFrom(): Promise<number> {
    await this.#held;
    return this.#position.neededFrom(this.#known);
  }

  /** Takes records in log order; those below `from` were skipped because they were not needed. */
  deliver(records: readonly LedgerRecord[], from = 0): void {
    if (records.length === 0 || !this.#isKept) return;
    const { index } = this.#options;
    const { isRecognised } = this.#position;
    const compared = this.#position.compare(records, from, this.#known);
    if (this.#position.isRecognised && !isRecognised) this.#options.onChange(this.partition);
    const objection = compared ?? applied(index, this.partition, records, this.#position.acceptedBelow);
    if (objection !== undefined) this.#object(objection);
    if (!this.#isKept) return; // it was objected to, or the store was replaced
    this.#position.passed(records, this.#known);
    this.#advanced();
  }

  /** The log contradicts the index: forgets the copy and restores it from the log. */
  invalidate(cause: string): void {
    const message = `ledger partition ${this.partition} has lost entries: ${cause}`;
    this.#restart(new IdallocError('LEDGER_TRUNCATED', message), cause);
  }

  /** The index lost its content: the partition is restored from the log. */
  restore(cause: string): void {
    if (this.#mode === 'stopped') return;
    const message = `ledger partition ${this.partition} is being restored from the log: ${cause}`;
    this.#restart(new IdallocError('INDEX_RESTORING', message), cause);
  }

  /**
   * Reading was interrupted, and the log may have lost its tail and grown again meanwhile. The copy may not be queried
   * until its last entry has been compared. Returns false if the copy is not in use, or is restored anyway. The state
   * is not reported as changed: nearly always the copy is found to be right a moment later.
   */
  doubt(): boolean {
    if (this.#mode !== 'kept') return false;
    this.#position.doubt();
    this.#life += 1;
    return true;
  }

  /** The log holds something that can't be read, up to this offset: the partition stops. */
  unreadable({ offset, why, cause }: Unreadable): void {
    if (!this.#isKept) return;
    const message = `ledger partition ${this.partition} stops at offset ${offset}: ${why}`;
    const error = new IdallocError('LEDGER_UNREADABLE', message, { cause });
    this.#mode = 'stopped';
    this.#stopped = { error, offset };
    this.#fail(error);
    this.#options.onStop(this.partition, error);
    this.#options.onChange(this.partition);
  }

  /**
   * Forgets some of the entries below `low`, the current start of the log; returns true while there is more to do.
   *
   * A partition whose unread entries were trimmed, or truncated at the log's end `high`, is restored again: with
   * nothing left to read, no delivery would reveal the loss, and the restore would never end. So is a stopped
   * partition, once the log no longer holds what was unreadable.
   */
  expire(low: number, high = Number.POSITIVE_INFINITY): boolean {
    if (this.#mode === 'lost' || this.#mode === 'absent') return false;
    if (Number.isFinite(high)) this.#logEnd = Math.max(this.#logEnd, high);
    const following = this.refusal === undefined;
    // A following copy may re-read an older entry, and is worth keeping; a restoring one must read every entry.
    const due = following ? this.#end : this.#position.expected;
    const target = following ? 0 : this.#target;
    const lost = lossLater({ low, high }, { due, target, unreadable: this.#stopped?.offset });
    if (lost !== undefined) this.invalidate(lost);
    return following && lost === undefined && this.#options.index.expire(this.partition, low);
  }

  #object(objection: Objection): void {
    if ('loss' in objection) this.invalidate(objection.loss);
    else this.unreadable(objection.unreadable);
  }

  #restart(error: IdallocError, cause: string): void {
    if (this.#mode === 'lost' || this.#mode === 'absent') return;
    this.#mode = 'lost';
    this.#stopped = undefined;
    this.#target = Number.POSITIVE_INFINITY;
    this.#life += 1;
    this.#fail(error);
    this.#options.onChange(this.partition);
    this.#options.onRestart(this.partition, cause);
  }

  #advanced(): void {
    const end = this.#end;
    this.#waiters.passed(end);
    if (this.refusal === undefined) this.#readers.passed(this.#position.expected);
    if (this.#isReported || !this.#position.isRecognised || end < this.#target) return;
    this.#isReported = true;
    this.#options.onChange(this.partition);
  }

  #fail(error: Error): void {
    this.#isReported = false;
    this.#waiters.fail(error);
    this.#readers.fail(error);
  }

  get #isKept(): boolean {
    return this.#mode === 'kept';
  }

  get #end(): number {
    return this.#options.index.end(this.partition);
  }

  get #known(): Held {
    return { end: this.#end, last: this.#options.index.last(this.partition) };
  }

  get #absent(): IdallocError {
    return new IdallocError('INDEX_RESTORING', `this worker has no copy of ledger partition ${this.partition} yet`);
  }
}

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** How long a caller waits for the reader. */
const REACH_TIMEOUT_MS = 10_000;

/** Callers that wait until a log has been read up to an offset. */
export class Waiters {
  readonly #waiting = new Set<Waiter>();

  /**
   * Resolves when everything below `offset` was read; rejects when reading fails first, or after 10 s with what was
   * read.
   */
  wait(offset: number, runtime: Pick<Runtime, 'schedule'>, wasRead: () => string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter = { offset, resolve, reject };
    this.#waiting.add(waiter);
    const timer = runtime.schedule(REACH_TIMEOUT_MS, () => {
      const message = `${wasRead()}, not ${offset}, within ${REACH_TIMEOUT_MS} ms`;
      reject(new IdallocError('INDEX_RESTORING', message));
    });
    return promise.finally(() => {
      timer.cancel();
      this.#waiting.delete(waiter);
    });
  }

  /** Everything below `end` was read. */
  passed(end: number): void {
    for (const { offset, resolve } of this.#waiting) if (offset <= end) resolve();
  }

  fail(error: Error): void {
    for (const { reject } of this.#waiting) reject(error);
  }
}
