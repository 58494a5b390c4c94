import { describe, expect, it } from 'vitest';
import { replayRecord } from '../../src/codec/request-position.ts';
import { type Link, linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, request } from '../support/memory-records.ts';
import { gist, MemoryWorker } from '../support/memory-worker.ts';

const topicOf = (partitions = 1) => new MemoryLedger(partitions, () => 1_700_000_000_000);

/** Waits until everything that can continue has done so. */
async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

describe('an append without an answer', () => {
  it.each(['answer lost', 'entries lost', 'late'] as const)('publishes and resolves nothing (%s)', async (fate) => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf(fate) });
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    expect(worker.publisher.records).toEqual([]);
    expect(worker.events).toEqual(['append 1']);
  });

  it('whose entries landed yields their batch when the requests are retried', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, link: linkOf('answer lost') });
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(gist)).toEqual(['0+1']);
    expect(worker.allocator.asked).toEqual([1]);
    expect(topic.bounds(0).high).toBe(1);
  });

  it('whose entries were lost leaves a gap when the requests are retried', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('entries lost') });
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(gist)).toEqual(['1+1']);
  });

  it('whose entries land after the retry loses against what the retry decided', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, link: linkOf('late') });
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([request(0, 'a')]);
    topic.deliverLate();
    worker.catchUp();
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(gist)).toEqual(['1+1', '1+1']);
  });

  it('whose entries land between the next look-up and its append wins', async () => {
    const topic = topicOf();
    const fates: Array<() => Awaited<ReturnType<Link>>> = [
      () => ({ fate: 'late' }),
      () => {
        topic.deliverLate();
        return { fate: 'pass' };
      },
    ];
    const worker = new MemoryWorker({ topic, link: async () => fates.shift()?.() ?? { fate: 'pass' } });
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(gist)).toEqual(['0+1']);
    expect(worker.allocator.asked).toEqual([1, 1]);
  });

  it('reads the ledger to its end before its turn is over', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, link: linkOf('answer lost'), diligent: false });
    const served = expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await settle();
    const next = worker.serve([request(0, 'a')]);
    await settle();
    expect(worker.events).toEqual(['append 1']);
    worker.catchUp();
    await Promise.all([served, next]);
    expect(worker.allocator.asked).toEqual([1]);
  });

  it('is reported when the ledger cannot be read to its end either', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('answer lost'), diligent: false });
    const served = expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({
      code: 'APPEND_UNANSWERED',
      message: expect.stringContaining("can't be read to its end"),
    });
    await settle();
    worker.timers.fire();
    await served;
  });
});

describe('a log that lost entries', () => {
  it('is LEDGER_TRUNCATED when an append lands below the end that was read, and no reply is sent', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a'), request(1, 'b')]);
    topic.truncate(0, 1);
    const repliedBefore = worker.publisher.records.length;
    await expect(worker.serve([request(2, 'c')])).rejects.toMatchObject({ code: 'LEDGER_TRUNCATED' });
    expect(worker.publisher.records).toHaveLength(repliedBefore);
    expect(worker.copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    expect(worker.restarts).toHaveLength(1);
  });

  it('is served again once it is restored, from what the log still holds', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a'), request(1, 'b')]);
    topic.truncate(0, 1);
    await expect(worker.serve([request(2, 'c')])).rejects.toMatchObject({ code: 'LEDGER_TRUNCATED' });
    await expect(worker.serve([request(2, 'c')])).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    worker.catchUp();
    await worker.serve([request(0, 'a'), request(2, 'c')]);
    expect(worker.replies().slice(2).map(gist)).toEqual(['0+1', '2+1']);
    expect(worker.index.end(0), 'with the marker').toBe(3);
  });

  it('gets no entry for requests that were looked up before the loss: they are looked up again', async () => {
    const topic = topicOf();
    const [one, other] = [new MemoryWorker({ topic, workerId: 1 }), new MemoryWorker({ topic, workerId: 2 })];
    await one.serve(['a', 'b', 'c'].map((id, i) => request(i, id)));
    other.catchUp();
    const allocated = Promise.withResolvers<void>();
    one.allocator.before = () => allocated.promise;
    const served = expect(one.serve([request(10, 'k')])).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    await settle();
    topic.truncate(0, 1);
    for (const worker of [one, other]) {
      worker.copy.invalidate('the log is shorter');
      worker.catchUp();
    }
    await other.serve([request(10, 'k'), request(11, 'd'), request(12, 'e')]);
    one.catchUp();
    const before = topic.bounds(0).high;
    allocated.resolve();
    await served;
    expect(topic.bounds(0).high).toBe(before);
    await one.serve([request(10, 'k')]);
    expect(one.replies().at(-1)?.bytes).toEqual(other.replies()[0]?.bytes);
  });

  it('decides nothing when it comes to light while an append is in flight', async () => {
    const topic = topicOf();
    const answer = Promise.withResolvers<void>();
    const worker = new MemoryWorker({ topic, link: async () => ({ fate: 'pass', back: answer.promise }) });
    topic.land(0, [entry('x')]);
    worker.catchUp();
    topic.truncate(0, 0);
    topic.land(0, [entry('a', { first: 900n })]);
    const served = expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    await settle();
    worker.reader.restart(0);
    worker.reader.poll(0);
    expect(worker.restarts).toHaveLength(1);
    answer.resolve();
    await served;
    worker.catchUp();
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(gist)).toEqual(['900+1']);
  });
});

