import { expect, test } from 'vitest';
import type { CliContext } from '../../../src/cli/context.ts';
import { searchLedgers, witnessReadToEnd } from '../../../src/cli/namespace/found.ts';
import type { IdBatch } from '../../../src/codec/id-batch.ts';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import type { Config } from '../../../src/config/config.ts';
import type { Layout } from '../../../src/core/layout.ts';
import { presetLayout } from '../../../src/core/presets.ts';
import { IdallocError } from '../../../src/errors.ts';
import { MemoryLogs } from '../../adapters/kafka/topics/memory-logs.ts';

const [DEFAULT, TWITTER] = [presetLayout('default'), presetLayout('twitter-2010')];
const LEDGER = 'id.ledger';

interface Fields {
  readonly layout?: Layout;
  readonly tick?: number;
  readonly datacenterId?: number;
  readonly ranges?: IdBatch['ranges'];
}

/** An entry whose last ID is of this tick. */
function entry({ layout = DEFAULT, tick = 5, datacenterId = 4, ranges }: Fields = {}): Buffer {
  const last = BigInt(tick) << layout.timestampShift;
  return encodeLedgerEntry({
    ...{ kind: 'batch', end: 0, through: -1, requestHash: Buffer.alloc(16), count: 1, replyTopic: 'r' },
    ...{ requestOffset: 0, framing: 'SINGLE_OBJECT', schemaFingerprint: Buffer.alloc(8) },
    batch: {
      ...{ ranges: ranges ?? [{ first: last, count: 1 }], step: 1n, datacenterId, workerId: 1, fence: 1n },
      ...{ epochMs: layout.epochMs, layoutFingerprint: layout.fingerprint, generatedAtMs: layout.epochMs },
    },
  } as const);
}

const marker = encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 });

/** What the ledgers of a datacenter show to a command with this layout. */
async function search(logs: MemoryLogs, topics: readonly string[] = [LEDGER]) {
  const context = {
    stop: new AbortController().signal,
    err: () => undefined,
    terminal: { input: false, output: false, errors: false },
  } as unknown as CliContext;
  const config = { layout: DEFAULT, datacenterId: 4 } as Config;
  const searching = searchLedgers(context, config, logs.source, topics);
  searching.catch(() => undefined); // each test awaits it later
  return await logs.runtime.until(searching);
}

test('the highest tick of a datacenter is found in any ledger, and records without IDs are not counted', async () => {
  const logs = new MemoryLogs();
  for (const [topic, tick] of [
    [LEDGER, 7],
    ['other', 9],
    [LEDGER, 8],
  ] as const)
    logs.record(topic, 0, entry({ tick })).record(topic, 1, marker);
  expect(await search(logs, [LEDGER, 'other'])).toEqual({ highest: 9, entries: 3, leftOut: 0 });
});

test('entries of other datacenters and unreadable ones are left out, whatever their layout', async () => {
  const logs = new MemoryLogs().record(LEDGER, 0, entry());
  logs.record(LEDGER, 0, entry({ tick: 99, datacenterId: 3 }));
  logs.record(LEDGER, 0, entry({ tick: 99, datacenterId: 3, layout: TWITTER }));
  logs.record(LEDGER, 0, Buffer.from('junk'));
  expect(await search(logs)).toEqual({ highest: 5, entries: 1, leftOut: 3 });
});

test('a batch of this datacenter in another layout refuses, and names both layouts, the ledger and what to set', async () => {
  const logs = new MemoryLogs().record(LEDGER, 0, entry()).record('other', 0, entry({ layout: TWITTER }));
  await expect(search(logs, [LEDGER, 'other'])).rejects.toMatchObject({
    code: 'NAMESPACE_MISMATCH',
    message: expect.stringMatching(
      /default .* is configured, but the ledger 'other' has batches of datacenter 4 .* twitter-2010 .*LAYOUT_EPOCH_MS/,
    ),
  });
});

test('a layout that is no preset is named by its epoch and fingerprint', async () => {
  const own = { ...DEFAULT, epochMs: 7, fingerprint: '0123456789abcdef' };
  const logs = new MemoryLogs().record(LEDGER, 0, entry({ layout: own }));
  await expect(search(logs)).rejects.toThrow('in layout custom (epoch 7, fingerprint 0123456789abcdef)');
});

/** A witness topic that is read after so many failures; `rest` counts, and lasts until the test ends it. */
function witnessAfter(failures: number, code: 'KAFKA_UNAVAILABLE' | 'TOPIC_INVALID' = 'KAFKA_UNAVAILABLE') {
  const done: string[] = [];
  const read = async () => {
    done.push('read');
    if (done.filter((one) => one === 'read').length <= failures) throw new IdallocError(code, 'not yet');
    return { seal: undefined, witnesses: [], unreadable: [] };
  };
  const rests: (() => void)[] = [];
  const rest = () => {
    done.push('rest');
    return new Promise<void>((resolve) => rests.push(resolve));
  };
  const reading = witnessReadToEnd({ read }, rest);
  reading.catch(() => undefined); // each test awaits it later
  return { done, reading, go: () => rests.pop()?.() };
}

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

test('the witness topic is read again after a rest, until it was read to its end', async () => {
  const { done, reading, go } = witnessAfter(2);
  await nextTurn();
  expect(done).toEqual(['read', 'rest']);
  go();
  await nextTurn();
  go();
  await reading;
  expect(done).toEqual(['read', 'rest', 'read', 'rest', 'read']);
});

test('the witness topic is tried fifteen times, and once if more tries would not help', async () => {
  const [silent, gone] = [witnessAfter(99), witnessAfter(1, 'TOPIC_INVALID')];
  for (let turn = 0; turn < 20; turn += 1) {
    await nextTurn();
    silent.go();
  }
  await expect(silent.reading).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  await expect(gone.reading).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
  expect([silent.done.filter((one) => one === 'read').length, gone.done]).toEqual([15, ['read']]);
});
