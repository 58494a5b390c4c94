import { describe, expect, it } from 'vitest';
import type { RequestPosition } from '../../src/codec/request-position.ts';
import { IdallocError } from '../../src/errors.ts';
import type { RequestChunk, RequestRecord } from '../../src/pipeline/ports.ts';
import { type RequestHandler, RequestSession } from '../../src/pipeline/request-session.ts';

const PARTITION = 3;

function recordsAt(...offsets: number[]): RequestRecord[] {
  return offsets.map((offset) => ({ offset, key: null, value: null, headers: {}, timestampMs: 0 }));
}

/** One call of the handler, which ends when the test says so. */
interface Call {
  readonly offsets: readonly number[];
  readonly control: Parameters<RequestHandler>[2];
  end(error?: unknown): Promise<void>;
}

/** The partition is read again for the requests of a lane. */
interface Rereading {
  readonly lane: string;
  readonly from: number;
  readonly deliver: (chunk: RequestChunk) => Promise<void>;
  stopped: boolean;
}

/** Lets everything run that can run now. */
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

interface Given {
  readonly isOpen?: boolean;
  readonly position?: RequestPosition;
  /** By default each call ends when the test says so. */
  readonly handler?: RequestHandler;
}

function scene({ isOpen = true, position, handler }: Given = {}) {
  const calls: Call[] = [];
  const progress: number[] = [];
  const faults: boolean[] = [];
  const timers: Array<{ readonly delayMs: number; readonly run: () => void; cancelled: boolean }> = [];
  const readings: Rereading[] = [];
  /** Those for requests of accounts in debt, and for numbers. */
  const [debtReadings, numberReadings]: [Rereading[], Rereading[]] = [[], []];
  const session = new RequestSession({
    partition: PARTITION,
    isOpen,
    position,
    readAgain: (lane, from, deliver) => {
      const reading: Rereading = { lane, from, deliver, stopped: false };
      ({ large: readings, debts: debtReadings, numbers: numberReadings })[lane].push(reading);
      return { stop: () => (reading.stopped = true) };
    },
    handler:
      handler ??
      ((_partition, records, control) => {
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        calls.push({
          offsets: records.map(({ offset }) => offset),
          control,
          end: (error) => {
            if (error === undefined) resolve();
            else reject(error);
            return turn();
          },
        });
        return promise;
      }),
    runtime: {
      schedule: (delayMs, run) => {
        const timer = { delayMs, run, cancelled: false };
        timers.push(timer);
        return { cancel: () => (timer.cancelled = true) };
      },
    },
    onProgress: ({ next }) => progress.push(next),
    onError: (_error, lasting) => faults.push(lasting),
  });
  const due = () => timers.filter(({ cancelled }) => !cancelled);
  return { session, calls, progress, faults, due, readings, debtReadings, numberReadings };
}

const passing = new IdallocError('APPEND_UNANSWERED', 'no answer');
const lasting = new IdallocError('LEDGER_UNREADABLE', 'not ours');