describe('an append that is answered after the copy was restored', () => {
  it('decides nothing, since the log may have lost its entries meanwhile', async () => {
    const topic = topicOf();
    const answer = Promise.withResolvers<void>();
    const worker = new MemoryWorker({ topic, link: async () => ({ fate: 'pass', back: answer.promise }) });
    topic.land(0, [entry('x')]);
    worker.catchUp();
    const served = expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    await settle();
    expect(topic.bounds(0).high).toBe(2);
    topic.truncate(0, 1);
    worker.copy.invalidate('the log is shorter');
    worker.catchUp();
    expect(worker.copy.refusal).toBeUndefined();
    answer.resolve();
    await served;
    expect(worker.replies()).toEqual([]);
  });
});

describe('settling', () => {
  it('waits until everything below the base offset was read', async () => {
    const topic = topicOf();
    const link: Link = async () => {
      topic.land(0, [entry('a', { first: 900n }), entry('y')]);
      return { fate: 'pass' };
    };
    const worker = new MemoryWorker({ topic, link, diligent: false });
    const served = worker.serve([request(0, 'a')]);
    await settle();
    expect(worker.publisher.records).toEqual([]);
    worker.reader.poll(0, 1);
    await settle();
    expect(worker.publisher.records).toEqual([]);
    worker.reader.poll(0, 1);
    await served;
    expect(worker.replies().map(gist)).toEqual(['900+1']);
  });

  it('does not wait when there is no other writer', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), diligent: false });
    await worker.serve([request(0, 'a')]);
    expect(worker.replies()).toHaveLength(1);
    expect(worker.timers.pending).toBe(0);
  });

  it('has the same result when the reader was faster', async () => {
    const topic = topicOf();
    const answer = Promise.withResolvers<void>();
    const worker = new MemoryWorker({ topic, link: async () => ({ fate: 'pass', back: answer.promise }) });
    const served = worker.serve([request(0, 'a')]);
    await settle();
    worker.catchUp();
    answer.resolve();
    await served;
    expect(worker.replies()).toMatchObject([{ replayed: false }]);
  });

  it('fails when the reader does not catch up, and the requests get their batch later', async () => {
    const topic = topicOf();
    const link: Link = async () => {
      if (topic.bounds(0).high === 0) topic.land(0, [entry('y')]);
      return { fate: 'pass' };
    };
    const worker = new MemoryWorker({ topic, link, diligent: false });
    const served = expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    await settle();
    worker.timers.fire();
    await served;
    expect(worker.publisher.records).toEqual([]);
    worker.catchUp();
    await worker.serve([request(0, 'a')]);
    expect(worker.replies().map(gist)).toEqual(['0+1']);
  });
});

