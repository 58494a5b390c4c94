import { IdallocError } from '../errors.ts';
import type { LogBounds } from '../ledger/ports.ts';

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  readonly timer: { cancel(): void };
}

/** The progress of a copy of a ledger partition. */
export type CopyProgress =
  | { readonly state: 'absent' }
  | {
      readonly state: 'restoring' | 'following' | 'stopped';
      /** The copy is known to belong to this log; until then it may belong to another one. */
      readonly isRecognised: boolean;
      /** The offset after the last entry that it has. */
      readonly end: number;
      /** The last known end of the log. */
      readonly logEnd: number;
    };

/** An existing copy, with its partition. */
export type KeptCopy = Exclude<CopyProgress, { readonly state: 'absent' }> & { readonly partition: number };

/** The state of reading one ledger partition, and the callers that wait for it. */
export class FollowedLedger {
  /** The index has a copy of the partition. */
  hasCopy = false;
  /** Rises whenever the partition is to be restored. */
  epoch = 0;
  /** The last end of the log that a broker reported. */
  logEnd = 0;
  /** Offset of the next record that the reader must deliver. */
  expected = 0;
  /** The entries that the index held when reading started were found in the log. */
  recognised = false;
  /** The start of the log when reading started. */
  low = 0;
  /** Entries below were already in the log when an empty copy started reading: a loss that they reveal is not new. */
  acceptedBelow = 0;
  /** The end that must be reached before the index may be queried. */
  target = Number.POSITIVE_INFINITY;
  restored = false;
  invalidated = false;
  /** Why the partition is stopped, and the last unreadable offset. */
  stopped: { readonly error: IdallocError; readonly offset: number } | undefined;
  /** Resolves when the append in progress, if any, no longer holds up reading. */
  held: Promise<void> | undefined;
  readonly waiters = new Set<Waiter>();

  /** Resolves when the copy reaches the offset; rejects when the copy fails first or the timer fires. */
  wait(offset: number, startTimer: (giveUp: (error: Error) => void) => { cancel(): void }): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = (error: Error) => {
        this.waiters.delete(waiter);
        reject(error);
      };
      const waiter: Waiter = { offset, resolve, reject, timer: startTimer(giveUp) };
      this.waiters.add(waiter);
    });
  }

  release(end: number): void {
    for (const waiter of this.waiters) {
      if (waiter.offset > end) continue;
      this.#end(waiter);
      waiter.resolve();
    }
  }

  /** Reading starts. What the index kept must still be recognised, unless the log starts right where it ends. */
  begin({ low, high }: LogBounds, isKept: boolean, continues: boolean): void {
    this.invalidated = false;
    this.restored = false; // reported again when it is, also after the reader was replaced
    this.low = low;
    this.target = high;
    this.logEnd = high;
    this.recognised = !isKept || continues;
    this.acceptedBelow = isKept ? 0 : high;
  }

  /** The progress of an existing copy that ends at `end`. */
  progress(end: number, isFollowing: boolean): CopyProgress {
    const state = this.stopped !== undefined ? 'stopped' : isFollowing ? 'following' : 'restoring';
    const isRecognised = this.recognised && !this.invalidated;
    return { state, isRecognised, end, logEnd: Math.max(this.logEnd, end) };
  }

  /** The copy is gone. */
  reset(): void {
    this.hasCopy = false;
    this.epoch += 1;
    this.target = Number.POSITIVE_INFINITY;
    this.recognised = false;
    this.invalidated = false;
    this.stopped = undefined;
    this.held = undefined;
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

/** The error for a partition without a copy. */
export function absent(partition: number): IdallocError {
  return new IdallocError('INDEX_RESTORING', `this worker has no copy of ledger partition ${partition} yet`);
}
