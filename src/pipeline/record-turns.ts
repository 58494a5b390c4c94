import { Mutex } from '../async/mutex.ts';
import type { Runtime } from '../async/runtime.ts';

/**
 * Records of a worker's partitions that are read in one turn of the event loop, about a millisecond of work. A small
 * request needs about six turns, and waits that long in each.
 */
export const RECORDS_PER_TURN = 200;
/** Steps of so few records never wait for their turn. */
const FEW_RECORDS = 20;
/** What others go before rests at least so long before each step, while they are served. */
const LEAST_REST_MS = 1;
/** Others are expected for so long after the last ones came. */
const OTHERS_EXPECTED_MS = 1_000;

/**
 * Divides the work on records into turns of the event loop, so that heartbeats and other partitions go on beside any
 * number of records: one large step of all partitions together in each turn, and one step at a time of what others go
 * before.
 */
export class RecordTurns {
  readonly #runtime: Pick<Runtime, 'nextTurn' | 'sleep' | 'monotonicMs'>;
  /** Records of steps that began in this turn, or in turns in which none had to wait. */
  #begun = 0;
  readonly #turns = new Mutex();
  readonly #large = new Mutex();
  #othersUntilMs = Number.NEGATIVE_INFINITY;
  /** The price of what was begun since the last rest. */
  #unrestedUs = 0;

  constructor(runtime: Pick<Runtime, 'nextTurn' | 'sleep' | 'monotonicMs'>) {
    this.#runtime = runtime;
  }

  /** Resolves when a step of so many records, at most RECORDS_PER_TURN, may begin. */
  async take(records: number): Promise<void> {
    this.#othersUntilMs = this.#runtime.monotonicMs() + OTHERS_EXPECTED_MS;
    this.#begun += records;
    if (this.#begun <= RECORDS_PER_TURN || records <= FEW_RECORDS) return;
    await this.#turns.run(() => this.#runtime.nextTurn());
    this.#begun = records;
  }

  /** Work of this price was begun that others go before. */
  didLarge(us: number): void {
    this.#unrestedUs += us;
  }

  /** As `take`, for a step that others go before: the rest is as long as the price of what was begun since the last. */
  async takeLarge(records: number): Promise<void> {
    await this.#large.run(() => {
      const areOthersExpected = this.#runtime.monotonicMs() < this.#othersUntilMs;
      const restMs = Math.max(LEAST_REST_MS, this.#unrestedUs / 1_000);
      this.#unrestedUs = 0;
      return areOthersExpected ? this.#runtime.sleep(restMs) : this.#runtime.nextTurn();
    });
    this.#begun = records;
  }
}
