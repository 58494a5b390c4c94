import { describe, expect, it } from 'vitest';
import { RecordTurns } from '../../src/pipeline/record-turns.ts';

/** Takes these steps at the same time; returns the turn in which each began. */
async function turnsOf(steps: readonly number[]): Promise<number[]> {
  let turn = 0;
  const turns = new RecordTurns({
    nextTurn: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      turn += 1;
    },
  });
  return await Promise.all(steps.map((records) => turns.take(records).then(() => turn)));
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
