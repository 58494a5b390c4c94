import { beforeEach, describe, expect, test } from 'vitest';
import { AdoptStage, NEW, OLD } from './adopt-stage.ts';

let stage: AdoptStage;

beforeEach(async () => {
  stage = new AdoptStage();
  await stage.decides();
});

/** Both memories go on at the same numbers, and etcd remembers the log as it is. */
async function expectAdopted(life = 1): Promise<void> {
  expect(stage.bound).toBe(NEW);
  expect(await stage.show('invoices')).toMatchObject({ next: 3, accord: 'pending', pending: 1 });
  const { head } = await stage.storedEnd();
  expect(head?.life).toBe(life);
  await stage.adopt();
  expect(stage.json).toMatchObject({ bound: NEW, adopted: false, partitions: [{ state: 'whole' }] });
}

test('a ledger that has all that etcd knows is not adopted again, and nothing is written', async () => {
  const { revision } = stage.etcd;
  await stage.adopt();
  expect(stage.json).toEqual({
    cluster: OLD,
    bound: OLD,
    partitions: [
      {
        ...{ partition: 0, ledger_start: 0, ledger_end: 4, request_end: 10, etcd_end: 4, state: 'whole', missing: 0 },
        ...{ shift: 0, etcd_time: expect.stringMatching(/^\d{4}-/) },
      },
    ],
    sequences: [expect.objectContaining({ sequence: 'invoices', next: 3, accord: 'agree' })],
    adopted: false,
  });
  await stage.adopt({});
  expect(stage.out).toMatch(/has all that etcd knows of[\s\S]*nothing to adopt/);
  expect([stage.etcd.revision, stage.end]).toEqual([revision, 4]);
});

test('a mirror that lags is adopted at its end: the old end is stated, and what the sequence has lost', async () => {
  stage.lags(2);
  await stage.adopt();
  expect(stage.json).toMatchObject({
    ...{ cluster: NEW, bound: OLD, adopted: true },
    partitions: [{ state: 'shorter', ledger_end: 2, etcd_end: 4, missing: 2, shift: 0 }],
    sequences: [{ sequence: 'invoices', ledger_next: 1, etcd_next: 3, accord: 'lost' }],
  });
  expect(stage.ledger).toEqual(['o1>1', '-', '-', 'l1>2~9']);
  expect(stage.markers, 'a loss is an end above its own offset').toEqual(['1: 1 5', '2: 4 9 adopts']);
  expect((await stage.storedEnd()).head).toMatchObject({ end: 3, through: 9, life: 1 });
  await expectAdopted();
});

test('who adopted a cluster is in the journal, with the cluster before it; a command that changes nothing is not', async () => {
  await stage.adopt();
  expect(await stage.journal()).toEqual([]);
  stage.lags(2);
  await stage.adopt();
  const given = { ledger: 'id.ledger', cluster: NEW, bound: OLD };
  expect(await stage.journal()).toMatchObject([
    { who: 'alice@host', command: 'namespace adopt-cluster', arguments: given, outcome: 'done' },
  ]);
});

test('a copy at other offsets is adopted, with requests of its own request topic alone', async () => {
  stage.isReplaced(1, 4, 4);
  await stage.adopt();
  expect(stage.json).toMatchObject({
    adopted: true,
    partitions: [{ state: 'shifted', ledger_end: 3, request_end: 4, shift: -1 }],
  });
  expect(stage.ledger.slice(-2)).toEqual(['-', 'l1>2~3']);
  const { through, pending } = await stage.storedHead();
  expect([through, pending]).toEqual([3, [expect.objectContaining({ sequence: 'invoices' })]]);
  expect(pending).toMatchObject([{ entry: { first: 2, requestOffset: 3 } }]);
  await expectAdopted();
});

test('an empty cluster is adopted: nothing that it gets from now on is FORGOTTEN, and the sequence goes on', async () => {
  stage.isReplaced();
  await stage.adopt();
  expect(stage.json).toMatchObject({ partitions: [{ state: 'shorter', ledger_end: 0, request_end: 0, missing: 4 }] });
  expect(stage.ledger).toEqual(['-', 'l1>2~-1']);
  expect((await stage.storedEnd()).head).toMatchObject({ end: 1, through: -1 });
  expect(await stage.storedHead()).toMatchObject({ through: -1, pending: [{ entry: { requestOffset: 0 } }] });
  await expectAdopted();
});

