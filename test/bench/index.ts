import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import {
  encodeLedgerEntry,
  encodeLedgerKey,
  type LedgerBatchEntry,
  requestHash,
} from '../../src/codec/ledger-entry.ts';
import { presetLayout } from '../../src/core/presets.ts';
import type { LedgerRecord } from '../../src/pipeline/ports.ts';

/**
 * Speed and memory of the ledger index: restore from what the log holds, batches of a worker at work, look-ups, opening
 * and expiry, with the longest time that each holds up the process. The restore rate is given as a ratio to inserting
 * the same rows into a plain table of the same store, which no index on SQLite can beat.
 */
const { values } = parseArgs({
  options: {
    entries: { type: 'string', default: '1000000' },
    partitions: { type: 'string', default: '8' },
    directory: { type: 'string', default: tmpdir() },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write('node test/bench/index.ts [--entries 1000000] [--partitions 8] [--directory /tmp] [--json]\n');
  process.exit(0);
}
const partitions = Number(values.partitions);
const perPartition = Math.ceil(Number(values.entries) / partitions);
const entries = perPartition * partitions;
/** What a reader applies at once, and what a worker appends at once. */
const READ = 1_000;
const PART = 500;
const LOOK_UPS = 100_000;

const directory = mkdtempSync(join(values.directory, 'idalloc-index-bench-'));
const layout = presetLayout('default');
const binding = { clusterId: 'bench', ledgerTopic: 'id.ledger', partitions };
const open = () =>
  new SqliteIndex(directory, binding, {
    onWiped: (cause) => {
      throw new Error(cause);
    },
    onUnusable: (error) => {
      throw error;
    },
  });

const keyOf = (partition: number, offset: number) =>
  encodeLedgerKey(
    Buffer.from(`5b1cf3a2-${String(partition).padStart(4, '0')}-4d1e-8f00-${String(offset).padStart(12, '0')}`),
  );

function record(partition: number, offset: number, end: number): LedgerRecord & { readonly entry: LedgerBatchEntry } {
  const entry: LedgerBatchEntry = {
    kind: 'batch',
    requestHash: requestHash(1, 'id.replies.orders'),
    count: 1,
    replyTopic: 'id.replies.orders',
    requestOffset: offset,
    batch: {
      ranges: [{ first: 55_325_805_773_398_016n + BigInt(offset), count: 1 }],
      step: layout.step,
      datacenterId: 4,
      workerId: 18,
      fence: 4_711n,
      epochMs: layout.epochMs,
      layoutFingerprint: layout.fingerprint,
      generatedAtMs: 1_780_416_300_000,
    },
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: ID_REPLY_FINGERPRINT,
    end,
    through: end - 1,
  };
  const value = encodeLedgerEntry(entry);
  return { offset, key: keyOf(partition, offset), value, appendedAtMs: 1_780_416_300_000 + offset, entry };
}

/** Adds up the time of calls, and keeps each. */
class Meter {
  readonly times: number[] = [];
  #totalMs = 0;

  run<T>(work: () => T): T {
    const started = performance.now();
    const result = work();
    const tookMs = performance.now() - started;
    this.times.push(tookMs);
    this.#totalMs += tookMs;
    return result;
  }

  perSecond(units: number): number {
    return Math.round((units / this.#totalMs) * 1_000);
  }

  quantile(q: number): number {
    const sorted = this.times.toSorted((a, b) => a - b);
    return Number((sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0).toFixed(2));
  }
}

const rssMb = () => Math.round(process.memoryUsage.rss() / 2 ** 20);

/** All records, `size` of a partition at a time, partitions in turn. */
function* batches(size: number, from: number, to: number): Generator<readonly [number, LedgerRecord[]]> {
  for (let at = from; at < to; at += size) {
    const length = Math.min(size, to - at);
    for (let p = 0; p < partitions; p++) yield [p, Array.from({ length }, (_, i) => record(p, at + i, at))];
  }
}

function baseline(): Meter {
  const file = join(directory, 'baseline.sqlite');
  const db = new DatabaseSync(file);
  db.exec(`PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
    CREATE TABLE entry (id INTEGER PRIMARY KEY, key BLOB, value BLOB, appended INTEGER)`);
  const insert = db.prepare('INSERT INTO entry (key, value, appended) VALUES (?, ?, ?)');
  const meter = new Meter();
  for (const [, records] of batches(READ, 0, Math.min(perPartition, Math.ceil(1_000_000 / partitions)))) {
    meter.run(() => {
      db.exec('BEGIN');
      for (const { key, value, appendedAtMs } of records) insert.run(key, value, appendedAtMs);
      db.exec('COMMIT');
    });
  }
  db.close();
  rmSync(file);
  return meter;
}

const spread = (meter: Meter) => ({
  p50Ms: meter.quantile(0.5),
  p999Ms: meter.quantile(0.999),
  maxMs: meter.quantile(1),
});

function main(): object {
  const plain = baseline();
  const plainRate = plain.perSecond(plain.times.length * READ);
  let index = open();
  const rssBefore = rssMb();

  const restore = new Meter();
  let rssPeak = rssBefore;
  for (const [p, records] of batches(READ, 0, perPartition)) {
    const read = records.map(({ offset, key, value, appendedAtMs }) => ({ offset, key, value, appendedAtMs }));
    restore.run(() => index.apply(p, read));
    if (restore.times.length % 100 === 0) rssPeak = Math.max(rssPeak, rssMb());
  }
  const restoreRate = restore.perSecond(entries);

  const work = new Meter();
  const worked = Math.min(100_000, perPartition);
  for (const [p, records] of batches(PART, perPartition, perPartition + worked)) {
    work.run(() => {
      for (const { key } of records)
        if (index.lookUp(p, key as Buffer) !== undefined) throw new Error('a key came twice');
      index.apply(p, records);
      if (index.firsts(p, records).size !== records.length) throw new Error('an entry is not the first of its key');
    });
  }

  const known = new Meter();
  const unknown = new Meter();
  for (let i = 0; i < LOOK_UPS; i++) {
    const p = i % partitions;
    const offset = Math.floor(Math.random() * perPartition);
    const key = keyOf(p, offset);
    const found = known.run(() => index.lookUp(p, key));
    if (found === undefined || found === 'forgotten' || found.offset !== offset) throw new Error('a key was not found');
    const other = keyOf(p, offset + 10 ** 11);
    if (unknown.run(() => index.lookUp(p, other)) !== undefined) throw new Error('a key was found that is not there');
  }
  const rssAfter = rssMb();
  const bytes = statSync(join(directory, 'ledger-index.sqlite')).size;

  index[Symbol.dispose]();
  const reopen = new Meter();
  index = reopen.run(open);

  const expiry = new Meter();
  for (let p = 0; p < partitions; p++) while (expiry.run(() => index.expire(p, perPartition)));
  const wipe = new Meter();
  for (let p = 0; p < partitions; p++) wipe.run(() => index.wipe(p, 0));
  index[Symbol.dispose]();
  return {
    entries,
    partitions,
    plainInsertsPerSecond: plainRate,
    restore: { perSecond: restoreRate, ratioToPlain: Number((restoreRate / plainRate).toFixed(2)), ...spread(restore) },
    partsOf500: { perSecond: work.perSecond(worked * partitions), ...spread(work) },
    lookUpsPerSecond: { known: known.perSecond(LOOK_UPS), unknown: unknown.perSecond(LOOK_UPS) },
    openMs: reopen.quantile(1),
    expiry: { perSecond: expiry.perSecond(entries), ...spread(expiry) },
    wipeMaxMs: wipe.quantile(1),
    rssMb: { empty: rssBefore, peak: rssPeak, after: rssAfter },
    bytesPerEntry: Math.round(bytes / (entries + worked * partitions)),
  };
}

try {
  const result = main();
  process.stdout.write(`${JSON.stringify(result, null, values.json ? undefined : 2)}\n`);
} finally {
  rmSync(directory, { recursive: true });
}
