import { Mutex } from '../async/mutex.ts';
import type { Runtime } from '../async/runtime.ts';
import { releaseAfter, Slots } from '../async/slots.ts';

/**
 * Records of a worker's partitions that are read in one turn of the event loop, about a millisecond of work. A small
 * request needs about six turns, and waits that long in each.
 */
export const RECORDS_PER_TURN = 200;
/** Steps of so few records never wait for their turn. */
const FEW_RECORDS = 20;
/** Records that take longer to read, as long or unusual ones do, get more turns. */
const TURN_MS = 1;
/**
 * What others go before rests so many times as long as the event loop worked for it. So all of it together takes an
 * eighth of the loop, as much as an account may use, whatever its price.
 */
const RESTS = 7;
const REST_MS = { least: 1, most: 250 };
/** After so long the next piece may begin: a broker that is slow to answer one does not hold up the others. */
const HELD_MS = 100;
/** Others are expected for so long after the last ones came. */
const OTHERS_EXPECTED_MS = 1_000;

type TurnsRuntime = Pick<Runtime, 'nextTurn' | 'sleep' | 'schedule' | 'monotonicMs' | 'busyMs'>;

/**
 * Divides the work on records into turns of the event loop, so that heartbeats and other partitions go on beside any
 * number of records: one large step of all partitions together in each turn. Of what others go before, one piece at a
 * time is in progress while they are served, so that its calls to brokers do not add up.
 */
export class RecordTurns {
  readonly #runtime: TurnsRuntime;
  /** Records of steps that began in this turn, or in turns in which none had to wait. */
  #begun = 0;
  readonly #turns = new Mutex();
  readonly #slot = new Slots(1);
  #othersUntilMs = Number.NEGATIVE_INFINITY;
  /** How much of what others go before is in progress. */
  #large = 0;
  /** For how long the loop worked for that since the last rest. */
  #unrestedMs = 0;
  /** Of the last rests and short pauses between pieces: how long they were, and how long others took of that. */
  readonly #others = { elapsedMs: 0, workedMs: 0 };
  #counted = { atMs: 0, busyMs: 0 };

  constructor(runtime: TurnsRuntime) {
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

  /** Reads the records of a step, in as many turns as they take. */
  async each<T>(records: readonly T[], read: (record: T) => void): Promise<void> {
    let untilMs = this.#runtime.monotonicMs() + TURN_MS;
    for (let i = 0; i < records.length; i += 1) {
      if (i % FEW_RECORDS === 0 && this.#runtime.monotonicMs() > untilMs) {
        await this.#turns.run(() => this.#runtime.nextTurn());
        untilMs = this.#runtime.monotonicMs() + TURN_MS;
      }
      read(records[i] as T);
    }
  }

  /** Does work that others go before, after a rest. */
  async large<T>(work: () => T | Promise<T>): Promise<T> {
    const release = await this.#slot.take();
    const areOthersExpected = await this.#rest();
    if (!areOthersExpected) release();
    const end = releaseAfter(this.#runtime, HELD_MS, release);
    this.#begun = RECORDS_PER_TURN;
    this.#large += 1;
    try {
      return await work();
    } finally {
      this.#count();
      this.#large -= 1;
      end();
    }
  }

  /** Resolves to whether others are expected. */
  async #rest(): Promise<boolean> {
    this.#count();
    const restMs = Math.min(REST_MS.most, Math.max(REST_MS.least, RESTS * this.#unrestedMs));
    this.#unrestedMs = 0;
    const areOthersExpected = this.#runtime.monotonicMs() < this.#othersUntilMs;
    await (areOthersExpected ? this.#runtime.sleep(restMs) : this.#runtime.nextTurn());
    this.#count();
    return areOthersExpected;
  }

  /** Divides what the loop did since the last count between others and what is in progress beside them. */
  #count(): void {
    const [atMs, busyMs] = [this.#runtime.monotonicMs(), this.#runtime.busyMs()];
    const [elapsedMs, workedMs] = [atMs - this.#counted.atMs, busyMs - this.#counted.busyMs];
    this.#counted = { atMs, busyMs };
    const others = this.#others;
    if (this.#large > 0) {
      const share = others.elapsedMs > 0 ? others.workedMs / others.elapsedMs : 0;
      this.#unrestedMs += Math.max(0, workedMs - share * elapsedMs);
    } else if (elapsedMs <= OTHERS_EXPECTED_MS) {
      const kept = others.elapsedMs > OTHERS_EXPECTED_MS ? 0.5 : 1;
      others.elapsedMs = kept * (others.elapsedMs + elapsedMs);
      others.workedMs = kept * (others.workedMs + workedMs);
    }
  }
}
