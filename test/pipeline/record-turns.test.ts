import { describe, expect, it } from 'vitest';
import { RecordTurns } from '../../src/pipeline/record-turns.ts';

/** A loop whose turns are counted, with a clock at 0 until somebody sleeps or the test sets it. */
class CountedLoop {
  turn = 0;
  nowMs = 0;
  workedMs = 0;
  /** The share of its time for which the loop works for others. */
  others = 0;
  /** What was scheduled and not cancelled. */
  readonly scheduled = new Map<() => void, number>();

  readonly monotonicMs = () => this.nowMs;
  readonly busyMs = () => this.workedMs;

  readonly schedule = (delayMs: number, run: () => void) => {
    this.scheduled.set(run, this.nowMs + delayMs);
    return { cancel: () => void this.scheduled.delete(run) };
  };

  readonly nextTurn = async (): Promise<void> => {
    await new Promise((resolve) => setImmediate(resolve));
    this.turn += 1;
  };

  readonly sleep = async (delayMs: number): Promise<void> => {
    await this.nextTurn();
    this.nowMs += delayMs;
    this.workedMs += this.others * delayMs;
  };

  /** Work that keeps the loop busy for so long. */
  work(ms: number): void {
    this.nowMs += ms;
    this.workedMs += ms;
  }

  /** Fires what is due at a time. */
  advance(toMs: number): void {
    this.nowMs = toMs;
    for (const [run, atMs] of this.scheduled) {
      if (atMs > toMs) continue;
      this.scheduled.delete(run);
      run();
    }
  }
}

/** Takes these steps at the same time; returns the turn in which each began. */
async function turnsOf(steps: readonly number[]): Promise<number[]> {
  const loop = new CountedLoop();
  const turns = new RecordTurns(loop);
  return await Promise.all(steps.map((records) => turns.take(records).then(() => loop.turn)));
}

/** Does work of so many ms each that others go before, all at once; returns when each began, in ms. */
async function largeOf(turns: RecordTurns, loop: CountedLoop, works: readonly number[]): Promise<number[]> {
  const begin = (ms: number) =>
    turns.large(() => {
      const atMs = loop.nowMs;
      loop.work(ms);
      return atMs;
    });
  return await Promise.all(works.map(begin));
}

describe('steps of records', () => {
  it('begin one in each turn of the event loop, in order, when they are large', async () => {
    expect(await turnsOf([200, 200, 120, 200])).toEqual([0, 1, 2, 3]);
  });

  it('begin in the same turn while they are small together', async () => {
    expect(await turnsOf([40, 40, 120])).toEqual([0, 0, 0]);
  });

  it('of a few records do not wait for large ones', async () => {
    expect(await turnsOf([200, 200, 200, 20])).toEqual([0, 1, 2, 0]);
  });

  it('take more turns where records take long to read', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    const readIn: number[] = [];
    const records = Array.from({ length: 60 }, (_, i) => i);
    await turns.each(records, () => {
      readIn.push(loop.turn);
      loop.work(0.1);
    });
    expect([0, 19, 20, 40, 59].map((i) => readIn[i])).toEqual([0, 0, 1, 2, 2]);
    await turns.each(records, () => readIn.push(loop.turn));
    expect(readIn.at(-1)).toBe(2);
  });
});

describe('what others go before', () => {
  it('begins one piece in each turn, without a rest, when nobody else is served', async () => {
    const loop = new CountedLoop();
    expect(await largeOf(new RecordTurns(loop), loop, [5, 5, 0])).toEqual([0, 5, 10]);
    expect(loop.turn).toBe(3);
  });

  it('rests a millisecond before each piece while others are served, and for a second afterwards', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    expect(await largeOf(turns, loop, [0, 0, 0])).toEqual([1, 2, 3]);
    loop.nowMs = 1_000;
    expect(await largeOf(turns, loop, [0, 0])).toEqual([1_000, 1_000]);
  });

  it('rests seven times as long as the loop worked for it, once, and at most 250 ms', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    expect(await largeOf(turns, loop, [2, 40, 0, 0])).toEqual([1, 1 + 2 + 14, 17 + 40 + 250, 308]);
  });

  it('does not rest for what the loop did for others meanwhile, as it did while they were alone', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    loop.others = 0.5;
    await turns.take(1);
    expect(await largeOf(turns, loop, [4, 0])).toEqual([1, 1 + 4 + 14]);
  });

  it('has one piece in progress while others are served, but for one that takes more than 100 ms', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    const first = Promise.withResolvers<void>();
    const begun: string[] = [];
    const begin = (name: string, until: Promise<void>) =>
      turns.large(async () => {
        begun.push(name);
        await until;
      });
    const all = [begin('slow', first.promise), begin('next', Promise.resolve())];
    const settle = async () => {
      for (let i = 0; i < 5; i += 1) await loop.nextTurn();
    };
    await settle();
    expect(begun).toEqual(['slow']);
    loop.advance(loop.nowMs + 99);
    await settle();
    expect(begun).toEqual(['slow']);
    loop.advance(loop.nowMs + 1);
    await settle();
    expect(begun).toEqual(['slow', 'next']);
    first.resolve();
    await Promise.all(all);
    expect(loop.scheduled.size).toBe(0);
  });

  it('reports what failed, and the next piece begins', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    await expect(turns.large(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await turns.large(() => 'done')).toBe('done');
  });
});
