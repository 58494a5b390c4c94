import { mkdtempDisposableSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import type { LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import { seeded } from '../support/seeded.ts';
import { heldBytes, keyOf, openIndex, records } from './index-entries.ts';
import { optionsOf } from './options.ts';

/**
 * Size and speed of the ledger index: restoring from log records, serving requests, look-ups, loading, expiry and
 * deletion, each with the longest time that one call blocked the process.
 */
const values = optionsOf(
  'bench:index',
  [
    'Measures the index of the ledger: bytes per entry on disk and in memory, rates, and the time of single calls.',
    'In the output, cpu stands for processor time: a rate per_cpu_s leaves out waiting for the disk and for the',
    'processor; max_cpu_ms is the most processor time of one call. A part is 500 requests that a worker serves together.',
  ],
  { entries: 1_000_000, partitions: 8, directory: tmpdir() },
  { directory: 'where the index is written, on the disk to be measured' },
);
const { partitions } = values;
const perPartition = Math.ceil(values.entries / partitions);
const entries = perPartition * partitions;
/** Entries that a reader applies at once, and entries that a worker appends at once. */
const READ = 1_000;
const PART = 500;
const LOOK_UPS = 400_000;
/** Keys of a part whose hash may collide with that of another key. */
const COLLISIONS = 2;

using temporary = mkdtempDisposableSync(join(values.directory, 'idalloc-index-bench-'));
const directory = temporary.path;
const open = () => openIndex(directory, partitions);

/** Measures the time of calls, in total and one by one. */
class Meter {
  readonly times: number[] = [];
  #totalMs = 0;
  #cpuMs = 0;
  #longestCpuMs = 0;

  run<T>(work: () => T): T {
    const before = process.threadCpuUsage();
    const started = performance.now();
    const result = work();
    const tookMs = performance.now() - started;
    const used = process.threadCpuUsage(before);
    this.times.push(tookMs);
    this.#totalMs += tookMs;
    const cpuMs = (used.user + used.system) / 1_000;
    this.#cpuMs += cpuMs;
    this.#longestCpuMs = Math.max(this.#longestCpuMs, cpuMs);
    return result;
  }

  perSecond(units: number): number {
    return Math.round((units / this.#totalMs) * 1_000);
  }

  /** The rate per second of processor time: what an idle core and a disk without latency would reach. */
  perCpuSecond(units: number): number {
    return Math.round((units / this.#cpuMs) * 1_000);
  }

  quantile(q: number): number {
    const sorted = this.times.toSorted((a, b) => a - b);
    return Number((sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0).toFixed(2));
  }

  get spread() {
    return {
      p50_ms: this.quantile(0.5),
      p999_ms: this.quantile(0.999),
      max_ms: this.quantile(1),
      max_cpu_ms: this.#longestCpuMs,
    };
  }
}

const rssMb = () => Math.round(process.memoryUsage.rss() / 2 ** 20);
const sizeOf = (file: string) => statSync(join(directory, file), { throwIfNoEntry: false })?.size ?? 0;
const diskBytes = () => sizeOf('ledger-index.sqlite') + sizeOf('ledger-index.sqlite-wal');

/** All records, `size` records of one partition at a time, partitions in turn. */
function* batches(size: number, from: number, to: number): Generator<readonly [number, LedgerRecord[]]> {
  for (let at = from; at < to; at += size) {
    for (let p = 0; p < partitions; p++) yield [p, records(p, at, Math.min(size, to - at))];
  }
}

/** Runs work that is done in steps to its end in each partition, and times each step. */
function inSteps(work: (partition: number) => boolean): Meter {
  const meter = new Meter();
  for (let p = 0; p < partitions; p++) while (meter.run(() => work(p)));
  return meter;
}

/** Times LOOK_UPS look-ups of the keys at these offsets; each part must find `expected` of its keys. */
function lookUps(index: SqliteIndex, offsetOf: (i: number) => number, expected: number): Meter {
  const meter = new Meter();
  for (let from = 0; from < LOOK_UPS; from += PART) {
    const p = (from / PART) % partitions;
    const keys = Array.from({ length: PART }, (_, i) => keyOf(p, offsetOf(from + i)));
    const found = meter.run(() => keys.filter((key) => index.placesOf(p, key).length > 0).length);
    if (Math.abs(found - expected) > COLLISIONS)
      throw new Error(`${found} of ${PART} keys were found, ${expected} expected`);
  }
  return meter;
}

function main(): object {
  let index = open();
  const heldBefore = heldBytes();
  inSteps((p) => index.load(p));
  const restore = new Meter();
  for (const [p, read] of batches(READ, 0, perPartition)) restore.run(() => index.apply(p, read));
  const disk = diskBytes();
  const held = heldBytes() - heldBefore;

  const rng = seeded('look-ups');
  const random = () => rng.below(perPartition);
  const known = lookUps(index, random, PART);
  const unknown = lookUps(index, (i) => perPartition * 9 + i, 0);

  const work = new Meter();
  const worked = Math.min(100_000, perPartition);
  for (const [p, part] of batches(PART, perPartition, perPartition + worked)) {
    work.run(() => {
      const known = part.filter(({ key }) => index.placesOf(p, key as Buffer).length > 0);
      const firsts = new Set<number>();
      index.apply(p, part, firsts);
      if (known.length + firsts.size !== part.length || known.length > COLLISIONS)
        throw new Error('a new key was found in the index: keys repeat, or hashes collide too often');
    });
  }
  const rss = rssMb();
  index[Symbol.dispose]();

  index = open();
  const load = inSteps((p) => index.load(p));
  const isOdd = (p: number) => p % 2 === 1;
  const expire = inSteps((p) => isOdd(p) && index.expire(p, perPartition));
  const drop = inSteps((p) => !isOdd(p) && index.drop(p));
  index[Symbol.dispose]();
  return {
    entries,
    partitions,
    disk_bytes_per_entry: Number((disk / entries).toFixed(2)),
    memory_bytes_per_entry: Number((held / entries).toFixed(2)),
    restore_entries_per_s: restore.perSecond(entries),
    restore_entries_per_cpu_s: restore.perCpuSecond(entries),
    unknown_lookups_per_s: unknown.perSecond(LOOK_UPS),
    unknown_lookups_per_cpu_s: unknown.perCpuSecond(LOOK_UPS),
    known_lookups_per_s: known.perSecond(LOOK_UPS),
    parts_of_500: { entries_per_s: work.perSecond(worked * partitions), ...work.spread },
    apply: restore.spread,
    load: { steps: load.times.length, total_ms: Math.round(load.times.reduce((a, b) => a + b)), ...load.spread },
    expire: { steps: expire.times.length, ...expire.spread },
    drop: { steps: drop.times.length, ...drop.spread },
    rss_mb: rss,
  };
}

process.stdout.write(`${JSON.stringify(main(), null, values.json ? undefined : 2)}\n`);
