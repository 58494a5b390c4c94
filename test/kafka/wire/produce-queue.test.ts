import { describe, expect, it } from 'vitest';
import { ProduceQueue } from '../../../src/kafka/wire/produce-queue.ts';
import type { ProduceRequest, ProduceResponse } from '../../../src/kafka/wire/record-apis.ts';

const to = (topic: string, partition: number, bytes = 10): ProduceRequest => {
  return { topic, partition, batch: Buffer.alloc(bytes), acks: -1, timeoutMs: 100 };
};
const answerTo = ({ partition }: ProduceRequest): ProduceResponse => {
  return { throttleMs: 0, baseOffset: partition, appendedAtMs: -1, logStartOffset: 0 };
};

/** A queue whose requests are recorded and answered. */
function opened() {
  const sent: string[][] = [];
  const queue = new ProduceQueue(async (requests) => {
    sent.push(requests.map(({ topic, partition }) => `${topic}/${partition}`));
    return requests.map(answerTo);
  });
  return { sent, queue };
}

describe('produce calls', () => {
  it('of one turn share a request, and each gets its own answer', async () => {
    const { sent, queue } = opened();
    const calls = [to('a', 0), to('b', 7), to('a', 3)].map(async (request, i) => {
      for (let turns = 0; turns < i; turns += 1) await Promise.resolve();
      return (await queue.produce(request)).baseOffset;
    });
    expect(await Promise.all(calls)).toEqual([0, 7, 3]);
    expect(sent).toEqual([['a/0', 'b/7', 'a/3']]);
  });

  it('of later turns have their own requests', async () => {
    const { sent, queue } = opened();
    await queue.produce(to('a', 0));
    await queue.produce(to('a', 1));
    expect(sent).toEqual([['a/0'], ['a/1']]);
  });

  it('for one partition are sent one after the other, whatever is sent with them', async () => {
    const { sent, queue } = opened();
    await Promise.all([to('a', 0), to('a', 1), to('a', 0), to('a', 2)].map((request) => queue.produce(request)));
    expect(sent).toEqual([
      ['a/0', 'a/1'],
      ['a/0', 'a/2'],
    ]);
  });

  it('wait while two requests are on their way, and share the next one', async () => {
    const sent: number[][] = [];
    const open: (() => void)[] = [];
    const queue = new ProduceQueue(async (requests) => {
      sent.push(requests.map(({ partition }) => partition));
      await new Promise<void>((resolve) => open.push(resolve));
      return requests.map(answerTo);
    });
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    const calls: Promise<ProduceResponse>[] = [];
    for (const partition of [0, 1, 2, 3, 4]) {
      calls.push(queue.produce(to('a', partition)));
      await turn();
    }
    expect(sent).toEqual([[0], [1]]);
    open[0]?.();
    await calls[0];
    await turn();
    await turn();
    expect(sent).toEqual([[0], [1], [2, 3, 4]]);
    for (const answer of open) answer();
    expect((await Promise.all(calls)).map(({ baseOffset }) => baseOffset)).toEqual([0, 1, 2, 3, 4]);
  });

  it('go on after a request that failed', async () => {
    let requests = 0;
    const queue = new ProduceQueue(async (together) => {
      requests += 1;
      if (requests <= 2) throw new Error('lost');
      return together.map(answerTo);
    });
    const outcomes: string[] = [];
    for (let partition = 0; partition < 4; partition += 1) {
      const [{ status }] = (await Promise.allSettled([queue.produce(to('a', partition))])) as [{ status: string }];
      outcomes.push(status);
    }
    expect(outcomes).toEqual(['rejected', 'rejected', 'fulfilled', 'fulfilled']);
  });

  it('share a request up to 8 MiB, and one that is larger goes alone', async () => {
    const { sent, queue } = opened();
    const mib = 1_048_576;
    const requests = [to('a', 0, 5 * mib), to('a', 1, 3 * mib), to('a', 2, 1), to('a', 3, 9 * mib), to('a', 4, 1)];
    await Promise.all(requests.map((request) => queue.produce(request)));
    expect(sent).toEqual([['a/0', 'a/1'], ['a/2'], ['a/3'], ['a/4']]);
  });

  it('fail with the request that they shared, and no other', async () => {
    const queue = new ProduceQueue(async (requests) => {
      if (requests.some(({ topic }) => topic === 'bad')) throw new Error('lost');
      return requests.map(answerTo);
    });
    const calls = [to('bad', 0), to('a', 1), to('bad', 0)].map((request) => queue.produce(request));
    const later = new Promise((resolve) => setImmediate(resolve)).then(() => queue.produce(to('a', 2)));
    expect((await Promise.allSettled([...calls, later])).map(({ status }) => status)).toEqual([
      'rejected',
      'rejected',
      'rejected',
      'fulfilled',
    ]);
  });
});
