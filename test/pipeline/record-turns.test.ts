import { describe, expect, it } from 'vitest';
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

/** Takes steps one after another that others go before; returns when each began, in ms. */
async function largeOf(turns: RecordTurns, loop: CountedLoop, steps: number): Promise<number[]> {
  const begun = Array.from({ length: steps }, () => turns.takeLarge(200).then(() => loop.nowMs));
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

describe('steps that others go before', () => {
  it('begin one in each turn, without a rest, when nobody else is served', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    turns.didLarge(5_000);
    expect(await largeOf(turns, loop, 3)).toEqual([0, 0, 0]);
    expect(loop.turn).toBe(3);
  });

  it('rest a millisecond before each while others are served, and for a second afterwards', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    expect(await largeOf(turns, loop, 3)).toEqual([1, 2, 3]);
    loop.nowMs = 1_000;
    expect(await largeOf(turns, loop, 2)).toEqual([1_000, 1_000]);
  });

  it('rest as long as what was begun before them costs, once', async () => {
    const loop = new CountedLoop();
    const turns = new RecordTurns(loop);
    await turns.take(1);
    turns.didLarge(1_500);
    turns.didLarge(2_500);
    expect(await largeOf(turns, loop, 2)).toEqual([4, 5]);
    turns.didLarge(10);
    expect(await largeOf(turns, loop, 1)).toEqual([6]);
  });
});
