import { Bag, type InBag } from '../../async/bag.ts';
import type { Runtime } from '../../async/runtime.ts';
import { timeLimit } from '../../async/waiting.ts';
import { KafkaError } from './kafka-error.ts';

interface Wait extends InBag {
  readonly end: (error: Error) => void;
}

/** All pending waits, so that each ends at its deadline, and all end when the cluster closes. */
export class Deadlines {
  readonly #runtime: Runtime;
  readonly #waits = new Bag<Wait>();
  #closed = false;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Settles as `work` does, rejects with `late()` past the deadline, a `timeLimit`, or rejects with CLOSED. */
  within<T>(deadlineMs: number, work: Promise<T>, late: () => Error): Promise<T> {
    if (this.#closed) {
      work.catch(() => undefined); // its result is not needed
      return Promise.reject(closedError());
    }
    return new Promise<T>((resolve, reject) => {
      const timer = timeLimit(this.#runtime, this.#left(deadlineMs), () => end(late()));
      const settle = () => {
        timer.cancel();
        this.#waits.remove(wait);
      };
      const end = (error: Error) => {
        settle();
        reject(error);
      };
      const wait = { place: 0, end };
      this.#waits.add(wait);
      work.then((value) => {
        settle();
        resolve(value);
      }, end);
    });
  }

  /** Resolves at `timeMs`; rejects with CLOSED. */
  until(timeMs: number): Promise<void> {
    if (this.#closed) return Promise.reject(closedError());
    return new Promise<void>((resolve, reject) => {
      const timer = this.#runtime.schedule(this.#left(timeMs), () => {
        this.#waits.remove(wait);
        resolve();
      });
      const end = (error: Error) => {
        timer.cancel();
        this.#waits.remove(wait);
        reject(error);
      };
      const wait = { place: 0, end };
      this.#waits.add(wait);
    });
  }

  close(): void {
    this.#closed = true;
    for (const { end } of [...this.#waits]) end(closedError());
  }

  #left(timeMs: number): number {
    return Math.max(0, timeMs - this.#runtime.monotonicMs());
  }
}

export function closedError(): KafkaError {
  return new KafkaError('CLOSED', 'the connections to Kafka were closed');
}
