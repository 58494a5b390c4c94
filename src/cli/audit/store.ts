import { randomInt } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { hashKey } from '../../adapters/index/items.ts';
import { EntryKey, encodeNumbersKey } from '../../codec/ledger-key.ts';
import { describeError, IdallocError } from '../../errors.ts';
import {
  type Found,
  type FoundAnswer,
  type FoundBatch,
  type FoundLetter,
  type FoundNumbers,
  type FoundRequest,
  type Grouped,
  type IdRun,
  NUMBER_KINDS,
} from './found.ts';
import { unpackRanges } from './ids.ts';

/**
 * An audit compares things that lie far apart: a reply with an entry that was written a day before it, an ID with the
 * one below it, which another worker allocated. A map of them would take as much memory as there are requests, and they
 * may be hundreds of millions.
 *
 * So everything that is found goes to disk with a few numbers by which it is sorted later. SQLite sorts in files and
 * merges those, and the checks get the things in an order in which what is to be compared comes together; they hold no
 * more than one group of it.
 *
 * What one ID names must be in one group. A group is a hash of the ID and not the ID itself, which keeps the sorted
 * numbers short. So a few other IDs may share a group, and a check never takes a group for one ID. The hash has a
 * random seed: nobody can choose correlation IDs that all fall into one group, which would have to fit into memory.
 */
export class AuditStore implements Disposable {
  readonly #directory: string;
  readonly #db: DatabaseSync;
  readonly #seed = { low: randomInt(2 ** 32), high: randomInt(2 ** 32) };
  readonly #topics = new Names();
  readonly #found: AuditTable<Found>;
  readonly #numbers: AuditTable<FoundNumbers>;
  readonly #runs: AuditTable<IdRun>;
  readonly #addLetter: StatementSync;
  #letters = 0;
  #units = 0;
  #openRows = 0;

  /** Creates a directory in `parent`. */
  constructor(parent: string) {
    this.#directory = makeDirectory(parent);
    const db = new DatabaseSync(join(this.#directory, 'batches.sqlite'));
    this.#db = db;
    db.exec(`PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA temp_store = FILE; PRAGMA temp_store_directory = ${quoted(this.#directory)}; PRAGMA cache_size = -${CACHE_KIB};
      CREATE TABLE letter (partition, "offset", time, PRIMARY KEY (partition, "offset", time)) WITHOUT ROWID`);
    const topic = this.#topics.field;
    const order = ['place', 'address', 'firstPartition', 'firstOffset', 'isFirst'];
    this.#found = new AuditTable(db, 'found', order, { topic, replyTopic: topic, ...OF_FOUND });
    this.#numbers = new AuditTable(db, 'numbers', ['place'], { topic, ...OF_NUMBERS });
    this.#runs = new AuditTable(db, 'run', [], { topic, ...OF_RUNS });
    this.#addLetter = db.prepare('INSERT OR IGNORE INTO letter VALUES (?, ?, ?)');
    db.exec('BEGIN');
  }

  /** How many there are of what `add` got. */
  get size(): number {
    return this.#found.size;
  }

  add(found: FoundBatch | FoundAnswer | FoundRequest): void {
    const { topic, partition, offset, requestId, replyTopic, correlationId = requestId } = found;
    const isDecision = found.source === 'ledger';
    const isRequest = found.kind === 'request';
    // What is no request belongs to nothing but its dead letter.
    const isRejected = isRequest && found.rejected !== undefined;
    const group = this.#hashOf(isRejected ? Buffer.from(`${topic}/${partition}/${offset}`) : requestId);
    const isOwn = correlationId.equals(requestId);
    const to = this.#addressOf(isRequest ? (replyTopic ?? '') : topic, isOwn ? group : this.#hashOf(correlationId));
    const origin = isRequest ? found.origin : undefined;
    const first = origin ?? { partition, offset };
    const order = [
      2 * group + (isDecision ? 0 : 1),
      isDecision ? -1 : 2 * to + (isRequest ? 1 : 0),
      ...(isRequest ? [first.partition, first.offset, origin === undefined ? 1 : 0] : [0, 0, 0]),
    ];
    const { of } = 'of' in found ? found : {};
    this.#found.add(order, found, {
      ...{ ofOffset: of?.offset, ofHash: of?.hash, ofIsRenewal: of?.isRenewal },
      otherCorrelationId: isOwn ? undefined : correlationId,
    });
    this.#wrote();
  }

