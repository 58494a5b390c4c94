import { expect, test } from 'vitest';
import { ReplayStage } from './replay-stage.ts';

/** A stage on which workers have answered 8 of 10 requests of each partition. */
function stage(): ReplayStage {
  const at = new ReplayStage();
  for (const partition of [0, 1]) {
    at.requests(partition, 6);
    at.requests(partition, 4);
    at.answered(partition, 8);
  }
  return at;
}

test('the ledger states what was answered before any offset moves', async () => {
  const at = stage();
  await at.replay({ from: 2 });
  expect(at.statements).toEqual(['0: 8', '1: 8']);
  expect(at.done).toEqual(['stated 0', 'stated 1', '0 at 2 {"small":2}', '1 at 2 {"small":2}']);
});

test('no offset moves if a statement is not acknowledged', async () => {
  const at = stage();
  at.refuses('NOT_ENOUGH_REPLICAS');
  await expect(at.replay()).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
  expect([at.done, await at.offsets()]).toEqual([[], [8, 8]]);
});

test('a login that may not write the ledger is told so, and no offset moves', async () => {
  const at = stage();
  at.refuses('TOPIC_AUTHORIZATION_FAILED');
  await expect(at.replay()).rejects.toMatchObject({ code: 'TOPIC_INVALID', message: expect.stringContaining('admin') });
  expect(await at.offsets()).toEqual([8, 8]);
});

test('what workers answer after the plan was made stops the replay: the statement does not cover it', async () => {
  const at = stage();
  at.onCall = (api) => {
    if (api === 'produce') at.answered(1, 9);
  };
  await expect(at.replay()).rejects.toMatchObject({
    code: 'GROUP_ACTIVE',
    message: expect.stringContaining('1 is at 9, not 8'),
  });
  expect(await at.offsets()).toEqual([8, 9]);
});

test('nothing is stated if workers have run since the plan was made: that would replace the statement of a replay in progress', async () => {
  const at = stage();
  at.onCall = (api) => {
    if (api === 'describeGroups') at.answered(1, 9);
  };
  await expect(at.replay({ decideRefused: true })).rejects.toMatchObject({ code: 'GROUP_ACTIVE' });
  expect([at.statements, at.done]).toEqual([[], []]);
});

test('no offset moves in another cluster that has replaced this one, not even while the command waits for its coordinator', async () => {
  for (const api of ['describeGroups', 'offsetCommit']) {
    const at = stage();
    at.onCall = (called) => {
      if (called !== api) return;
      at.onCall = () => undefined;
      at.isReplaced();
    };
    await expect(at.replay()).rejects.toMatchObject({ code: 'CLUSTER_CHANGED' });
    expect([await at.offsets(), at.done.filter((one) => one.includes(' at '))]).toEqual([[8, 8], []]);
  }
});

test('the last request that workers read may have been in a dense batch, of which they read the checksum alone', async () => {
  const at = stage();
  at.requests(0, 600, Buffer.alloc(0));
  at.answeredDense(0);
  await at.replay();
  expect(at.statements).toEqual(['0: 610', '1: 8']);
});

test('a statement is written again until it is at its place, since a marker of a worker may come first', async () => {
  const at = stage();
  let others = 2;
  at.onCall = (api) => {
    if (api !== 'produce' || others === 0) return;
    others -= 1;
    at.entries(0, 3);
  };
  await at.replay({ from: 2 });
  expect(at.statements).toEqual(['0: 8', '1: 8']);
  expect(at.done.filter((one) => one.startsWith('stated'))).toEqual(['stated 0', 'stated 0', 'stated 0', 'stated 1']);
});

test('no offset moves if others always write to the ledger first', async () => {
  const at = stage();
  at.onCall = (api) => {
    if (api === 'produce') at.entries(0, 1);
  };
  await expect(at.replay()).rejects.toMatchObject({ code: 'OVERTAKEN' });
  expect([at.statements, await at.offsets()]).toEqual([[], [8, 8]]);
});

test('--decide-refused states that nothing is refused', async () => {
  const at = stage();
  await at.replay({ decideRefused: true });
  expect(at.statements).toEqual(['0: 0', '1: 0']);
});

