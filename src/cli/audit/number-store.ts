import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { encodeNumbersKey } from '../../codec/ledger-key.ts';
import type { NumberRun } from '../../core/sequence.ts';
import { blobOf, type StoreTools } from './found-store.ts';
import type { BatchLocation } from './location.ts';

/**
 * What a record with numbers is: a reply (`told`), one that repeats what was decided before (`again`), a record of the ledger that decides, its renewal, one that lies elsewhere than it was
 * written for and so decides nothing (`void`), or a renewal of what the beginning of the log may have had, which may not be the first
 * (`doubtful`).
 */
const KINDS = ['told', 'again', 'decided', 'renewed', 'void', 'doubtful'] as const;
type NumbersKind = (typeof KINDS)[number];

/** Numbers of one correlation ID, as they were found in the ledger or in a reply. */
export interface FoundNumbers extends BatchLocation, NumberRun {
  readonly sequence: string;
  readonly format: string;
  /** The record's timestamp. */
  readonly timeMs: number;
  readonly kind: NumbersKind;
  /** Ledger: where its writer's index ended. */
  readonly end: number;
}

type Row = [
  place: number,
  sequence: string,
  key: Uint8Array,
  topic: number,
  part: number,
  off: number,
  first: number,
  count: number,
  step: number,
  format: string,
  time: number,
  kind: number,
  end: number,
];

/** Numbers on disk, returned by correlation ID. */
export class NumberStore {
  readonly #db: DatabaseSync;
  readonly #tools: StoreTools;
  readonly #add: StatementSync;
  #size = 0;

  constructor(db: DatabaseSync, tools: StoreTools) {
    this.#db = db;
    this.#tools = tools;
    db.exec(`CREATE TABLE numbers (place INT, sequence TEXT, key BLOB, topic INT, part INT, off INT,
      first INT, count INT, step INT, format TEXT, time INT, kind INT, "end" INT)`);
    this.#add = db.prepare('INSERT INTO numbers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
  }

  get size(): number {
    return this.#size;
  }

  add({ source, topic, partition, offset, requestId, ...found }: FoundNumbers): void {
    const { sequence, first, count, step, format, timeMs, kind, end } = found;
    const place = 2 * this.#tools.hashOf(encodeNumbersKey(sequence, requestId)) + (source === 'ledger' ? 0 : 1);
    const where = [this.#tools.topicNumber(topic), partition, offset] as const;
    this.#add.run(place, sequence, requestId, ...where, first, count, step, format, timeMs, KINDS.indexOf(kind), end);
    this.#size += 1;
    this.#tools.wrote();
  }

  /**
   * All numbers in groups, numbered by `group`. Those of a correlation ID are in one group, perhaps with those of a few others. Records
   * of the ledger come first, in log order within each partition.
   */
  *grouped(): Generator<FoundNumbers & { readonly group: number }> {
    const select = this.#db.prepare('SELECT * FROM numbers ORDER BY place, topic, part, off');
    select.setReturnArrays(true);
    for (const row of select.iterate() as Iterable<unknown>) {
      yield { group: Math.floor((row as Row)[0] / 2), ...this.#found(row as Row) };
    }
  }

  /** All of a sequence that begin with a number in this range, ordered by that, but for void ones, which nobody was told. */
  *between(sequence: string, from: number, to: number): Generator<FoundNumbers> {
    this.#db.exec('CREATE INDEX IF NOT EXISTS by_number ON numbers (sequence, first)');
    const select = this.#db.prepare(
      `SELECT * FROM numbers WHERE sequence = ? AND first BETWEEN ? AND ? AND kind <> ${KINDS.indexOf('void')} ORDER BY first`,
    );
    select.setReturnArrays(true);
    for (const row of select.iterate(sequence, from, to) as Iterable<unknown>) yield this.#found(row as Row);
  }

  #found(row: Row): FoundNumbers {
    const [place, sequence, key, topic, partition, offset, first, count, step, format, timeMs, kind, end] = row;
    const requestId = blobOf(key);
    const source = place % 2 === 0 ? 'ledger' : 'reply';
    const where = { source, topic: this.#tools.topicAt(topic), partition, offset, requestId } as const;
    return { ...where, sequence, first, count, step, format, timeMs, kind: KINDS[kind] ?? 'told', end };
  }
}
