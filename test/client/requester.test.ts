import { describe, expect, test } from 'vitest';
import { pauseAfter } from '../../src/client/refusals.ts';
import { type BatchRequest, Requester } from '../../src/client/requester.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';
import { IdallocError } from '../../src/errors.ts';
import { encodeBatch, FakeRuntime, FakeWorkers, turns } from './stage.ts';

const MOVED = { replyTopic: 'id.replies.moved' };

describe('requests whose reply topic moved', () => {
  test('are sent again at once, and once each time they are due after that', async () => {
    const { requester, runtime, workers, ask } = stageRequester();
    const replies = [ask('moved', MOVED), ask('other')];
    await turns();
    requester.resendAll(MOVED.replyTopic);
    await turns();
    expect(workers.sent.map(({ correlationId }) => correlationId)).toEqual(['moved', 'other', 'moved']);
    await runtime.pass(6_500);
    const sent = workers.sent.splice(3).map(({ correlationId }) => correlationId);
    expect(sent.toSorted()).toEqual(['moved', 'other']);
    for (const id of ['moved', 'other']) workers.answer(id, 3);
    await Promise.all(replies);
    expect(runtime.pending).toBe(0);
  });

  test('are sent again also while a send is under way, which then schedules nothing', async () => {
    const { requester, runtime, workers, ask } = stageRequester();
    workers.gate = Promise.withResolvers();
    const reply = ask('x', MOVED);
    requester.resendAll(MOVED.replyTopic);
    workers.gate.resolve();
    await turns();
    expect(workers.sent).toHaveLength(2);
    expect(runtime.pending).toBe(2); // the time limit and one resend
    workers.reply('x', encodeBatch('x', [{ first: 1n, count: 3 }]));
    await reply;
    expect(runtime.pending).toBe(0);
  });
});

test('a send that fails after a later one has succeeded is not why there is no reply', async () => {
  const { requester, runtime, workers, errors, ask } = stageRequester();
  const gate = Promise.withResolvers<void>();
  workers.gate = gate;
  const late = ask('x', { ...MOVED, timeoutMs: 2_000 }).catch((error) => error.code);
  workers.gate = undefined;
  requester.resendAll(MOVED.replyTopic);
  await turns();
  workers.broken = new Error('no broker');
  gate.resolve();
  await turns();
  expect([workers.sent.length, errors]).toEqual([1, [workers.broken]]);
  await runtime.pass(2_000);
  expect(await late).toBe('NO_REPLY');
});

