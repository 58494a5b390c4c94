import { mkdtempDisposableSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { fillers, heldBytes, keyOf, openIndex, records } from './index-entries.ts';
import { LAST_RUN_ENTRIES, writeLastRuns } from './index-runs.ts';

/** What one more request costs the index of a partition that has this many entries. */
export interface IndexCosts {
  readonly entries: number;
  /** Processor time to look up a new key, in µs. */
  readonly lookUpUs: number;
  /** Processor time to look up a new key, and to apply its entry afterwards, in µs. */
  readonly requestUs: number;
  readonly diskBytesEach: number;
  readonly memoryBytesEach: number;
  /** Processor time to open the partition on disk, and of the longest of its steps, which block the process. */
  readonly loadMs: number;
  readonly longestStepMs: number;
}

/** Requests that a worker serves together, and entries that a reader applies together. */
const PART = 500;
const READ = 1_000;
/** So many that a round takes some hundred ms: some machines count processor time in steps of 4 ms. */
const PARTS = 160;
/** Each measurement is repeated, and the least counts: what is above it others have caused. */
const ROUNDS = 8;
/** Keys whose hash may collide with that of another key, in a part. */
const COLLISIONS = 2;
const KEYS = PART * PARTS;

/**
 * Makes a partition of each of these sizes, and measures what a request costs there. Whole runs of the last level are
 * written as such; the entries after them come in as those of a ledger do. The sizes take turns, since whatever else
 * the machine does changes from one minute to the next.
 */
export function indexGrowth(sizes: readonly number[], say: (line: string) => void): readonly IndexCosts[] {
  using temporary = mkdtempDisposableSync(join(tmpdir(), 'idalloc-index-growth-'));
  const directories = sizes.map((entries) => join(temporary.path, `${entries}`));
  const served = servedInTurns(sizes, directories, say);
  return sizes.map((entries, i) => {
    const costs = { entries, ...(served[i] as Served), ...opened(directories[i] as string) };
    say(JSON.stringify(costs));
    return costs;
  });
}

type Served = Pick<IndexCosts, 'lookUpUs' | 'requestUs'>;

/** The least costs of the rounds at each size. */
function servedInTurns(
  sizes: readonly number[],
  directories: readonly string[],
  say: (line: string) => void,
): readonly Served[] {
  const indexes: SqliteIndex[] = [];
  try {
    for (const [i, entries] of sizes.entries()) {
      indexes.push(filled(directories[i] as string, entries));
      say(`filled with ${entries} entries`);
    }
    const rounds = Array.from({ length: ROUNDS }, () => indexes.map(round));
    return indexes.map((_, i) => {
      const least = (figure: keyof Served) => Math.min(...rounds.map((one) => (one[i] as Served)[figure]));
      return { lookUpUs: least('lookUpUs'), requestUs: least('requestUs') };
    });
  } finally {
    for (const index of indexes) index[Symbol.dispose]();
  }
}

function filled(directory: string, entries: number): SqliteIndex {
  const empty = openIndex(directory, 1);
  load(empty);
  empty[Symbol.dispose]();
  writeLastRuns(directory, Math.floor(entries / LAST_RUN_ENTRIES));
  const index = openIndex(directory, 1);
  load(index);
  for (let at = index.end(0); at < entries; at = index.end(0)) {
    index.apply(0, fillers(at, Math.min(READ, entries - at)));
  }
  return index;
}

/** What the index takes when it is opened again. */
function opened(directory: string): Omit<IndexCosts, 'entries' | keyof Served> {
  const index = openIndex(directory, 1);
  try {
    const before = heldBytes();
    const { loadMs, longestStepMs } = load(index);
    const end = index.end(0);
    const disk = statSync(join(directory, 'ledger-index.sqlite')).size;
    return { diskBytesEach: disk / end, memoryBytesEach: (heldBytes() - before) / end, loadMs, longestStepMs };
  } finally {
    index[Symbol.dispose]();
  }
}

function load(index: SqliteIndex): Pick<IndexCosts, 'loadMs' | 'longestStepMs'> {
  const steps: number[] = [];
  for (let hasMore = true; hasMore; ) {
    const work = () => {
      hasMore = index.load(0);
    };
    steps.push(cpuUsOf(work) / 1_000);
  }
  return { loadMs: steps.reduce((sum, ms) => sum + ms), longestStepMs: Math.max(...steps) };
}

/** Looks up keys that the index does not have, then serves as many requests as a worker does. */
function round(index: SqliteIndex): Served {
  const end = index.end(0);
  const strangers = Array.from({ length: KEYS }, (_, i) => keyOf(1, end + i));
  const lookUpUs = cpuUsOf(() => {
    for (const key of strangers) index.placesOf(0, key);
  });
  const parts = Array.from({ length: PARTS }, (_, nth) => records(0, end + nth * PART, PART));
  const requestUs = cpuUsOf(() => {
    for (const part of parts) {
      let known = 0;
      for (const { key } of part) known += Math.sign(index.placesOf(0, key as Buffer).length);
      const firsts = new Set<number>();
      index.apply(0, part, firsts);
      if (firsts.size < PART - COLLISIONS || known > COLLISIONS) throw new Error('new keys were found in the index');
    }
  });
  return { lookUpUs: lookUpUs / KEYS, requestUs: requestUs / KEYS };
}

function cpuUsOf(work: () => void): number {
  const before = process.threadCpuUsage();
  work();
  const { user, system } = process.threadCpuUsage(before);
  return user + system;
}