describe('a request session', () => {
  it('takes the next chunk when all records of this one were answered, and moves past markers that follow them', async () => {
    const { session, calls, progress } = scene();
    let taken = false;
    const delivered = session.deliver({ records: recordsAt(5, 6), next: 9 }).then(() => (taken = true));
    calls[0]?.control.resolved(5);
    await turn();
    expect([taken, session.position?.next]).toEqual([false, 6]);
    calls[0]?.control.resolved(6);
    await calls[0]?.end();
    await delivered;
    expect([session.position?.next, progress]).toEqual([9, [6, 7, 9]]);
  });

  it('moves past a chunk of markers alone without calling the handler', async () => {
    const { session, calls } = scene();
    await session.deliver({ records: [], next: 4 });
    expect([session.position?.next, calls.length]).toEqual([4, 0]);
  });

  it('retries from the first unanswered record, after a pause', async () => {
    const { session, calls, faults, due } = scene();
    void session.deliver({ records: recordsAt(1, 2, 3), next: 4 });
    calls[0]?.control.resolved(1);
    await calls[0]?.end(passing);
    expect([calls.length, faults, due().map(({ delayMs }) => delayMs)]).toEqual([1, [false], [200]]);
    due()[0]?.run();
    await turn();
    expect(calls[1]?.offsets).toEqual([2, 3]);
  });

  it('pauses longer after an error that waiting cannot fix', async () => {
    const { session, calls, faults, due } = scene();
    void session.deliver({ records: recordsAt(1), next: 2 });
    await calls[0]?.end(lasting);
    expect([faults, due().map(({ delayMs }) => delayMs)]).toEqual([[true], [5_000]]);
  });

  it('calls the handler once at a time', async () => {
    const { session, calls } = scene();
    void session.deliver({ records: recordsAt(1), next: 2 });
    session.pause();
    session.resume();
    await turn();
    expect(calls.length).toBe(1);
  });

  it('starts nothing while its gate is closed, and continues when it opens', async () => {
    const { session, calls } = scene({ isOpen: false });
    void session.deliver({ records: recordsAt(1), next: 2 });
    await turn();
    expect(calls.length).toBe(0);
    session.resume();
    await turn();
    expect(calls.length).toBe(1);
  });

  it('lets the part in progress finish when its gate closes, and leaves the rest for later', async () => {
    const { session, calls } = scene();
    void session.deliver({ records: recordsAt(1, 2), next: 3 });
    expect(calls[0]?.control.isCurrent()).toBe(true);
    session.pause();
    expect(calls[0]?.control.isCurrent()).toBe(false);
    calls[0]?.control.resolved(1);
    await calls[0]?.end();
    expect([session.position?.next, calls.length]).toEqual([2, 1]);
    session.resume();
    await turn();
    expect(calls[1]?.offsets).toEqual([2]);
  });

  it('ends the pause when its gate opens, and does not continue twice', async () => {
    const { session, calls, due } = scene();
    void session.deliver({ records: recordsAt(1), next: 2 });
    session.pause();
    await calls[0]?.end(passing);
    const rest = due()[0];
    session.resume();
    await turn();
    expect([calls.length, due().length]).toEqual([2, 0]);
    rest?.run();
    await turn();
    expect(calls.length).toBe(2);
  });

  it('keeps the pause when it is resumed but its gate was never closed', async () => {
    const { session, calls, due } = scene();
    void session.deliver({ records: recordsAt(1), next: 2 });
    await calls[0]?.end(passing);
    session.resume();
    await turn();
    expect([calls.length, due().length]).toEqual([1, 1]);
  });

  it('that has ended resolves nothing, starts nothing, and blocks no caller', async () => {
    const { session, calls, progress } = scene();
    let left = false;
    void session.deliver({ records: recordsAt(1, 2), next: 3 }).then(() => (left = true));
    session.end();
    expect(calls[0]?.control.isCurrent()).toBe(false);
    calls[0]?.control.resolved(1);
    await calls[0]?.end();
    expect([session.position?.next, progress, calls.length, left]).toEqual([undefined, [], 1, true]);
    await session.deliver({ records: recordsAt(2), next: 3 });
    expect(calls.length).toBe(1);
  });

  it('that ends during a pause leaves no timer behind', async () => {
    const { session, calls, due } = scene();
    const delivered = session.deliver({ records: recordsAt(1), next: 2 });
    await calls[0]?.end(passing);
    session.end();
    await delivered;
    expect(due()).toEqual([]);
  });

  it('is settled when the part in progress has ended, answered or not', async () => {
    const { session, calls } = scene();
    await session.settled;
    void session.deliver({ records: recordsAt(1), next: 2 });
    let settled = false;
    void session.settled.then(() => (settled = true));
    await turn();
    expect(settled).toBe(false);
    session.pause();
    await calls[0]?.end(passing);
    expect(settled).toBe(true);
  });

  it('never moves back, whatever is reported late', async () => {
    const { session, calls, progress } = scene();
    void session.deliver({ records: recordsAt(1, 2, 3), next: 4 });
    calls[0]?.control.resolved(3);
    calls[0]?.control.resolved(1);
    expect([session.position?.next, progress]).toEqual([4, [4]]);
  });
});

