import { mkdtempDisposableSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { heldBytes, keyOf, openIndex, records } from './index-entries.ts';

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
const PARTS = 40;
/** Each measurement is repeated, and the least counts: what is above it others have caused. */
const ROUNDS = 7;
/** Keys whose hash may collide with that of another key, in a part. */
const COLLISIONS = 2;
const KEYS = PART * PARTS;

/** Fills one partition to each of these sizes, which rise, and measures what a request costs there. */
export function indexGrowth(sizes: readonly number[], say: (line: string) => void): readonly IndexCosts[] {
  using temporary = mkdtempDisposableSync(join(tmpdir(), 'idalloc-index-growth-'));
  const directory = temporary.path;
  let index = openIndex(directory, 1);
  try {
    load(index);
    return sizes.map((entries) => {
      for (let at = index.end(0); at < entries; at = index.end(0)) {
        index.apply(0, records(0, at, Math.min(READ, entries - at)));
      }
      const rounds = Array.from({ length: ROUNDS }, () => round(index));
      index[Symbol.dispose]();
      index = openIndex(directory, 1);
      const before = heldBytes();
      const { loadMs, longestStepMs } = load(index);
      const held = heldBytes() - before;
      const disk = statSync(join(directory, 'ledger-index.sqlite')).size;
      const least = (figure: 'lookUpUs' | 'requestUs') => Math.min(...rounds.map((one) => one[figure]));
      const costs = {
        entries,
        lookUpUs: least('lookUpUs'),
        requestUs: least('requestUs'),
        diskBytesEach: disk / index.end(0),
        memoryBytesEach: held / index.end(0),
        loadMs,
        longestStepMs,
      };
      say(JSON.stringify(costs));
      return costs;
    });
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
function round(index: SqliteIndex): Pick<IndexCosts, 'lookUpUs' | 'requestUs'> {
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
