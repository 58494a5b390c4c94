import { Mutex } from '../async/mutex.ts';
import type { Runtime } from '../async/runtime.ts';
import { PRICES_US } from './accounts.ts';
import type { RequestRecord } from './ports.ts';

/**
 * Records of a worker's partitions that are read in one turn of the event loop, about a millisecond of work. A small
 * request needs about six turns, and waits that long in each.
 */
export const RECORDS_PER_TURN = 200;
/** Steps of so few records never wait for their turn. */
const FEW_RECORDS = 20;
/**
 * Bulk rests so long before each step, which takes about a millisecond, while others are served. The records of a dense
 * batch cost their sender next to nothing, but each 200 of them an append here and at the broker.
 */
const BULK_REST_MS = { many: 2, dense: 7 } as const;
/** A step that costs more than its records as ordinary requests rests longer in that proportion. */
const ORDINARY_STEP_US = RECORDS_PER_TURN * PRICES_US.request;
/** Others are expected for so long after the last ones came. */
const OTHERS_EXPECTED_MS = 1_000;

/**
 * Divides the work on records into turns of the event loop, so that heartbeats and other partitions go on beside any
 * number of records: one large step of all partitions together in each turn, and one step of bulk at a time.
 */
export class RecordTurns {
  readonly #runtime: Pick<Runtime, 'nextTurn' | 'sleep' | 'monotonicMs'>;
  /** Records of steps that began in this turn, or in turns in which none had to wait. */
  #begun = 0;
  readonly #turns = new Mutex();
  readonly #bulk = new Mutex();
  #othersUntilMs = Number.NEGATIVE_INFINITY;
  /** The price of the bulk since its last rest. */
  #bulkUs = 0;

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

  /** Bulk of this price was begun: what costs as much as several steps has to rest as long as they. */
  didBulk(us: number): void {
    this.#bulkUs += us;
  }

  /** The same for a step of bulk, which lets others go first. */
  async takeBulk(records: number, bulk: RequestRecord['bulk'] = 'many'): Promise<void> {
    await this.#bulk.run(() => {
      const areOthersExpected = this.#runtime.monotonicMs() < this.#othersUntilMs;
      const steps = Math.max(1, this.#bulkUs / ORDINARY_STEP_US);
      this.#bulkUs = 0;
      return areOthersExpected ? this.#runtime.sleep(steps * BULK_REST_MS[bulk]) : this.#runtime.nextTurn();
    });
    this.#begun = records;
  }
}