describe('a refusal after which a retry may succeed', () => {
  test('does not end the wait: the same record is sent again at the time that the refusal names', async () => {
    const { runtime, workers, sends, ask } = stageRequester();
    const reply = ask('x');
    await turns();
    workers.refuse('x', 'QUOTA_EXCEEDED', 'later', 1_490);
    await runtime.pass(1_489);
    expect(workers.sent).toHaveLength(1);
    await runtime.pass(1);
    expect([workers.sent.length, workers.sent[1]?.value.equals(workers.sent[0]?.value as Buffer)]).toEqual([2, true]);
    workers.answer('x', 3);
    expect((await reply).batch.ranges).toEqual([{ first: 0n, count: 3 }]);
    expect([sends, runtime.pending]).toEqual([[1, 2], 0]);
  });

  test('is followed by pauses of 1 s, 2 s and so on up to 30 s where it names no time', async () => {
    const { runtime, workers, ask } = stageRequester();
    const reply = ask('x', { timeoutMs: 600_000 });
    const times: number[] = [];
    for (let refusals = 0; refusals < 8; refusals += 1) {
      await turns();
      const sent = workers.sent.length;
      const fromMs = runtime.nowMs;
      workers.refuse('x', 'OVERTAKEN');
      while (workers.sent.length === sent) await runtime.pass(500);
      times.push(runtime.nowMs - fromMs);
    }
    expect(times).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    workers.answer('x', 3);
    await reply;
  });

  test('rejects at once the callers that have no time left for the retry, with the time in the error', async () => {
    const { runtime, workers, ask } = stageRequester();
    const impatient = ask('x', { timeoutMs: 1_000 });
    const patient = ask('x', { timeoutMs: 5_000 });
    const refused = expect(impatient).rejects.toMatchObject({
      ...{ name: 'RequestRefused', code: 'QUOTA_EXCEEDED', message: 'later', retryAfterMs: 1_490 },
    });
    await turns();
    workers.refuse('x', 'QUOTA_EXCEEDED', 'later', 1_490);
    await refused;
    expect(runtime.nowMs).toBe(1_000); // no time has passed
    await runtime.pass(1_490);
    workers.answer('x', 3);
    await patient;
  });

  test('is followed by retries at different moments, each within half of the time that is left', async () => {
    for (const [timeoutMs, atMs] of [
      [30_000, 1_250], // a quarter of the pause
      [1_200, 1_100],
    ] as const) {
      const { runtime, workers, ask } = stageRequester();
      runtime.random = () => 1;
      const reply = ask('x', { timeoutMs });
      await turns();
      workers.refuse('x', 'QUOTA_EXCEEDED', 'later', 1_000);
      await runtime.pass(atMs - 1);
      expect(workers.sent).toHaveLength(1);
      await runtime.pass(1);
      expect(workers.sent).toHaveLength(2);
      workers.answer('x', 3);
      await reply;
    }
  });

  test('is what the call ends with when its time is over', async () => {
    const { runtime, workers, ask } = stageRequester();
    const reply = expect(ask('x', { timeoutMs: 2_000 })).rejects.toMatchObject({ code: 'QUOTA_EXCEEDED' });
    await turns();
    workers.refuse('x', 'QUOTA_EXCEEDED', 'later', 1_490);
    await runtime.pass(2_000);
    await reply;
    expect([workers.sent.length, runtime.pending]).toEqual([2, 0]);
  });

  test('of a code that this version does not know is one if it names a time', async () => {
    const { runtime, workers, ask } = stageRequester();
    const reply = ask('x');
    await turns();
    workers.refuse('x', 'BUSY_AS_NEVER_BEFORE', 'later', 200);
    await runtime.pass(200);
    workers.answer('x', 3);
    await reply;
    const final = expect(ask('y')).rejects.toMatchObject({ code: 'REFUSED', serverCode: 'BUSY_AS_NEVER_BEFORE' });
    await turns();
    workers.refuse('y', 'BUSY_AS_NEVER_BEFORE');
    await final;
  });

  test('ends a request at once that wants to know it', async () => {
    const { runtime, workers, ask } = stageRequester();
    const refused = expect(ask('x', { endsWhenRefused: true })).rejects.toMatchObject({ retryAfterMs: 1_490 });
    await turns();
    workers.refuse('x', 'QUOTA_EXCEEDED', 'later', 1_490);
    await refused;
    expect(runtime.pending).toBe(0);
  });

  test('is counted from: the pauses without a reply begin anew, and a send under way schedules no second one', async () => {
    const { runtime, workers, ask } = stageRequester();
    const reply = ask('x', { timeoutMs: 100_000 });
    await runtime.pass(10_000); // sent after 0, 3 and 9 s
    workers.gate = Promise.withResolvers();
    await runtime.pass(11_000); // the send at 21 s is under way
    workers.refuse('x', 'QUOTA_EXCEEDED', 'later', 1_000);
    workers.gate.resolve();
    await turns();
    const sent = workers.sent.length;
    await runtime.pass(3_999);
    expect(workers.sent.length - sent).toBe(1); // at 22 s
    await runtime.pass(1);
    expect(workers.sent.length - sent).toBe(2); // at 25 s
    workers.answer('x', 3);
    await reply;
    expect(runtime.pending).toBe(0);
  });

  test('spreads those that were told the same time further with each refusal, and never beyond their limit', () => {
    const refusal = new IdallocError('QUOTA_EXCEEDED', '', { retryAfterMs: 1_000 });
    const spreads = [0, 1, 2, 3, 10].map((before) => pauseAfter(refusal, before));
    expect(spreads.map(({ pauseMs }) => pauseMs)).toEqual([1_000, 1_000, 1_000, 1_000, 1_000]);
    expect(spreads.map(({ spreadMs }) => spreadMs)).toEqual([250, 500, 1_000, 2_000, 8_000]);
    const named = [0, 1e12].map((retryAfterMs) => pauseAfter(new IdallocError('OVERTAKEN', '', { retryAfterMs }), 0));
    expect(named.map(({ pauseMs }) => pauseMs)).toEqual([50, 3_600_000]);
  });
});

