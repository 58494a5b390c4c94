import { describe, expect, test } from 'vitest';
import { Requester } from '../../src/client/requester.ts';
import { encodeBatch, FakeRuntime, FakeWorkers, turns } from './stage.ts';

describe('requests whose reply topic moved', () => {
  test('are sent again at once, and once each time they are due after that', async () => {
    const { requester, runtime, workers, ask } = stageRequester();
    const replies = [ask('moved', 'id.replies.moved'), ask('other', 'id.replies.other')];
    await turns();
    requester.resendAll('id.replies.moved');
    await turns();
    expect(workers.sent.map(({ correlationId }) => correlationId)).toEqual(['moved', 'other', 'moved']);
    await runtime.pass(6_500);
    const sent = workers.sent.splice(3).map(({ correlationId }) => correlationId);
    expect(sent.toSorted()).toEqual(['moved', 'other']);
    for (const id of ['moved', 'other']) workers.answer(id, 3);
    await Promise.all(replies);
    expect(runtime.timers).toBe(0);
  });

  test('are sent again also while a send is under way, which then schedules nothing', async () => {
    const { requester, runtime, workers, ask } = stageRequester();
    workers.gate = Promise.withResolvers();
    const reply = ask('x', 'id.replies.moved');
    requester.resendAll('id.replies.moved');
    workers.gate.resolve();
    await turns();
    expect(workers.sent).toHaveLength(2);
    expect(runtime.timers).toBe(2); // the time limit and one resend
    workers.reply('x', encodeBatch('x', [{ first: 1n, count: 3 }]));
    await reply;
    expect(runtime.timers).toBe(0);
  });
});

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
  const ask = (correlationId: string, replyTopic = 'id.replies.test', count = 3) =>
    requester.request({
      count,
      correlationId: Buffer.from(correlationId),
      replyTopic,
      encoding: 'RANGES',
      expiresAtMs: undefined,
      timeoutMs: 30_000,
    });
  return { requester, runtime, workers, errors, sends, ask };
}