describe('parts', () => {
  /** Cuts each chunk into parts of one request, and answers each when the test says so. */
  function partScene() {
    const answers = new Map<number, { resolve: () => void; reject: (error: unknown) => void; tries: number }>();
    const answer = (offset: number) => () => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      answers.set(offset, { resolve, reject, tries: (answers.get(offset)?.tries ?? 0) + 1 });
      return promise;
    };
    const cut: RequestHandler = async (_partition, records, control) => {
      for (const { offset } of records) await control.answer?.(offset, answer(offset));
    };
    const { session, progress, faults, due } = scene({ handler: cut });
    const deliver = (...offsets: number[]) => {
      const next = Math.max(...offsets) + 1;
      return session.deliver({ records: recordsAt(...offsets), next, answered: () => progress.push(-next) });
    };
    const settle = async (offset: number, error?: unknown) => {
      if (error === undefined) answers.get(offset)?.resolve();
      else answers.get(offset)?.reject(error);
      await turn();
    };
    const tries = () => [...answers].map(([offset, { tries }]) => `${offset}: ${tries}`);
    return { session, progress, faults, due, tries, deliver, settle };
  }

  it('of later chunks are begun while those before them wait for their replies, two beyond the first that does', async () => {
    const { tries, deliver, settle } = partScene();
    await deliver(1);
    await deliver(2);
    let taken = false;
    void deliver(3, 4).then(() => (taken = true));
    await turn();
    expect([tries(), taken]).toEqual([['1: 1', '2: 1', '3: 1'], false]); // biome-ignore format: pairs
    await settle(2);
    expect([tries().length, taken]).toEqual([3, false]);
    await settle(1);
    expect([tries().length, taken]).toEqual([4, true]);
  });

  it('move the position when all before them are answered, and then their chunk counts as answered', async () => {
    const { session, progress, deliver, settle } = partScene();
    await deliver(1);
    await deliver(2);
    await settle(2);
    expect([session.position, progress]).toEqual([undefined, []]);
    await settle(1);
    expect([session.position?.next, progress]).toEqual([3, [2, -2, 3, -3]]);
  });

  it('that fail are retried alone, after a pause, and hold up none after them', async () => {
    const { session, faults, due, tries, deliver, settle } = partScene();
    await deliver(1);
    await settle(1, passing);
    await deliver(2);
    await settle(2);
    expect([faults, due().map(({ delayMs }) => delayMs)]).toEqual([[false], [200]]);
    due()[0]?.run();
    await turn();
    expect(tries()).toEqual(['1: 2', '2: 1']);
    await settle(1);
    expect(session.position?.next).toBe(3);
  });

  it('are not begun again when their chunk is read once more, and wait for the gate', async () => {
    const { session, tries, deliver, settle } = partScene();
    await deliver(1);
    session.pause();
    await settle(1, passing);
    void deliver(1, 2);
    await turn();
    expect(tries()).toEqual(['1: 1']);
    session.resume();
    await turn();
    expect(tries()).toEqual(['1: 2', '2: 1']);
  });

  it('that end after their session resolve nothing, and the session is settled only then', async () => {
    const { session, progress, deliver, settle } = partScene();
    await deliver(1);
    session.end();
    let settled = false;
    void session.settled.then(() => (settled = true));
    await turn();
    expect(settled).toBe(false);
    await settle(1);
    expect([settled, session.position, progress.filter((next) => next > 0)]).toEqual([true, undefined, []]);
  });
});

const large = (offset: number) => recordsAt(offset)[0] as RequestRecord;