describe('turns', () => {
  it('two batches of one partition never have two appends in flight', async () => {
    const inFlight = { now: 0, most: 0 };
    const answers: Array<() => void> = [];
    const link: Link = async () => {
      inFlight.now += 1;
      inFlight.most = Math.max(inFlight.most, inFlight.now);
      const back = new Promise<void>((resolve) => answers.push(resolve)).then(() => {
        inFlight.now -= 1;
      });
      return { fate: 'pass', back };
    };
    const worker = new MemoryWorker({ topic: topicOf(), link });
    const served = ['a', 'b', 'c'].map((id, i) => worker.serve([request(i, id)]));
    for (let i = 0; i < 3; i += 1) {
      await settle();
      expect(answers).toHaveLength(i + 1);
      answers[i]?.();
    }
    await Promise.all(served);
    expect(inFlight.most).toBe(1);
    expect(worker.replies().map(gist)).toEqual(['0+1', '1+1', '2+1']);
  });

  it('partitions do not wait for one another', async () => {
    const link: Link = async (partition) => ({
      fate: 'pass',
      ...(partition === 0 ? { back: new Promise<void>(() => {}) } : {}),
    });
    const worker = new MemoryWorker({ topic: topicOf(2), partitions: 2, link });
    void worker.serve([request(0, 'a')], 0);
    await worker.serve([request(0, 'b')], 1);
    expect(worker.replies().map(({ id }) => id)).toEqual(['b']);
  });

  it('a turn that fails does not fail the next', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('entries lost') });
    const failing = expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await worker.serve([request(1, 'b')]);
    await failing;
    expect(worker.replies().map(({ id }) => id)).toEqual(['b']);
  });

  it('a request delivered by two sessions gets one batch', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic });
    await Promise.all([worker.serve([request(0, 'a')]), worker.serve([request(0, 'a')])]);
    expect(topic.bounds(0).high).toBe(1);
    expect(worker.replies().map(gist)).toEqual(['0+1', '0+1']);
  });
});

describe('the reader, while an append is in flight', () => {
  /** The offset from which the reader must read, once it is known; undefined while it waits. */
  function asked(worker: MemoryWorker): { from: number | undefined } {
    const answer: { from: number | undefined } = { from: undefined };
    void worker.copy.neededFrom().then((from) => {
      answer.from = from;
    });
    return answer;
  }

  it('waits for the answer, and then reads from the entry that was settled last', async () => {
    const back = Promise.withResolvers<void>();
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, link: async () => ({ fate: 'pass', back: back.promise }) });
    const served = worker.serve([request(0, 'a'), request(1, 'b')]);
    await settle();
    expect(topic.bounds(0).high).toBe(2);
    const answer = asked(worker);
    await settle();
    expect(answer.from).toBeUndefined();
    back.resolve();
    await served;
    expect(answer.from).toBe(1);
  });

  it.each<[string, Link]>([
    ['is not answered', linkOf('answer lost')],
    ['has to wait for entries that lie before its own', linkOf('sent again')],
  ])('continues when the append %s', async (_, link) => {
    const worker = new MemoryWorker({ topic: topicOf(), link, diligent: false });
    const served = worker.serve([request(0, 'a')]).catch(() => undefined);
    await settle();
    const answer = asked(worker);
    await settle();
    expect(answer.from).toBe(0);
    worker.catchUp();
    await served;
  });
});

describe('the statement of a replay', () => {
  it('that reaches the log again, behind that of a later replay, is void', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, link: linkOf('echoed') });
    await worker.ledger.stateReplay(0, 40);
    await worker.ledger.stateReplay(0, 50);
    topic.deliverLate();
    topic.land(0, [replayRecord(0, 0)]);
    worker.catchUp();
    expect([worker.index.answeredBelow(0), worker.index.end(0)]).toEqual([50, 4]);
  });

  it('is OVERTAKEN where another writer comes first, and counts when it is written again', async () => {
    const topic = topicOf();
    const others = [[replayRecord(30, 0)], []];
    const worker = new MemoryWorker({
      topic,
      link: async () => {
        topic.land(0, others.shift() ?? []);
        return { fate: 'pass' };
      },
    });
    await expect(worker.ledger.stateReplay(0, 40)).rejects.toMatchObject({ code: 'OVERTAKEN' });
    expect(worker.index.answeredBelow(0)).toBe(30);
    await worker.ledger.stateReplay(0, 40);
    expect(worker.index.answeredBelow(0)).toBe(40);
  });

  it('is not written where a greater one counts', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic });
    await worker.ledger.stateReplay(0, 40);
    await worker.ledger.stateReplay(0, 30);
    expect(topic.bounds(0).high).toBe(1);
  });
});
