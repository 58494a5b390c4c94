import { expect, test } from 'vitest';
import { LoopShare } from '../../src/http/loop-share.ts';

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

test('pieces run in order, as many per turn as its time allows', async () => {
  const clock = { nowMs: 0 };
  const share = new LoopShare(() => clock.nowMs);
  const done: number[] = [];
  for (let piece = 0; piece < 10; piece += 1) {
    share.run(() => {
      done.push(piece);
      clock.nowMs += 0.25;
    });
  }
  const byTurn: number[] = [];
  while (done.length < 10) {
    await nextTurn();
    byTurn.push(done.length);
  }
  expect(byTurn).toEqual([2, 4, 6, 8, 10]);
  expect(done).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('a turn after a connection was accepted has one piece, so that the next can be accepted', async () => {
  const share = new LoopShare(() => 0);
  let done = 0;
  for (let piece = 0; piece < 10; piece += 1) share.run(() => (done += 1));
  const byTurn: number[] = [];
  for (let turn = 0; turn < 3; turn += 1) {
    if (turn < 2) share.accepted();
    await nextTurn();
    byTurn.push(done);
  }
  expect(byTurn).toEqual([1, 2, 10]);
});

test('some pieces run at once, and the others after what else the event loop has to do', async () => {
  const share = new LoopShare(() => 0);
  const done: string[] = [];
  setImmediate(() => done.push('other'));
  for (let piece = 1; piece <= 10; piece += 1) share.runSoon(() => done.push(`soon ${piece}`), 'a');
  expect(done.at(-1)).toBe('soon 8');
  await nextTurn();
  expect(done.slice(8)).toEqual(['other', 'soon 9', 'soon 10']);
  share.run(() => done.push('later'), 'b');
  share.runSoon(() => done.push('soon 11'), 'a');
  await nextTurn();
  expect(done.slice(11)).toEqual(['later', 'soon 11']);
});

test('pieces for the end of a turn run together, after what else came in it', async () => {
  const share = new LoopShare(() => 0);
  const done: string[] = [];
  share.runLast(() => done.push('last 1'));
  await undefined;
  share.runSoon(() => done.push('soon'), 'a');
  share.runLast(() => done.push('last 2'));
  setImmediate(() => done.push('other'));
  await nextTurn();
  expect(done).toEqual(['soon', 'last 1', 'last 2', 'other']);
  share.runLast(() => share.runLast(() => done.push('next turn')));
  await nextTurn();
  expect(done).toHaveLength(4);
  await nextTurn();
  expect(done.at(-1)).toBe('next turn');
});

test('what a piece goes on with counts as time of its turn', async () => {
  const clock = { nowMs: 0 };
  const share = new LoopShare(() => clock.nowMs);
  let done = 0;
  const slow = async () => {
    done += 1;
    await undefined;
    clock.nowMs += 2;
  };
  for (let piece = 0; piece < 3; piece += 1) share.run(() => void slow());
  await nextTurn();
  expect(done).toBe(1);
});

test('callers take turns, so one with many pieces delays another by one piece each', async () => {
  const share = new LoopShare(() => 0);
  const done: string[] = [];
  for (const piece of ['a1', 'a2', 'a3', 'b1', 'b2', 'c1']) share.of(piece[0] as string).run(() => done.push(piece));
  while (done.length < 6) await nextTurn();
  expect(done).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3']);
});

test('a piece queued by a piece runs after those already waiting', async () => {
  const clock = { nowMs: 0 };
  const share = new LoopShare(() => clock.nowMs);
  const done: string[] = [];
  share.run(() => {
    done.push('a1');
    clock.nowMs += 10;
    share.run(() => done.push('a2'));
  });
  share.run(() => done.push('b1'));
  while (done.length < 3) await nextTurn();
  expect(done).toEqual(['a1', 'b1', 'a2']);
});