describe('what can not be the answer to a request', () => {
  const x = (ranges: readonly { first: bigint; count: number }[]) => encodeBatch('x', ranges);
  const error = { code: 'FORGOTTEN', message: '' };

  test.each<[string, boolean, Buffer]>([
    ['no readable reply', true, Buffer.from('nonsense')],
    ['another count', false, x([{ first: 1n, count: 4 }])],
    ['a reply to another correlation ID than its key', true, encodeBatch('y', [{ first: 1n, count: 3 }])],
    ['a reply to another correlation ID than its key', true, errorReply('y', error)],
    [
      'a batch with an ID twice',
      true,
      x([
        { first: 1n, count: 2 },
        { first: 2n, count: 1 },
      ]),
    ],
    [
      'a batch with an ID twice',
      true,
      x([
        { first: 5n, count: 2 },
        { first: 5n, count: 1 },
      ]),
    ],
    ['a refusal of an earlier record', false, errorReply('x', { ...error, code: 'ANSWERED_BEFORE' })],
    ['numbers of another sequence, or in place of IDs', false, numbersReply('x')],
  ])('is passed over and counted: %s', async (what, isFault, value) => {
    const { requester, runtime, workers, errors, ask } = stageRequester();
    const reply = ask('x');
    await turns();
    workers.reply('x', value);
    await turns();
    expect(requester.passedOver).toBe(1);
    const known = { code: 'MALFORMED_REPLY', message: expect.stringContaining(what) };
    expect(errors).toEqual(isFault ? [expect.objectContaining(known)] : []);
    workers.answer('x', 3);
    expect((await reply).batch.ranges).toEqual([{ first: 0n, count: 3 }]);
    const unanswered = ask('x');
    const late = expect(unanswered).rejects.toMatchObject({
      code: 'NO_REPLY',
      message: expect.stringContaining(`its answer: ${what} (2 times); find out`),
    });
    for (let i = 0; i < 2; i += 1) workers.reply('x', value);
    await runtime.pass(30_000);
    await late;
  });

  test('is no batch whose ranges are in another order, or lie between each other', async () => {
    const { workers, ask } = stageRequester();
    for (const [step, ranges] of [
      [
        1n,
        [
          { first: 9n, count: 1 },
          { first: 1n, count: 2 },
        ],
      ],
      [
        2n,
        [
          { first: 1n, count: 2 },
          { first: 2n, count: 1 },
        ],
      ],
    ] as const) {
      const reply = ask('x');
      await turns();
      workers.reply('x', encodeBatch('x', ranges, undefined, step));
      expect((await reply).batch.ranges).toEqual(ranges);
    }
  });

  test('leaves two clients that share a correlation ID with what the ledger decided: IDs and CONFLICT', async () => {
    const [mine, theirs] = [stageRequester(), stageRequester()];
    const [three, four] = [mine.ask('x'), theirs.ask('x', { count: 4 })];
    const conflict = expect(four).rejects.toMatchObject({ code: 'CONFLICT' });
    await turns();
    for (const { workers } of [mine, theirs]) {
      workers.reply('x', x([{ first: 1n, count: 3 }]));
      workers.refuse('x', 'CONFLICT');
    }
    await conflict;
    expect((await three).batch.ranges).toEqual([{ first: 1n, count: 3 }]);
    expect([mine.errors, theirs.errors]).toEqual([[], []]);
  });
});

test('requests without a reply are sent again at different moments, up to a quarter later than others', async () => {
  const { runtime, workers, ask } = stageRequester();
  runtime.random = () => 1;
  const reply = ask('x');
  await runtime.pass(3_749);
  expect(workers.sent).toHaveLength(1);
  await runtime.pass(1);
  expect(workers.sent).toHaveLength(2);
  workers.answer('x', 3);
  await reply;
});

test('a request that is sent when the last reply comes, and gets none, is not said to wait behind others', async () => {
  const { runtime, workers, ask } = stageRequester();
  const before = ask('before');
  await turns();
  workers.answer('before', 3);
  await before;
  const late = expect(ask('x')).rejects.toMatchObject({ message: expect.stringContaining('a worker is running') });
  await runtime.pass(30_000);
  await late;
});

test('a request without a reply fails with what its transport knows about the reply topic', async () => {
  const { runtime, workers, ask } = stageRequester();
  workers.deaf = "'id.replies.test' has no partition 3: it has 2";
  const late = expect(ask('x')).rejects.toMatchObject({
    code: 'NO_REPLY',
    message: expect.stringMatching(/within 30000 ms: 'id\.replies\.test' has no partition 3: it has 2\. Retrying/),
  });
  await runtime.pass(30_000);
  await late;
});

function errorReply(correlationId: string, error: { readonly code: string; readonly message: string }): Buffer {
  return encodeIdReply({ correlationId: Buffer.from(correlationId), error }, 'RANGES');
}

function numbersReply(correlationId: string): Buffer {
  const numbers = { sequence: 'invoices', first: 1, count: 3, step: 1, format: '' };
  return encodeIdReply({ correlationId: Buffer.from(correlationId), numbers }, 'RANGES');
}

function stageRequester() {
  const runtime = new FakeRuntime();
  const workers = new FakeWorkers();
  workers.answering = false;
  const errors: Error[] = [];
  const sends: number[] = [];
  const requester = new Requester({
    transport: workers,
    runtime,
    resendAfterMs: 3_000,
    maxWaiting: 100,
    onSend: (_id, _count, attempt) => sends.push(attempt),
    onError: (error) => errors.push(error),
  });
  void workers.link({
    onReply: (reply) => requester.receive(reply),
    onMoved: (replyTopic) => requester.resendAll(replyTopic),
    onError: (error) => errors.push(error),
  });
  const ask = (correlationId: string, fields: Partial<BatchRequest> = {}) =>
    requester.request({
      count: 3,
      correlationId: Buffer.from(correlationId),
      replyTopic: 'id.replies.test',
      encoding: 'RANGES',
      expiresAtMs: undefined,
      timeoutMs: 30_000,
      ...fields,
    });
  return { requester, runtime, workers, errors, sends, ask };
}
