import { randomInt } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { hashKey } from '../../adapters/index/key-hash.ts';
import type { IdRange } from '../../core/generator.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { FoundAnswer, FoundBatch, FoundLetter, FoundRequest, Grouped } from './found.ts';
import { blobOf, FoundStore, type StoreTools } from './found-store.ts';
import type { BatchLocation } from './location.ts';
import { NumberStore } from './number-store.ts';

/** One run of IDs of a batch; `unit` identifies the batch. */
export interface IdRun extends BatchLocation {
  readonly first: bigint;
  readonly last: bigint;
  readonly step: bigint;
  readonly unit: number;
  /** As in its batch. */
  readonly term?: number | undefined;
}

const MAX_OPEN_ROWS = 50_000;
/** SQLite's cache size also limits the memory of a sort. */
const CACHE_KIB = 64 * 1024;

/**
 * Requests, batches, answers and numbers of sequences on disk, returned in order: SQLite sorts them in files and merges those, so memory
 * does not grow with their number. Disposing it deletes the files.
 */
export class AuditStore implements Disposable {
  readonly #directory: string;
  readonly #db: DatabaseSync;
  readonly #addRun: StatementSync;
  readonly #topics: string[] = [];
  readonly #topicNumbers = new Map<string, number>();
  readonly #found: FoundStore;
  readonly numbers: NumberStore;
  #openRows = 0;
  #runs = 0;

  /** Creates a directory in `parent`. */
  constructor(parent: string) {
    this.#directory = makeDirectory(parent);
    this.#db = new DatabaseSync(join(this.#directory, 'batches.sqlite'));
    this.#db.exec(`PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA temp_store = FILE; PRAGMA temp_store_directory = ${quoted(this.#directory)}; PRAGMA cache_size = -${CACHE_KIB};
      CREATE TABLE run (first INT, last INT, step INT, unit INT, source INT, topic INT, part INT, off INT, key BLOB,
        term INT)`);
    // Random, so that chosen correlation IDs can't collide in one group.
    const seed = { low: randomInt(2 ** 32), high: randomInt(2 ** 32) };
    const tools: StoreTools = {
      hashOf: (key) => hashKey(key, seed),
      topicNumber: (topic) => this.#numberOf(topic),
      topicAt: (number) => this.#topics[number] ?? '?',
      wrote: () => this.#wrote(),
    };
    this.numbers = new NumberStore(this.#db, tools);
    this.#found = new FoundStore(this.#db, tools);
    this.#db.exec('BEGIN');
    this.#addRun = this.#db.prepare('INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
  }

  add(found: FoundBatch | FoundAnswer | FoundRequest): void {
    this.#found.add(found);
  }

  /** A dead letter for a record of the request topic that is judged. */
  addLetter(letter: FoundLetter): void {
    this.#found.addLetter(letter);
  }

  /** How many there are of what `add` got. */
  get size(): number {
    return this.#found.size;
  }

  /** Everything that was added, as FoundStore.grouped returns it. */
  grouped(): Generator<Grouped> {
    return this.#found.grouped();
  }

  addRuns(
    location: BatchLocation & Pick<FoundBatch, 'term'>,
    unit: number,
    step: bigint,
    ranges: readonly IdRange[],
  ): void {
    const where = [
      location.source === 'ledger' ? 0 : 1,
      this.#numberOf(location.topic),
      location.partition,
      location.offset,
    ] as const;
    for (const { first, count } of ranges) {
      this.#addRun.run(
        first,
        first + BigInt(count - 1) * step,
        step,
        unit,
        ...where,
        location.requestId,
        location.term ?? -1,
      );
      this.#runs += 1;
      this.#wrote();
    }
  }

  get runs(): number {
    return this.#runs;
  }

  /** All runs, ordered by their first ID. */
  *byFirstId(): Generator<IdRun> {
    const select = this.#db.prepare('SELECT * FROM run ORDER BY first');
    select.setReturnArrays(true);
    select.setReadBigInts(true);
    for (const row of select.iterate() as Iterable<unknown>) {
      const [first, last, step, unit, source, topic, partition, offset, key, term] = row as RunRow;
      yield {
        first,
        last,
        step,
        unit: Number(unit),
        term: term < 0n ? undefined : Number(term),
        source: source === 0n ? 'ledger' : 'reply',
        topic: this.#topics[Number(topic)] ?? '?',
        partition: Number(partition),
        offset: Number(offset),
        requestId: blobOf(key),
      };
    }
  }

  [Symbol.dispose](): void {
    this.#db.exec("PRAGMA temp_store_directory = ''"); // the setting is per process
    this.#db.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #wrote(): void {
    this.#openRows += 1;
    if (this.#openRows < MAX_OPEN_ROWS) return;
    this.#openRows = 0;
    this.#db.exec('COMMIT; BEGIN');
  }

  #numberOf(topic: string): number {
    const known = this.#topicNumbers.get(topic);
    if (known !== undefined) return known;
    this.#topicNumbers.set(topic, this.#topics.length);
    return this.#topics.push(topic) - 1;
  }
}

type RunRow = [bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, Uint8Array, bigint];

/**
 * Runs `use` with a store in `parent`, which is deleted afterwards.
 *
 * @throws IdallocError CONFIG_INVALID if no directory can be created, INDEX_UNUSABLE if the store fails, as on a full disk.
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