describe('deferred requests', () => {
  it('are served in parallel with those after them, in the next chunk as well', async () => {
    const { session, calls } = scene();
    const delivered = session.deliver({ records: recordsAt(1, 2), next: 3 });
    calls[0]?.control.deferrals?.large?.take(large(1));
    calls[0]?.control.resolved(2);
    await calls[0]?.end();
    await delivered;
    void session.deliver({ records: recordsAt(3), next: 4 });
    expect(calls.map(({ offsets }) => offsets)).toEqual([[1, 2], [1], [3]]);
    expect(calls.map(({ control }) => [control.deferrals?.large !== undefined, control.lane])).toEqual([
      [true, undefined],
      [false, 'large'],
      [true, undefined],
    ]);
  });

  it('hold back the offset to commit, and not the position of the small ones, until they are answered', async () => {
    const { session, calls, progress } = scene();
    void session.deliver({ records: recordsAt(1, 2, 3), next: 4 });
    calls[0]?.control.deferrals?.large?.take(large(2));
    calls[0]?.control.resolved(3);
    expect(session.position).toEqual({ next: 2, small: 4 });
    await calls[0]?.end();
    calls[1]?.control.resolved(2);
    expect([session.position, progress]).toEqual([{ next: 4, small: 4 }, [2, 4]]);
  });

  it('wait in lanes of their own, so that large ones do not wait for those of accounts in debt', async () => {
    const { session, calls } = scene();
    void session.deliver({ records: recordsAt(1, 2), next: 3 });
    calls[0]?.control.deferrals?.debts?.take(large(1));
    calls[0]?.control.deferrals?.large?.take(large(2));
    calls[0]?.control.resolved(2);
    expect(calls.slice(1).map(({ offsets, control }) => [offsets, control.lane])).toEqual([
      [[1], 'debts'],
      [[2], 'large'],
    ]);
    calls[2]?.control.resolved(2);
    expect([session.position?.next, session.oldestLarge()?.waiting]).toEqual([1, 1]);
  });

  it('are retried after an error, and then the next of them', async () => {
    const { session, calls, due } = scene();
    void session.deliver({ records: recordsAt(1, 2), next: 3 });
    calls[0]?.control.deferrals?.large?.take(large(1));
    calls[0]?.control.deferrals?.large?.take(large(2));
    calls[0]?.control.resolved(2);
    await calls[0]?.end();
    calls[1]?.control.resolved(1);
    await calls[1]?.end(passing);
    due()[0]?.run();
    await turn();
    expect(calls.slice(1).map(({ offsets }) => offsets)).toEqual([[1], [2]]);
    calls[2]?.control.resolved(2);
    await calls[2]?.end();
    expect([session.position?.next, calls.length]).toEqual([3, 3]);
  });

  it('are not started while the gate is closed, and count for settled', async () => {
    const { session, calls } = scene();
    void session.deliver({ records: recordsAt(1), next: 2 });
    session.pause();
    calls[0]?.control.deferrals?.large?.take(large(1));
    calls[0]?.control.resolved(1);
    await calls[0]?.end();
    expect(calls.length).toBe(1);
    session.resume();
    await turn();
    expect(calls[1]?.offsets).toEqual([1]);
    let settled = false;
    void session.settled.then(() => (settled = true));
    await turn();
    expect(settled).toBe(false);
    session.end();
    await calls[1]?.end();
    expect([settled, session.position?.next]).toEqual([true, 1]);
  });

  it('are served, however soon after the last answer they are deferred', async () => {
    for (let microtasks = 0; microtasks <= 12; microtasks += 1) {
      const { session, calls } = scene();
      void session.deliver({ records: recordsAt(1), next: 2 });
      calls[0]?.control.deferrals?.large?.take(large(1));
      calls[0]?.control.resolved(1);
      await calls[0]?.end();
      void session.deliver({ records: recordsAt(2), next: 3 });
      calls[1]?.control.resolved(1);
      const answered = calls[1]?.end();
      for (let i = 0; i < microtasks; i += 1) await Promise.resolve();
      calls[2]?.control.deferrals?.large?.take(large(2));
      await answered;
      expect(calls.slice(3).map(({ offsets }) => offsets)).toEqual([[2]]);
    }
  });
});

describe('requests for numbers', () => {
  const deferNumbers = (call: Call | undefined, ...offsets: number[]) => {
    for (const offset of offsets) call?.control.deferrals?.numbers?.take(large(offset));
  };

  it('are served beside all others and beside large ones, whose answers do not wait for theirs', async () => {
    const { session, calls } = scene();
    void session.deliver({ records: recordsAt(1, 2, 3), next: 4 });
    deferNumbers(calls[0], 1);
    calls[0]?.control.deferrals?.large?.take(large(2));
    calls[0]?.control.resolved(3);
    await calls[0]?.end();
    void session.deliver({ records: recordsAt(4), next: 5 });
    expect(calls.map(({ offsets, control }) => [offsets, control.lane])).toEqual([
      [[1, 2, 3], undefined],
      [[1], 'numbers'],
      [[2], 'large'],
      [[4], undefined],
    ]);
    calls[3]?.control.resolved(4);
    calls[2]?.control.resolved(2);
    expect(session.position).toEqual({ next: 1, small: 5 });
    calls[1]?.control.resolved(1);
    expect(session.position).toEqual({ next: 5, small: 5 });
  });

  it('that come while others are decided are served together afterwards, as many as one part takes', async () => {
    const { session, calls } = scene();
    const offsets = Array.from({ length: 551 }, (_, i) => i);
    void session.deliver({ records: recordsAt(...offsets), next: 551 });
    deferNumbers(calls[0], 0);
    deferNumbers(calls[0], ...offsets.slice(1));
    calls[0]?.control.resolved(550);
    calls[1]?.control.resolved(0);
    await calls[1]?.end();
    calls[2]?.control.resolved(500);
    await calls[2]?.end();
    expect(calls.slice(1).map(({ offsets: some }) => [some[0], some.length])).toEqual([
      [0, 1],
      [1, 500],
      [501, 50],
    ]);
    expect(session.oldestNumbers()).toEqual({ waiting: 50, sinceMs: 0 });
  });
});

