import type { Runtime } from '../../async/runtime.ts';
import type { NewRecord } from '../records/record.ts';

export interface AppendQueueOptions {
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'nextTurn'>;
  /** Appends the records as one batch. `waitedMs`: how long the first of them has waited. */
  readonly append: (records: readonly NewRecord[], waitedMs: number) => Promise<void>;
  /** The limits of one append; what is larger by itself is appended alone. */
  readonly maxRecords: number;
  readonly maxBytes: number;
  /** Whether an error may be due to one record: what shared the append is then appended alone. By default none is. */
  readonly isOfRecord?: (error: unknown) => boolean;
}

/** Records of one caller, which are appended together. */
interface QueuedAppend {
  readonly records: readonly NewRecord[];
  readonly bytes: number;
  readonly sinceMs: number;
  readonly isWanted: () => boolean;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * What is no longer wanted is purged when the queue is twice as long as after the last purge, and at least this long.
 */
const MIN_PURGE = 1_000;
const always = () => true;

/**
 * Appends to one partition, one at a time, in order. What arrives meanwhile shares the next append, so that many
 * callers need few calls: brokers serve the appends of a connection one after another, and a call takes each partition
 * once.
 *
 *   idle -> due: something arrived; the append starts in the next turn of the event loop, with what arrived in this one
 *   due -> appending: what waits, limited in number and bytes; then due again if more waits, else idle
 */
export class AppendQueue {
  readonly #options: AppendQueueOptions;
  #waiting: QueuedAppend[] = [];
  #purgeAt = MIN_PURGE;
  #isIdle = true;

  constructor(options: AppendQueueOptions) {
    this.#options = options;
  }

  /** Nothing waits, and nothing is being appended. */
  get isIdle(): boolean {
    return this.#isIdle;
  }

  /**
   * Resolves when the records are in the log, or are no longer wanted. Rejects with the error of their append. `bytes`:
   * the sum of their `maxBytesOf`.
   */
  add(records: readonly NewRecord[], bytes: number, isWanted: () => boolean = always): Promise<void> {
    return new Promise((resolve, reject) => {
      const sinceMs = this.#options.runtime.monotonicMs();
      this.#waiting.push({ records, bytes, sinceMs, isWanted, resolve, reject });
      if (this.#waiting.length >= this.#purgeAt) this.#purge();
      if (!this.#isIdle) return;
      this.#isIdle = false;
      void this.#drain();
    });
  }

  async #drain(): Promise<void> {
    await this.#options.runtime.nextTurn();
    for (let batch = this.#cut(); batch.length > 0; batch = this.#cut()) await this.#appendAll(batch);
    this.#isIdle = true;
  }

  async #appendAll(batch: readonly QueuedAppend[]): Promise<void> {
    const { append, runtime, isOfRecord } = this.#options;
    const [first] = batch;
    if (first === undefined) return;
    try {
      const records = batch.length === 1 ? first.records : batch.flatMap((one) => one.records);
      await append(records, runtime.monotonicMs() - first.sinceMs);
      for (const { resolve } of batch) resolve();
    } catch (error) {
      if (batch.length > 1 && isOfRecord?.(error) === true) for (const one of batch) await this.#appendAll([one]);
      else for (const { reject } of batch) reject(error);
    }
  }

  /** Removes what the next append takes from the queue. */
  #cut(): readonly QueuedAppend[] {
    const { maxRecords, maxBytes } = this.#options;
    const batch: QueuedAppend[] = [];
    let [records, bytes, taken] = [0, 0, 0];
    for (const one of this.#waiting) {
      if (one.isWanted()) {
        records += one.records.length;
        bytes += one.bytes;
        if (batch.length > 0 && (bytes > maxBytes || records > maxRecords)) break;
        batch.push(one);
      } else {
        one.resolve();
      }
      taken += 1;
    }
    this.#waiting.splice(0, taken);
    return batch;
  }

  #purge(): void {
    const isWanted = (one: QueuedAppend) => one.isWanted();
    for (const one of this.#waiting) if (!isWanted(one)) one.resolve();
    this.#waiting = this.#waiting.filter(isWanted);
    this.#purgeAt = Math.max(MIN_PURGE, 2 * this.#waiting.length);
  }
}
