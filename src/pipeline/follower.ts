import { digestEntry } from '../codec/ledger-digest.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { LedgerFollower, LedgerIndex, LedgerRecord, LogBounds } from './ports.ts';

export interface FollowerOptions {
  readonly index: LedgerIndex;
  readonly partitions: number;
  /** Calls back after so many milliseconds, unless cancelled first. */
  readonly setTimer: (run: () => void, delayMs: number) => { cancel(): void };
  /** The reader has to stop at the partition, ask for its bounds, call `begin` and read from there. */
  readonly onRestart: (partition: number, cause: string) => void;
  /** A partition was caught up, fell behind for a restore, or can't be read any more. */
  readonly onChange: () => void;
}

/** How long somebody waits for the reader before giving up. */
const REACH_TIMEOUT_MS = 10_000;

/**
 * Follows every ledger partition and keeps the index in step with the log.
 *
 * Modes of a partition:
 * - restoring: behind the end that the log had when reading began, or the index is not yet recognised as this log's; it
 *   may not be asked.
 * - following: at the end, or about to be; the index may be asked.
 * - stopped: the log holds something that can't be read. Nothing may be decided there until somebody mends it.
 *
 * Reading begins at the last entry applied, which must come back with the digest that the index stored. Every delivery
 * must start where the one before ended. Anything else means that the log lost entries or is another log: the partition
 * is wiped and restored, since what the index says below its end would otherwise be believed.
 */
export class Follower implements LedgerFollower {
  readonly #options: FollowerOptions;
  readonly #partitions: PartitionState[];

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#partitions = Array.from({ length: options.partitions }, () => new PartitionState());
  }

  /** Tells where reading has to begin, the log being as `bounds` say; wipes what the log can't confirm. */
  begin(partition: number, bounds: LogBounds): number {
    const { index } = this.#options;
    const state = this.#state(partition);
    const end = index.end(partition);
    const lastOffset = index.last(partition)?.offset ?? end;
    if (state.distrusted || end > bounds.high || end < bounds.low || lastOffset < bounds.low) {
      index.wipe(partition, bounds.low);
    }
    state.distrusted = false;
    state.target = bounds.high;
    state.recognised = index.last(partition) === undefined;
    return this.resume(partition);
  }

  /** Where reading goes on after the reader lost its place, e.g. by a rebalance. */
  resume(partition: number): number {
    const { index } = this.#options;
    const state = this.#state(partition);
    const last = index.last(partition);
    state.verify = last?.digest;
    state.expected = last?.offset ?? index.end(partition);
    this.#advanced(partition);
    return state.expected;
  }

  /** Takes records in log order as they were read. */
  deliver(partition: number, records: readonly LedgerRecord[]): void {
    const state = this.#state(partition);
    const [first] = records;
    const last = records.at(-1);
    if (first === undefined || last === undefined || state.distrusted || state.fault !== undefined) return;
    if (first.offset !== state.expected) {
      this.distrust(partition, `reading went on at offset ${first.offset} where ${state.expected} was due`);
      return;
    }
    if (state.verify !== undefined && !digestEntry(first).equals(state.verify)) {
      this.distrust(partition, `the entry at offset ${first.offset} is not the one that was applied before`);
      return;
    }
    state.verify = undefined;
    state.recognised = true;
    this.#apply(partition, state, records);
    state.expected = last.offset + 1;
    this.#advanced(partition);
  }

  distrust(partition: number, cause: string): void {
    const state = this.#state(partition);
    if (state.distrusted) return;
    state.distrusted = true;
    state.target = Number.POSITIVE_INFINITY;
    state.fail(new IdallocError('LEDGER_TRUNCATED', `ledger partition ${partition} has lost entries: ${cause}`));
    this.#options.onChange();
    this.#options.onRestart(partition, cause);
  }

  refusal(partition: number): IdallocError | undefined {
    const state = this.#state(partition);
    if (state.fault !== undefined) return state.fault;
    const end = this.#options.index.end(partition);
    if (!state.distrusted && state.recognised && end >= state.target) return undefined;
    const message = `ledger partition ${partition} is being restored: at offset ${end} of ${state.target}`;
    return new IdallocError('INDEX_RESTORING', message);
  }

  /** True once every partition that can be read is following. */
  caughtUp(): boolean {
    return this.#partitions.every((_, partition) => this.refusal(partition)?.code !== 'INDEX_RESTORING');
  }

  reached(partition: number, offset: number): Promise<void> {
    const state = this.#state(partition);
    if (state.fault !== undefined) return Promise.reject(state.fault);
    if (this.#options.index.end(partition) >= offset) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = this.#options.setTimer(() => {
        state.waiters.delete(waiter);
        const at = this.#options.index.end(partition);
        const message = `ledger partition ${partition} was read to offset ${at} only, not to ${offset}, in ${REACH_TIMEOUT_MS} ms`;
        reject(new IdallocError('INDEX_RESTORING', message));
      }, REACH_TIMEOUT_MS);
      const waiter: Waiter = { offset, resolve, reject, timer };
      state.waiters.add(waiter);
    });
  }

  /** An entry that can't be applied stops its partition: deciding without it could give a second batch. */
  #apply(partition: number, state: PartitionState, records: readonly LedgerRecord[]): void {
    try {
      this.#options.index.apply(partition, records);
    } catch (error) {
      const message = `ledger partition ${partition} stops: ${describeError(error)}`;
      state.fault = new IdallocError('LEDGER_UNREADABLE', message, { cause: error });
      state.fail(state.fault);
      this.#options.onChange();
    }
  }

  #advanced(partition: number): void {
    const state = this.#state(partition);
    const end = this.#options.index.end(partition);
    state.release(end);
    if (state.restored || !state.recognised || end < state.target) return;
    state.restored = true;
    this.#options.onChange();
  }

  #state(partition: number): PartitionState {
    const state = this.#partitions[partition];
    if (state === undefined) throw new RangeError(`the ledger has no partition ${partition}`);
    return state;
  }
}

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  readonly timer: { cancel(): void };
}

class PartitionState {
  /** Offset of the next record that the reader is to deliver. */
  expected = 0;
  /** Digest that the next record must have. */
  verify: Buffer | undefined;
  /** What the index held when reading began was found in the log. */
  recognised = false;
  /** The end to be reached before the index may be asked. */
  target = Number.POSITIVE_INFINITY;
  restored = false;
  distrusted = false;
  fault: IdallocError | undefined;
  readonly waiters = new Set<Waiter>();

  release(end: number): void {
    for (const waiter of this.waiters) {
      if (waiter.offset > end) continue;
      this.#end(waiter);
      waiter.resolve();
    }
  }

  fail(error: Error): void {
    this.restored = false;
    for (const waiter of this.waiters) {
      this.#end(waiter);
      waiter.reject(error);
    }
  }

  #end(waiter: Waiter): void {
    waiter.timer.cancel();
    this.waiters.delete(waiter);
  }
}