describe('deferred requests that are not in memory', () => {
  /** Everything below 3 is answered; below 8, everything but large requests. */
  const position = { next: 3, small: 8 };

  /** A scene in which the earlier session left no request for numbers. */
  async function largeScene(at: RequestPosition = position) {
    const parts = scene({ position: at });
    for (const one of [parts.debtReadings, parts.numberReadings])
      await one[0]?.deliver({ records: [], next: at.small });
    return parts;
  }

  it('are read again from the first of them, as are those of an earlier session', async () => {
    const { session, calls, readings } = await largeScene();
    expect(readings.map(({ from }) => from)).toEqual([3]);
    void readings[0]?.deliver({ records: recordsAt(3, 4, 5), next: 6 });
    expect(calls.map(({ offsets, control }) => [offsets, control.prepared !== undefined])).toEqual([[[3, 4, 5], true]]);
    calls[0]?.control.resolved(4);
    expect(session.position).toEqual({ next: 5, small: 8 });
    calls[0]?.control.resolved(5);
    await calls[0]?.end();
    expect([session.position, readings[0]?.stopped]).toEqual([{ next: 6, small: 8 }, false]);
    void readings[0]?.deliver({ records: recordsAt(7, 8, 9), next: 10 });
    expect(calls[1]?.offsets).toEqual([7]);
    calls[1]?.control.resolved(7);
    await calls[1]?.end();
    expect([session.position, readings[0]?.stopped]).toEqual([{ next: 8, small: 8 }, true]);
  });

  it('do not hold up the small ones, which continue where the earlier session was', async () => {
    const { session, calls } = scene({ position });
    void session.deliver({ records: recordsAt(7, 8), next: 9 });
    expect(calls[0]?.offsets).toEqual([8]);
    calls[0]?.control.resolved(8);
    expect(session.position).toEqual({ next: 3, small: 9 });
  });

  it('include one that is deferred while the last of them is served', async () => {
    const { session, calls, readings } = await largeScene({ next: 3, small: 4 });
    void session.deliver({ records: recordsAt(4), next: 5 });
    void readings[0]?.deliver({ records: recordsAt(3, 4), next: 5 });
    expect(calls.map(({ offsets }) => offsets)).toEqual([[4], [3]]);
    calls[0]?.control.deferrals?.large?.take(large(4));
    calls[0]?.control.resolved(4);
    calls[1]?.control.resolved(3);
    await calls[1]?.end();
    expect([session.position, calls[2]?.offsets]).toEqual([{ next: 4, small: 5 }, [4]]);
  });

  it('are read for each lane by itself, and the position has the lowest of what is left', async () => {
    const { session, calls, readings, debtReadings, numberReadings } = scene({ position });
    expect([...readings, ...debtReadings, ...numberReadings].map(({ lane, from }) => [lane, from])).toEqual([
      ['large', 3],
      ['debts', 3],
      ['numbers', 3],
    ]);
    void numberReadings[0]?.deliver({ records: recordsAt(3, 5, 7), next: 8 });
    expect(calls.map(({ offsets, control }) => [offsets, control.lane])).toEqual([[[3, 5, 7], 'numbers']]);
    for (const one of [readings, debtReadings]) await one[0]?.deliver({ records: [], next: 8 });
    expect(session.position).toEqual(position);
    calls[0]?.control.resolved(5);
    expect(session.position).toEqual({ next: 6, small: 8 });
    calls[0]?.control.resolved(7);
    await calls[0]?.end();
    expect([session.position, numberReadings[0]?.stopped]).toEqual([{ next: 8, small: 8 }, true]);
  });

  it('are read no further once the session has ended', async () => {
    const { session, readings, debtReadings, numberReadings } = scene({ position });
    session.end();
    expect([...readings, ...debtReadings, ...numberReadings].map(({ stopped }) => stopped)).toEqual([true, true, true]);
  });
});
