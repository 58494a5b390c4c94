/**
 * Audits generated batches, each in the ledger and in a reply, without a broker: decoding, sorting on disk and checking
 * are those of `idalloc audit`.
 */
import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import type { TopicRecord } from '../../src/adapters/kafka/topics/spans.ts';
import { checkAll, sinkOf } from '../../src/cli/audit/audit-run.ts';
import { AuditReader } from '../../src/cli/audit/read.ts';
import { Findings } from '../../src/cli/audit/report.ts';
import { AuditStore } from '../../src/cli/audit/store.ts';
import type { CliContext } from '../../src/cli/context.ts';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import { encodeIdReply, ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeLedgerEntry, encodeLedgerKey } from '../../src/codec/ledger-entry.ts';
import { compose } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks } from '../../src/core/units.ts';

const LAYOUT = presetLayout('default');
const PARTITIONS = 12;
const CHUNK = 1_000;
/** Each of 8 workers allocates 40 batches of 100 IDs in each millisecond. */
const IDS = 100;
const PER_TICK = 40;
const WORKERS = 8;
const FIRST_TICK = 10_000_000_000;

const { values } = parseArgs({
  options: {
    batches: { type: 'string', default: '1000000' },
    'temp-dir': { type: 'string', default: tmpdir() },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the checks of idalloc audit on generated batches, without a broker, in batches/s.',
      'npm run bench:audit -- [--batches 1000000] [--temp-dir /tmp]',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const batches = Number(values.batches);

function batchOf(index: number): IdBatch {
  const worker = index % WORKERS;
  const nth = Math.floor(index / WORKERS);
  const tick = FIRST_TICK + Math.floor(nth / PER_TICK);
  const sequence = (nth % PER_TICK) * IDS;
  const first = compose(LAYOUT, { ticks: ticks(tick), datacenter: 4, worker, sequence });
  return {
    ranges: [{ first, count: IDS }],
    step: 1n,
    datacenterId: 4,
    workerId: worker,
    fence: BigInt(1_000 + worker),
    epochMs: LAYOUT.epochMs,
    layoutFingerprint: LAYOUT.fingerprint,
    generatedAtMs: LAYOUT.epochMs + tick,
  };
}

function recordsOf(index: number): readonly [TopicRecord, TopicRecord] {
  const batch = batchOf(index);
  // As random as the UUIDs that requesters use.
  const correlationId = Buffer.from(`${((index * 2_654_435_761) % 4_294_967_296).toString(16)}-4711-4711-${index}`);
  const requestOffset = Math.floor(index / PARTITIONS);
  const value = encodeLedgerEntry({
    kind: 'batch',
    requestHash: Buffer.alloc(16, index),
    count: IDS,
    replyTopic: 'replies',
    requestOffset,
    batch,
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: ID_REPLY_FINGERPRINT,
    end: requestOffset,
    through: requestOffset - 1,
  });
  const common = {
    partition: index % PARTITIONS,
    offset: requestOffset,
    headers: {},
    timestampMs: batch.generatedAtMs,
  };
  return [
    { ...common, topic: 'ledger', key: encodeLedgerKey(correlationId), value },
    { ...common, topic: 'replies', key: correlationId, value: encodeIdReply({ correlationId, batch }, 'RANGES') },
  ];
}

const context = {
  err: (text: string) => void process.stderr.write(text),
  terminal: { input: false, output: false, errors: process.stderr.isTTY === true },
  stop: new AbortController().signal,
} as CliContext;
const findings = new Findings(100);
using store = new AuditStore(values['temp-dir']);
const ledger = Array.from({ length: PARTITIONS }, (_, partition) => ({
  topic: 'ledger',
  partition,
  from: 0,
  to: batches,
}));
const reader = new AuditReader(ledger, sinkOf(store, findings), { clockMarginMs: 0 });

let readMs = 0;
const cpu = process.cpuUsage();
for (let index = 0; index < batches; index += CHUNK) {
  const records = Array.from({ length: Math.min(CHUNK, batches - index) }, (_, i) => recordsOf(index + i));
  const begunMs = performance.now();
  for (const [entry, reply] of records) {
    reader.ledgerRecord(entry);
    reader.replyRecord(reply);
  }
  readMs += performance.now() - begunMs;
}
const begunMs = performance.now();
const join = await checkAll(context, store, reader, findings);
const checkMs = performance.now() - begunMs;
const { user, system } = process.cpuUsage(cpu);
const rate = (ms: number) => Math.round((batches * 1_000) / ms);
process.stdout.write(
  `${batches} batches, each with a reply: ${findings.total} findings, ${join.replies} replies that match the ledger\n` +
    `decoded and stored ${rate(readMs)} batches/s, sorted and checked ${rate(checkMs)} batches/s, ` +
    `both together ${rate(readMs + checkMs)} batches/s\n` +
    `peak memory ${Math.round(process.resourceUsage().maxRSS / 1_024)} MiB, ` +
    `processor time ${Math.round((user + system) / 1_000_000)} s, generating the batches included\n`,
);
