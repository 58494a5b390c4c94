import { Mutex } from '../async/mutex.ts';
import type { Runtime } from '../async/runtime.ts';

/**
 * Records of a worker's partitions that are read in one turn of the event loop, about a millisecond of work. A small request needs about
 * six turns, and waits that long in each.
 */
export const RECORDS_PER_TURN = 200;
/** Steps of so few records never wait for their turn. */
const FEW_RECORDS = 20;

/**
 * Divides the work on records into turns of the event loop, so that heartbeats and other partitions go on beside any number
 * of records: one large step of all partitions together in each turn.
 */
export class RecordTurns {
  readonly #runtime: Pick<Runtime, 'nextTurn'>;
  /** Records of steps that began in this turn, or in turns in which none had to wait. */
  #begun = 0;
  readonly #turns = new Mutex();

  constructor(runtime: Pick<Runtime, 'nextTurn'>) {
    this.#runtime = runtime;
  }

  /** Resolves when a step of so many records, at most RECORDS_PER_TURN, may begin. */
  async take(records: number): Promise<void> {
    this.#begun += records;
    if (this.#begun <= RECORDS_PER_TURN || records <= FEW_RECORDS) return;
    await this.#turns.run(() => this.#runtime.nextTurn());
    this.#begun = records;
  }
}
