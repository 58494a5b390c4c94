import { afterEach, beforeEach, expect, test } from 'vitest';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import { encodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { decodeIdRequest } from '../../src/codec/id-request.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { createLogger, withoutRepeats } from '../../src/log.ts';
import { LedgerRequests } from '../../src/worker/api-service.ts';
import { LinkStage, REPLIES } from '../client/link-stage.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';

const layout = presetLayout('default');
const BATCH: IdBatch = {
  ranges: [{ first: 55_325_805_773_398_016n, count: 2 }],
  step: layout.step,
  datacenterId: 4,
  workerId: 18,
  fence: 7n,
  epochMs: layout.epochMs,
  layoutFingerprint: layout.fingerprint,
  generatedAtMs: 1_780_416_300_000,
};
const NUMBERS = { first: 7, count: 2, step: 1, format: '' };

let stage: LinkStage;
let requests: LedgerRequests;
let logged: { readonly msg: string; readonly error?: string }[];

beforeEach(() => {
  stage = new LinkStage();
  logged = [];
});

afterEach(() => stage.during(requests[Symbol.asyncDispose]()));

async function start(replyTopic = REPLIES): Promise<void> {
  const wire = { dialer: stage.dialer, seeds: stage.seeds, runtime: stage.clock };
  const log = createLogger({ level: 'info', destination: { write: (line: string) => logged.push(JSON.parse(line)) } });
  const [requestTopic, lines] = ['id.requests', withoutRepeats(log, stage.clock)];
  requests = new LedgerRequests({ wire, requestTopic, replyTopic, headers: DEFAULT_HEADER_NAMES, layout, lines });
  await stage.clock.pass(1_000);
}

const ASKED = { count: 2, key: Buffer.from('order-1'), signal: new AbortController().signal };

function take(sequence: string, isLookUp = false) {
  const taken = requests.numbers({ ...ASKED, sequence, isLookUp });
  taken.catch(() => undefined); // may reject before it is awaited
  return taken;
}

/** What the workers read. */
function received() {
  const partitions = stage.kafka.topics.get('id.requests')?.partitions ?? [];
  return partitions.flatMap(({ log }) => log.batches().flatMap(recordsOf));
}

/** What a record asks for. */
function requestOf(record: ReturnType<typeof received>[number] | undefined) {
  if (record === undefined) throw new Error('nothing was sent');
  return { ...decodeIdRequest(record.value as Buffer), correlationId: record.headers?.kafka_correlationId as Buffer };
}

function answer(reply: IdReply, headers: Record<string, string> = {}): void {
  const value = encodeIdReply(reply, 'RANGES');
  for (const partition of [0, 1]) stage.kafka.send(REPLIES, partition, [{ key: reply.correlationId, value, headers }]);
}

test('a request is a record that any worker reads: the sequence as its key, and the key of the caller as request ID', async () => {
  await start();
  const taken = take('invoices');
  await stage.clock.pass(100);
  const [record] = received();
  expect(String(record?.key)).toBe('invoices');
  const request = requestOf(record);
  expect(request).toMatchObject({
    sequence: 'invoices',
    count: 2,
    replyTopic: REPLIES,
    requestId: Buffer.from('order-1'),
  });
  expect(request.expiresAtMs).toBeGreaterThan(stage.clock.wallMs());
  answer({ correlationId: request.correlationId, numbers: { sequence: 'invoices', ...NUMBERS } });
  expect(await stage.during(taken)).toMatchObject({ numbers: NUMBERS, replayed: false });
  expect(logged.map(({ msg }) => msg)).toEqual(['the HTTP API serves Idempotency-Keys and numbers of sequences']);
});

test('a look-up has expired long before any clock of a worker, so that it gets what was decided, and decides nothing', async () => {
  await start();
  const looked = take('invoices', true);
  await stage.clock.pass(100);
  const { expiresAtMs, correlationId, requestId } = requestOf(received()[0]);
  expect([expiresAtMs, requestId]).toEqual([1, ASKED.key]);
  answer({ correlationId, error: { code: 'EXPIRED', message: 'it has no numbers' } });
  await expect(stage.during(looked)).rejects.toMatchObject({ code: 'EXPIRED' });
});

test('IDs are asked for in their home partition, with ranges, and come as they were allocated', async () => {
  await start();
  const asked = requests.ids(ASKED);
  await stage.clock.pass(100);
  const [record] = received();
  expect(record?.key).toEqual(ASKED.key);
  const { correlationId, ...request } = requestOf(record);
  expect(request).toMatchObject({ count: 2, requestId: ASKED.key, replyTopic: REPLIES, encoding: 'RANGES' });
  expect(request.sequence).toBeUndefined();
  answer({ correlationId, batch: BATCH }, { 'idalloc-replayed': '1' });
  expect(await stage.during(asked)).toEqual({
    batch: { ranges: BATCH.ranges, generatedAt: BATCH.generatedAtMs },
    replayed: true,
  });
});

test('IDs of another layout than the worker has are an error, since it would show their fields wrong', async () => {
  await start();
  const asked = requests.ids(ASKED);
  asked.catch(() => undefined);
  await stage.clock.pass(100);
  const { correlationId } = requestOf(received()[0]);
  answer({ correlationId, batch: { ...BATCH, epochMs: 0 } });
  await expect(stage.during(asked)).rejects.toMatchObject({ code: 'MALFORMED_REPLY' });
});

test('one key may ask two sequences at the same time, and each gets its own answer', async () => {
  await start();
  const both = [take('invoices'), take('tickets')];
  await stage.clock.pass(100);
  const asked = received().map(requestOf);
  for (const { sequence = '', correlationId } of asked.toReversed()) {
    if (sequence === 'tickets') answer({ correlationId, error: { code: 'UNKNOWN_SEQUENCE', message: 'none' } });
    else answer({ correlationId, numbers: { sequence, ...NUMBERS } }, { 'idalloc-replayed': '1' });
  }
  const [invoices, tickets] = await stage.during(Promise.allSettled(both));
  expect(invoices).toMatchObject({ status: 'fulfilled', value: { numbers: NUMBERS, replayed: true } });
  expect(tickets).toMatchObject({ status: 'rejected', reason: { code: 'UNKNOWN_SEQUENCE' } });
});

test('without an answer it is sent again, and rejects with NO_REPLY in the end', async () => {
  await start();
  const taken = take('invoices');
  await expect(stage.during(taken)).rejects.toMatchObject({ code: 'NO_REPLY' });
  const sent = received().map(({ value }) => String(value));
  expect([sent.length > 1, new Set(sent).size]).toEqual([true, 1]);
});

test('while replies can not be read, that is the reason why there is none', async () => {
  await start();
  stage.kafka.refuses = (call) => (call === 'fetch' ? 'TOPIC_AUTHORIZATION_FAILED' : undefined);
  const unread = { code: 'KAFKA_UNAVAILABLE', message: expect.stringContaining(`'${REPLIES}' cannot be read`) };
  await expect(stage.during(take('invoices'))).rejects.toMatchObject(unread);
  await stage.clock.pass(120_000);
  await expect(stage.during(take('invoices'))).rejects.toMatchObject(unread);
  stage.kafka.refuses = () => undefined;
  await stage.clock.pass(20_000);
  await expect(stage.during(take('invoices'))).rejects.toMatchObject({ code: 'NO_REPLY' });
});

test('a missing reply topic is logged, and requests succeed as soon as it exists', async () => {
  await start('id.replies.later');
  await stage.clock.pass(15_000);
  expect(logged[0]).toMatchObject({ error: expect.stringContaining('TOPIC_INVALID') });
  expect(logged.length).toBeLessThan(3);
  await expect(stage.during(take('invoices'))).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
  stage.kafka.createTopic('id.replies.later', { partitions: 1, replicas: 2 });
  const taken = take('invoices');
  await stage.clock.pass(5_000);
  const request = requestOf(received()[0]);
  const id = request.correlationId;
  const value = encodeIdReply({ correlationId: id, numbers: { sequence: 'invoices', ...NUMBERS } }, 'RANGES');
  stage.kafka.send('id.replies.later', 0, [{ key: id, value, headers: {} }]);
  expect(await stage.during(taken)).toMatchObject({ numbers: NUMBERS });
});

test('requests that wait when the worker stops reject with STOPPING, and no connection is left', async () => {
  await start();
  const taken = take('invoices');
  await stage.clock.pass(100);
  await stage.during(requests[Symbol.asyncDispose]());
  await expect(taken).rejects.toMatchObject({ code: 'STOPPING' });
  expect(stage.connections).toBe(0);
});

test('a stop ends when every caller has its refusal, however many turns of the event loop that takes', async () => {
  await start();
  const refused: unknown[] = [];
  for (const sequence of ['invoices', 'tickets']) take(sequence).catch((error) => refused.push(error.code));
  await stage.clock.pass(100);
  const { clock } = stage;
  const turn = Promise.withResolvers<void>();
  let nowMs = clock.monotonicMs();
  clock.monotonicMs = () => {
    nowMs += 20; // each refusal takes long
    return nowMs;
  };
  clock.nextTurn = () => turn.promise;
  let isOver = false;
  const stopped = requests[Symbol.asyncDispose]().then(() => {
    isOver = true;
  });
  await clock.pass(1_000);
  expect([refused, isOver]).toEqual([['STOPPING'], false]);
  turn.resolve();
  await stage.during(stopped);
  expect(refused).toEqual(['STOPPING', 'STOPPING']);
});

test('a caller that has gone leaves nothing behind: a request that was not sent is not sent later, and one that was is not sent again', async () => {
  await start('id.replies.later');
  const gone = new AbortController();
  const unsent = requests.ids({ ...ASKED, signal: gone.signal });
  unsent.catch(() => undefined);
  await stage.clock.pass(1_000);
  gone.abort(new Error('gone'));
  await expect(unsent).rejects.toThrow('gone');
  stage.kafka.createTopic('id.replies.later', { partitions: 1, replicas: 2 });
  await stage.clock.pass(20_000);
  expect(received()).toEqual([]);
  const later = new AbortController();
  const sent = requests.ids({ ...ASKED, signal: later.signal });
  sent.catch(() => undefined);
  await stage.clock.pass(1_000);
  expect(received()).toHaveLength(1);
  later.abort(new Error('gone'));
  await expect(sent).rejects.toThrow('gone');
  await stage.clock.pass(20_000);
  expect(received()).toHaveLength(1);
});