test('a second replay states no less than the first one while that is in progress', async () => {
  const at = stage();
  await at.replay({ from: 2 });
  at.answered(0, 3);
  at.entries(0, 3);
  expect((await at.replay({ from: 1 })).plan.map(({ to, below }) => [to, below])).toEqual([
    [3, 8],
    [2, 8],
  ]);
  expect(at.statements).toEqual(['0: 8', '0: 8', '1: 8', '1: 8']);
});

test('the last statement of a partition holds, and none once the group has passed it', async () => {
  const at = stage();
  at.states(0, 9);
  at.states(0, 0);
  at.states(1, 7);
  expect((await at.prospect()).plan.map(({ below }) => below)).toEqual([8, 8]);
});

test('the ledger is read from the time of the oldest waiting request on, and not where none waits', async () => {
  const at = new ReplayStage();
  at.requests(0, 8);
  at.answered(0, 8);
  at.requests(1, 8);
  at.answered(1, 8);
  at.entries(0, 5);
  at.entries(1, 5);
  await at.loop.pass(60_000);
  at.requests(1, 1);
  at.states(1, 9);
  at.loop.fetches.length = 0;
  expect((await at.prospect()).plan.map(({ below }) => below)).toEqual([8, 9]);
  expect(at.loop.asked(0, 'id.ledger')).toEqual([]);
  expect(Math.min(...at.loop.asked(1, 'id.ledger'))).toBe(5);
});

test('a statement that cannot be read is not passed over', async () => {
  const at = stage();
  at.states(1, 'all');
  await expect(at.replay()).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
});

test('partitions that were added are left out: their requests are decided elsewhere', async () => {
  const at = stage();
  at.requests(2, 5);
  at.answered(2, 5);
  const { plan, added, partitions } = await at.replay();
  expect([plan.map(({ partition }) => partition), added, partitions]).toEqual([[0, 1], [2], 3]);
});

test('an offset that no worker committed is not moved, nor are those of other partitions', async () => {
  const at = stage();
  at.commits(1, 10);
  await expect(at.replay({ decideRefused: true })).rejects.toMatchObject({
    code: 'REPLAY_REFUSED',
    message: expect.stringContaining('partition 1'),
  });
  expect([at.done, at.statements]).toEqual([[], []]);
});

test('a partition that has lost requests since they were answered is not read again, however long it is by now', async () => {
  const at = stage();
  at.loses(1, 6);
  const refused = { code: 'REPLAY_REFUSED', message: expect.stringMatching(/^partition 1 of .* lost requests/) };
  await expect(at.replay()).rejects.toMatchObject(refused);
  await at.loop.pass(1_000);
  at.requests(1, 6);
  await expect(at.replay({ decideRefused: true })).rejects.toMatchObject(refused);
  expect([at.done, at.statements]).toEqual([[], []]);
  at.answered(1, 12);
  expect((await at.replay()).plan.map(({ below }) => below)).toEqual([8, 12]);
});

test('a replay waits until workers have read what is due', async () => {
  expect(await stage().waits(8)).toEqual([0]);
});

test('a replay that waits ends at a signal, and says how much workers have not read again', async () => {
  await expect(stage().waits(10, AbortSignal.abort())).rejects.toMatchObject({
    code: 'STOPPING',
    message: 'stopped by a signal; 2 requests still have to be read again',
  });
});

test('a replay is planned of all partitions, or of the one that is named if there is such', async () => {
  expect((await stage().plans({ offset: 2 })).offsets).toEqual([2, 2]);
  expect((await stage().plans({ offset: 3, partition: 1 })).offsets).toEqual([3]);
  await expect(stage().plans({ offset: 0, partition: 3 })).rejects.toMatchObject({
    code: 'NOT_FOUND',
    message: "'id.requests' has no partition 3: there are 3",
  });
});

test('a replay says of a group that has read nothing that it may be the wrong one', async () => {
  const unread = new ReplayStage();
  unread.requests(0, 2);
  expect((await unread.plans({ offset: 0 })).said).toMatch(/^group 'idalloc' has read nothing of 'id\.requests' yet/);
  expect((await stage().plans({ offset: 0, partition: 0 })).said).toBe('');
});
