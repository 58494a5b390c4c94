import { describe, expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { customText } from '../../src/core/layout-choice.ts';
import { decode } from '../../src/ids/ids.ts';
import { batchOf, type DecodedReply } from '../support/followed.ts';
import { LAYOUT_ENVS, layoutOfEnv, type TestLayout } from '../support/layouts.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const COUNT = 20;
/** Reserve for the comparison of an ID's time with a clock that is read after its allocation. */
const SKEW_MS = 2_000;

interface View {
  readonly value_string: string;
  readonly value_number?: number;
  readonly breakdown: { readonly datacenter_id: number; readonly worker_id: number } | null;
}

/** Runs a command, which must print one line of JSON; returns that, parsed. */
async function json(args: readonly string[], env: Readonly<Record<string, string>>) {
  const { code, stdout, stderr } = await runIdalloc([...args, '--json'], env);
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  return { code, ...JSON.parse(stdout) };
}

describe.each(['js-safe', 'regional', 'seconds'] as const satisfies TestLayout[])('in layout %s', (name) => {
  test('Kafka, HTTP, client and commands return IDs of one worker that each of them can decode', async () => {
    const begunMs = Date.now();
    await using realm = await Realm.create(suiteServers(), { env: LAYOUT_ENVS[name] });
    const layout = layoutOfEnv(realm.env);
    const replies = await realm.follow();
    const worker = realm.worker();
    const { workerId } = await worker.ready();
    const { brokers } = suiteServers();
    const { requestTopic, replyTopic } = realm;
    await using client = await IdClient.connect({ brokers, requestTopic, replyTopic });

    const correlationId = 'order-1';
    const asked = await client.request({ count: COUNT, correlationId });
    const again = await client.request({ count: COUNT, correlationId, encoding: 'IDS' });
    expect([asked.layout?.fingerprint, again.layout, again.batch]).toEqual([
      layout.fingerprint,
      asked.layout,
      asked.batch,
    ]);
    await client.ready();
    expect(client.layout?.fingerprint).toBe(layout.fingerprint);
    if (layout.fitsNumber) {
      const [first = 0, second = 0] = [client.nextNumber(), client.nextNumber()];
      expect([first, second].every(Number.isSafeInteger) && first < second).toBe(true);
    } else expect(() => client.nextNumber()).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }));

    const response = await fetch(`${await worker.api()}/api/v1/ids?count=${COUNT}`);
    const { ids: views } = (await response.json()) as { readonly ids: readonly View[] };
    for (const { value_string: text, value_number: number, breakdown } of views) {
      expect(breakdown).toMatchObject({ datacenter_id: realm.datacenterId, worker_id: workerId });
      expect(number).toBe(layout.fitsNumber ? Number(text) : undefined);
    }
    const printed = await json(['request', '--count', String(COUNT), '--reply-topic', replyTopic], realm.env);

    const ids = [
      ...expandIds(asked.batch),
      ...client.take(COUNT),
      ...[...views, ...(printed.ids as View[])].map(({ value_string: text }) => BigInt(text)),
    ];
    expect(new Set(ids).size).toBe(4 * COUNT);
    for (const id of ids) {
      const { timestampMs, ...parts } = decode(id, client.layout);
      expect(parts).toMatchObject({ datacenterId: realm.datacenterId, workerId });
      expect(timestampMs).toBeGreaterThan(begunMs - 60_000 - SKEW_MS);
      expect(timestampMs).toBeLessThan(Date.now() + 60_000 + SKEW_MS);
    }

    const { seen } = replies;
    const texts = seen.map(({ message }) => message.headers?.['idalloc-layout']?.toString());
    expect(new Set(texts)).toEqual(new Set([customText(layout)]));
    expect(await json(['leases'], realm.env)).toMatchObject({
      layout: layout.name,
      ...(layout.name === 'custom' ? { layout_text: customText(layout) } : {}),
      leases: [{ worker_id: workerId, ceiling: expect.any(String) }],
    });
    expect(await json(['audit'], realm.env)).toMatchObject({ code: 0, unknown_layouts: 0, findings: [] });
  });
});

test('in the smallest layout, with two IDs in a second, two workers answer every request', async () => {
  const LAYOUT_FIELDS = 'timestamp:32,worker:1,sequence:1';
  const env = { LAYOUT: 'custom', LAYOUT_FIELDS, LAYOUT_TICK_MS: '1000', LAYOUT_EPOCH_MS: '0', DATACENTER_ID: '0' };
  await using realm = await Realm.create(suiteServers(), { env });
  const layout = layoutOfEnv(realm.env);
  const replies = await realm.follow();
  await Promise.all([realm.worker().ready(), realm.worker().ready()]);
  const asks = Array.from({ length: 12 }, (_, i) => ({ correlationId: `c${i}`, count: 1 + (i % 2) }));
  await realm.send([...asks, { correlationId: 'large', count: 3 }]);
  const answered = await replies.replies(asks.length + 1);
  expect(answered.get('large')?.map(({ reply }) => 'error' in reply && reply.error.code)).toEqual(['INVALID_COUNT']);
  const ids = asks.flatMap(({ correlationId }) => {
    const [{ reply }] = answered.get(correlationId) as [DecodedReply];
    return expandIds(batchOf({ reply }));
  });
  expect(new Set(ids).size).toBe(18);
  const ofTicks = Map.groupBy(ids, (id) => id >> 1n);
  expect(Math.max(...[...ofTicks.values()].map(({ length }) => length))).toBeLessThanOrEqual(layout.sequencesPerTick);
});

test('a custom layout that differs in one property is refused, and both values are named', async () => {
  await using realm = await Realm.create(suiteServers(), { env: LAYOUT_ENVS.seconds });
  await realm.worker().ready();
  for (const [env, difference] of [
    [
      { LAYOUT_FIELDS: 'timestamp:32,worker:5,sequence:16' },
      'layout.fields is timestamp:32,worker:6,sequence:15, configured timestamp:32,worker:5,sequence:16',
    ],
    [{ LAYOUT_TICK_MS: '500' }, 'layout.tick_ms is 1000, configured 500'],
    [{ LAYOUT_SEQUENCE_START_BELOW: '' }, 'layout.sequence_start_below is 10, configured 1'],
  ] as const) {
    const other = realm.worker(env);
    expect(await other.ended()).toEqual({ code: 1, signal: null });
    expect(other.lines.find(({ level }) => level === 60)?.msg).toContain(difference);
  }
});

test('a worker whose layout has ended does not start, and names the variable', async () => {
  await using realm = await Realm.create(suiteServers(), { env: LAYOUT_ENVS.regional });
  const worker = realm.worker({ LAYOUT_FIELDS: 'timestamp:31,datacenter:2:region,worker:10,sequence:9' });
  expect(await worker.ended()).toEqual({ code: 78, signal: null });
  expect(worker.errors).toMatch(/LAYOUT_EPOCH_MS: makes layout 'custom' end at 2026-01-25/);
});
