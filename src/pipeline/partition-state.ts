import { IdallocError } from '../errors.ts';
import type { LogBounds } from './ports.ts';

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  readonly timer: { cancel(): void };
}

/** How far a copy of a ledger partition is. */
export type CopyProgress =
  | { readonly state: 'absent' }
  | {
      readonly state: 'restoring' | 'following' | 'stopped';
      /** It was found to be of this log: until then it may be another one's. */
      readonly isRecognised: boolean;
      /** The offset after the last entry that it has. */
      readonly end: number;
      /** Where the log ended when that was last looked at. */
      readonly logEnd: number;
    };

/** A copy that is there, and of which partition. */
export type KeptCopy = Exclude<CopyProgress, { readonly state: 'absent' }> & { readonly partition: number };

/** How reading of one ledger partition stands, and who waits for it. */
export class PartitionState {
  /** The index has a copy of the partition, and may be asked about it. */
  hasCopy = false;
  /** Rises whenever the partition is to be restored. */
  epoch = 0;
  /** The last end of the log that a broker named. */
  logEnd = 0;
  /** Offset of the next record that the reader is to deliver. */
  expected = 0;
  /** What the index held when reading began was found in the log. */
  recognised = false;
  /** Where the log started when reading began. */
  low = 0;
  /** What lies below was in the log when reading began with nothing: it is no news, whatever it tells of the log. */
  acceptedBelow = 0;
  /** The end to be reached before the index may be asked. */
  target = Number.POSITIVE_INFINITY;
  restored = false;
  invalidated = false;
  /** Why the partition stands still, and the last offset of what can't be read. */
  stopped: { readonly fault: IdallocError; readonly offset: number } | undefined;
  /** Resolves when the append under way, if there is one, needs no more patience. */
  held: Promise<void> | undefined;
  readonly waiters = new Set<Waiter>();

  /** Resolves when the copy reaches the offset; rejects when it fails before, or `startTimer` gives up. */
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

  /** Reading begins. What the index kept is still to be recognised, unless the log goes on right behind it. */
  begin({ low, high }: LogBounds, isKept: boolean, continues: boolean): void {
    this.invalidated = false;
    this.restored = false; // told anew when it is, also after a reader that was replaced
    this.low = low;
    this.target = high;
    this.logEnd = high;
    this.recognised = !isKept || continues;
    this.acceptedBelow = isKept ? 0 : high;
  }

  /** Of a copy that is there and ends at `end`. */
  progress(end: number, isFollowing: boolean): CopyProgress {
    const state = this.stopped !== undefined ? 'stopped' : isFollowing ? 'following' : 'restoring';
    const isRecognised = this.recognised && !this.invalidated;
    return { state, isRecognised, end, logEnd: Math.max(this.logEnd, end) };
  }

  /** There is no copy any more. */
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

/** What whoever asks for a partition without a copy is refused with. */
export function absent(partition: number): IdallocError {
  return new IdallocError('INDEX_RESTORING', `this worker has no copy of ledger partition ${partition} yet`);
}
