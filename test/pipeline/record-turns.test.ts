import { describe, expect, it } from 'vitest';
import { PRICES_US } from '../../src/pipeline/accounts.ts';
import { RecordTurns } from '../../src/pipeline/record-turns.ts';

/** A loop whose turns are counted, with a clock at 0 until somebody sleeps or the test sets it. */
class CountedLoop {
  turn = 0;
  nowMs = 0;

  readonly monotonicMs = () => this.nowMs;

  readonly nextTurn = async (): Promise<void> => {
    await new Promise((resolve) => setImmediate(resolve));
    this.turn += 1;
  };

  readonly sleep = async (delayMs: number): Promise<void> => {
    await this.nextTurn();
    this.nowMs += delayMs;
  };
}

/** Takes these steps at the same time; returns the turn in which each began. */
async function turnsOf(steps: readonly number[]): Promise<number[]> {
  const loop = new CountedLoop();
  const turns = new RecordTurns(loop);
  return await Promise.all(steps.map((records) => turns.take(records).then(() => loop.turn)));
}

/** Takes steps of bulk one after another; returns when each began, in ms. */
async function bulkOf(turns: RecordTurns, loop: CountedLoop, steps: number, bulk?: 'dense'): Promise<number[]> {
  const begun = Array.from({ length: steps }, () => turns.takeBulk(200, bulk).then(() => loop.nowMs));
  return await Promise.all(begun);
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
});

describe('steps of bulk', () => {
  it('begin one in each turn, without a rest, when nobody else is served', async () => {
    const loop = new CountedLoop();
    expect(await bulkOf(new RecordTurns(loop), loop, 3)).toEqual([0, 0, 0]);
    expect(loop.turn).toBe(3);
  });

  it('rest two milliseconds before each while others are served, and for a second afterwards', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    expect(await bulkOf(turns, loop, 3)).toEqual([2, 4, 6]);
    loop.nowMs = 1_000;
    expect(await bulkOf(turns, loop, 2)).toEqual([1_000, 1_000]);
  });

  it('rest longer after steps that cost more than as many ordinary requests, once', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    turns.didBulk(1_000);
    turns.didBulk(3 * 200 * PRICES_US.request - 1_000);
    expect(await bulkOf(turns, loop, 2)).toEqual([6, 8]);
    turns.didBulk(10);
    expect(await bulkOf(turns, loop, 1)).toEqual([10]);
  });

  it('of dense batches rest longer', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    expect(await bulkOf(turns, loop, 3, 'dense')).toEqual([7, 14, 21]);
  });
});
