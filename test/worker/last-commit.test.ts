import { expect, test } from 'vitest';
import { idsOf, servedRequests } from '../support/staged-requests.ts';

/** Longer than a request takes, and shorter than until it is committed. */
const ANSWERED_MS = 300;
const SLOW_MS = 500;

test('a worker that stops leaves its group once the group has committed what it answered', async () => {
  const { stage, asked } = await servedRequests();
  let [atLeave, leaves]: [number | undefined, number] = [undefined, 0];
  stage.kafka.network.script = (call, way) => {
    if (call === 'leaveGroup' && way === 'there') [atLeave, leaves] = [asked.committed, leaves + 1];
    return call === 'offsetCommit' ? SLOW_MS : undefined;
  };
  const ids = idsOf('late', 4);
  asked.send(ids);
  await stage.pass(ANSWERED_MS);
  expect(asked.counts(ids)).toEqual([1, 1, 1, 1]);
  expect(asked.committed).not.toBe(4);
  await stage.stop();
  expect([atLeave, leaves]).toEqual([4, 1]);
});