  /** A dead letter for a record of the request topic that is judged. */
  addLetter({ partition, offset, recordMs }: FoundLetter): void {
    this.#addLetter.run(partition, offset, recordMs ?? -1);
    this.#letters += 1;
    this.#wrote();
  }

  /**
   * All that `add` got, in groups that are numbered by `group`. What one ID names is in one group, perhaps with a few
   * others. Decisions come first in each group. Then, for each address of replies, come its replies and dead letters,
   * and then its requests, a forwarded copy before the request itself. Otherwise there is no order.
   */
  *grouped(): Generator<Grouped> {
    if (this.#letters > 0) this.#joinLetters();
    const all = this.#found.read('ORDER BY place, address, firstPartition, firstOffset, isFirst');
    for (const [[place = 0, address = 0, partition, offset, isFirst], stored] of all) {
      const { ofOffset, ofHash, ofIsRenewal, otherCorrelationId, ...fields } = stored;
      yield {
        ...{ group: Math.floor(place / 2), address: Math.floor(address / 2), ...fields },
        ...(fields.source !== 'ledger' && { correlationId: otherCorrelationId ?? fields.requestId }),
        ...(ofOffset !== undefined && { of: { offset: ofOffset, hash: ofHash, isRenewal: ofIsRenewal } }),
        ...(fields.kind === 'request' && isFirst === 0 && { origin: { partition, offset } }),
      } as unknown as Grouped;
    }
  }

  /** A letter says which record it is about, not what names the request. */
  #joinLetters(): void {
    this.#letters = 0;
    const same = 'source, topic, partition, "offset", requestId, otherCorrelationId, timeMs, replyTopic, count';
    this.#db.exec(`INSERT INTO found (place, address, kind, ${same})
      SELECT place, address - 1, ${KINDS.indexOf('death')}, ${same} FROM found f WHERE kind = ${KINDS.indexOf('request')} AND EXISTS
      (SELECT 1 FROM letter l WHERE l.partition = f.partition AND l."offset" = f."offset" AND l.time IN (-1, f.timeMs))`);
  }

  /** Equal for what goes to one topic under one correlation ID. */
  #addressOf(topic: string, hash: number): number {
    return (hash + 1_000_003 * this.#topics.numberOf(topic)) % 2 ** 43;
  }

  addNumbers(found: FoundNumbers): void {
    const group = this.#hashOf(encodeNumbersKey(found.sequence, found.requestId));
    this.#numbers.add([2 * group + (found.source === 'ledger' ? 0 : 1)], found);
    this.#wrote();
  }

  /** How many records with numbers there are. */
  get withNumbers(): number {
    return this.#numbers.size;
  }

  /**
   * All numbers in groups, numbered by `group`. Those of a correlation ID are in one group, perhaps with those of a few
   * others. Records of the ledger come first, in log order within each partition.
   */
  *groupedNumbers(): Generator<FoundNumbers & { readonly group: number }> {
    for (const [[place = 0], found] of this.#numbers.read('ORDER BY place, topic, partition, "offset"')) {
      yield { group: Math.floor(place / 2), ...(found as unknown as FoundNumbers) };
    }
  }

  /**
   * All of a sequence that begin with a number in this range, ordered by that, but for void ones, which nobody was
   * told.
   */
  *numbersBetween(sequence: string, from: number, to: number): Generator<FoundNumbers> {
    this.#db.exec('CREATE INDEX IF NOT EXISTS by_number ON numbers (sequence, first)');
    const where = `WHERE sequence = ? AND first BETWEEN ? AND ? AND kind <> ${NUMBER_KINDS.indexOf('void')} ORDER BY first`;
    for (const [, found] of this.#numbers.read(where, sequence, from, to)) yield found as unknown as FoundNumbers;
  }

  /** Adds the IDs of a batch, which differs from all others that are added. */
  addUnit({ source, topic, partition, offset, requestId, term, ranges: packed }: FoundBatch): void {
    this.#units += 1;
    const { step, ranges } = unpackRanges(packed);
    const of = { source, topic, partition, offset, requestId, term, unit: this.#units, step };
    for (const { first, count } of ranges) {
      this.#runs.add([], { ...of, first, last: first + BigInt(count - 1) * step });
      this.#wrote();
    }
  }

  get runs(): number {
    return this.#runs.size;
  }

  /** Returns all runs, ordered by their first ID. */
  *byFirstId(): Generator<IdRun> {
    for (const [, run] of this.#runs.read('ORDER BY first')) yield run as unknown as IdRun;
  }

  [Symbol.dispose](): void {
    this.#db.exec("PRAGMA temp_store_directory = ''"); // the setting is per process
    this.#db.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #hashOf(key: Buffer): number {
    return hashKey(EntryKey.of(key), this.#seed);
  }

  #wrote(): void {
    this.#openRows += 1;
    if (this.#openRows < MAX_OPEN_ROWS) return;
    this.#openRows = 0;
    this.#db.exec('COMMIT; BEGIN');
  }
}

const MAX_OPEN_ROWS = 50_000;
/** SQLite's cache size also limits the memory of a sort. */
const CACHE_KIB = 64 * 1024;

/** How a field of what was found lies in its column. */
interface Field {
  readonly column: 'INT' | 'TEXT' | 'BLOB';
  readonly put: (value: never) => SQLInputValue;
  readonly get: (stored: never) => unknown;
}

type FieldsOf = Readonly<Record<string, Field>>;

const NUMBER: Field = { column: 'INT', put: (value: number) => value, get: Number };
const BIG: Field = { column: 'INT', put: (value: bigint) => value, get: (stored: bigint) => stored };
const FLAG: Field = { column: 'INT', put: Number, get: (stored: number) => stored === 1 };
const TEXT: Field = { column: 'TEXT', put: (value: string) => value, get: (stored: string) => stored };
const BYTES: Field = {
  column: 'BLOB',
  put: (value: Buffer) => value,
  get: ({ buffer, byteOffset, byteLength }: Uint8Array) => Buffer.from(buffer, byteOffset, byteLength),
};

function oneOf(values: readonly string[]): Field {
  return { column: 'INT', put: (value: string) => values.indexOf(value), get: (stored) => values[Number(stored)] };
}

const KINDS = ['answer', 'death', 'request'];
const SOURCES = ['ledger', 'reply', 'request'];
const PLACE: FieldsOf = { source: oneOf(SOURCES), partition: NUMBER, offset: NUMBER, requestId: BYTES };

/** What is found of requests, in one table, since it is compared. */
const OF_FOUND: FieldsOf = {
  ...PLACE,
  ...{ kind: oneOf(KINDS), timeMs: NUMBER, count: NUMBER, sequence: TEXT, code: TEXT, term: NUMBER },
  otherCorrelationId: BYTES, // it is stored where it is not what names the request
  ...{ digest: BYTES, ranges: BYTES, doubtful: FLAG, again: FLAG },
  ...{ ofOffset: NUMBER, ofHash: BYTES, ofIsRenewal: FLAG },
  ...{ hash: BYTES, home: NUMBER, replyPartition: NUMBER, isResent: FLAG, rejected: TEXT },
};
const OF_NUMBERS: FieldsOf = {
  ...PLACE,
  ...{ sequence: TEXT, first: NUMBER, count: NUMBER, step: NUMBER, format: TEXT },
  ...{ timeMs: NUMBER, kind: oneOf(NUMBER_KINDS), end: NUMBER },
};
const OF_RUNS: FieldsOf = { ...PLACE, first: BIG, last: BIG, step: BIG, unit: NUMBER, term: NUMBER };

/** Numbers the names of topics, so that each row has a small number instead of a name. */
class Names {
  readonly #names: string[] = [];
  readonly #numbers = new Map<string, number>();
  readonly field: Field = {
    column: 'INT',
    put: (name: string) => this.numberOf(name),
    get: (stored) => this.#names[Number(stored)],
  };

  numberOf(name: string): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    this.#numbers.set(name, this.#names.length);
    return this.#names.push(name) - 1;
  }
}

type Fields = Readonly<Record<string, unknown>>;

/** Things on disk, with numbers by which they are sorted. What is undefined in a thing is left out when it is read. */
class AuditTable<T extends object> {
  readonly #db: DatabaseSync;
  readonly #name: string;
  readonly #order: readonly string[];
  readonly #fields: readonly (readonly [name: string, field: Field])[];
  readonly #insert: StatementSync;
  readonly #hasBig: boolean;
  size = 0;

  constructor(db: DatabaseSync, name: string, order: readonly string[], fields: FieldsOf) {
    this.#db = db;
    this.#name = name;
    this.#order = order;
    this.#fields = Object.entries(fields);
    this.#hasBig = Object.values(fields).includes(BIG);
    const columns = [...order, ...Object.keys(fields)];
    db.exec(`CREATE TABLE ${name} (${columns.map((one) => `"${one}" ${fields[one]?.column ?? 'INT'}`).join(', ')})`);
    this.#insert = db.prepare(`INSERT INTO ${name} VALUES (${columns.map(() => '?').join(', ')})`);
  }

  /** `more`: fields that the thing does not have by itself. */
  add(order: readonly number[], thing: T, more: Fields = {}): void {
    const values: SQLInputValue[] = [...order];
    for (const [name, { put }] of this.#fields) {
      const value = (thing as Fields)[name] ?? more[name];
      values.push(value === undefined ? null : put(value as never));
    }
    this.#insert.run(...values);
    this.size += 1;
  }

  /** `which`: SQL for the condition and the order. */
  *read(
    which: string,
    ...values: readonly SQLInputValue[]
  ): Generator<readonly [order: readonly number[], thing: Fields]> {
    const select = this.#db.prepare(`SELECT * FROM ${this.#name} ${which}`);
    select.setReturnArrays(true);
    select.setReadBigInts(this.#hasBig);
    for (const row of select.iterate(...values) as Iterable<unknown>) {
      const stored = row as readonly number[];
      const thing: Record<string, unknown> = {};
      let column = this.#order.length;
      for (const [field, { get }] of this.#fields) {
        const value: unknown = stored[column];
        if (value !== null) thing[field] = get(value as never);
        column += 1;
      }
      yield [stored, thing];
    }
  }
}

/**
 * Runs `use` with a store in `parent`, which is deleted afterwards.
 *
 * @throws IdallocError CONFIG_INVALID if no directory can be created, INDEX_UNUSABLE if the store fails, as on a full
 * disk.
 */
export async function withStore<T>(parent: string, use: (store: AuditStore) => Promise<T>): Promise<T> {
  using store = new AuditStore(parent);
  try {
    return await use(store);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SQLITE_ERROR') throw error;
    const message = `batches could not be sorted in ${parent}: ${describeError(error)}; free disk space there, or set --temp-dir`;
    throw new IdallocError('INDEX_UNUSABLE', message, { cause: error });
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

function makeDirectory(parent: string): string {
  try {
    return mkdtempSync(join(parent, 'idalloc-audit-'));
  } catch (error) {
    const message = `batches can't be sorted in ${parent}: ${describeError(error)}; set --temp-dir to a writable directory`;
    throw new IdallocError('CONFIG_INVALID', message, { cause: error });
  }
}