test('of the same cluster, a leader that was deposed does not hide requests that were decided', async () => {
  stage.losesTail(3);
  stage.deposed = 3;
  await stage.adopt();
  expect(stage.deposed, 'the first ones are for the view').toBe(0);
  expect(stage.markers.at(-1)).toBe('3: 4 9 adopts');
  expect(await stage.storedHead()).toMatchObject({ through: 7 });
});

test('what no worker wrote to etcd is written again from the ledger, of the same cluster', async () => {
  stage.damagesEnd();
  await stage.adopt();
  expect(stage.json).toMatchObject({ bound: OLD, adopted: true, partitions: [{ state: 'damaged', etcd_end: null }] });
  expect((await stage.storedEnd()).head).toMatchObject({ end: 5, through: 9, life: 1 });
});

test('a loss is stated again if another append came first, behind which the marker says nothing', async () => {
  stage.damagesEnd();
  let others = 1;
  stage.fault = (of) => {
    if (of === 'append' && others > 0) stage.appendsOther();
    if (of === 'append') others -= 1;
    return undefined;
  };
  await stage.adopt();
  expect(stage.markers).toEqual(['1: 1 5', '4: 0 -1', '5: 5 9', '6: 7 9 adopts']);
});

test('of another program, an entry at the place of the last one shows that the ledger is another', async () => {
  stage.losesTail(3);
  stage.appendsOther(9);
  await stage.adopt();
  expect(stage.json).toMatchObject({ partitions: [{ state: 'other', missing: 0 }] });
});

describe('changes nothing', () => {
  const untouched = () => [stage.etcd.revision, stage.end, stage.bound];

  test('while worker IDs are held, since workers of the other cluster may decide on', async () => {
    stage.lags(2);
    stage.holds();
    const before = untouched();
    await expect(stage.adopt()).rejects.toMatchObject({
      code: 'REBUILD_REFUSED',
      message: expect.stringContaining('3 by 192.0.2.7'),
    });
    expect(untouched()).toEqual(before);
  });

  test('if worker IDs are held once all is stated, but for what is safe to repeat', async () => {
    stage.lags(2);
    let isHeld = false;
    stage.fault = () => {
      if (!isHeld && stage.end > 2) {
        stage.holds();
        isHeld = true;
      }
      return undefined;
    };
    await expect(stage.adopt()).rejects.toMatchObject({ code: 'REBUILD_REFUSED' });
    expect(stage.bound).toBe(OLD);
  });

  test('without a yes', async () => {
    stage.lags(2);
    const before = untouched();
    await expect(stage.adopt({})).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
    expect(stage.err).toMatch(/lacks its end/);
    const questions: string[] = [];
    stage.answers = {
      terminal: { input: true, output: true, errors: true },
      ask: async (question) => {
        questions.push(question);
        return 'n';
      },
    };
    await expect(stage.adopt({})).rejects.toMatchObject({ code: 'NOT_CONFIRMED', message: 'nothing was changed' });
    expect(questions).toEqual([expect.stringContaining(`${NEW} instead of ${OLD}?`)]);
    expect(untouched()).toEqual(before);
  });
});

describe.each(['request lost', 'answer lost'] as const)('interrupted at any step (%s), and run again', (fault) => {
  test.each([
    ['a mirror that lags', () => stage.lags(2)],
    ['an empty cluster', () => stage.isReplaced()],
    ['a copy at other offsets', () => stage.isReplaced(1, 4, 4)],
  ])('%s is adopted as if it had not been', async (_, becomes) => {
    let isDone = false;
    let steps = 0;
    for (; !isDone; steps += 1) {
      stage = new AdoptStage();
      await stage.decides();
      becomes();
      let left = steps;
      stage.fault = () => {
        left -= 1;
        return left < 0 ? fault : undefined;
      };
      isDone = await stage.adopt().then(
        () => true,
        () => false,
      );
      stage.fault = () => undefined;
      await stage.adopt();
      const { head } = await stage.storedEnd();
      const losses = stage.ledger.filter((record) => record.startsWith('l'));
      expect(losses, `step ${steps}`).toHaveLength(1);
      await expectAdopted(head?.life);
    }
    expect(steps).toBeGreaterThan(10);
  });
});
