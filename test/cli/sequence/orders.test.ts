import { beforeEach, describe, expect, test } from 'vitest';
import type { Fault } from '../../identity/fake-etcd.ts';
import { CREATED, changeTo, OrderStage } from './order-stage.ts';

const EARLIER = '00000000-0000-4000-8000-000000000000';

let stage: OrderStage;

beforeEach(() => {
  stage = new OrderStage();
});

/** The first write to etcd meets this fault. */
function breaks(fault: Fault, then?: () => Promise<unknown>): void {
  let isBroken = false;
  stage.link = async (name) => {
    if (isBroken || name !== 'transact') return { fault: 'pass' };
    isBroken = true;
    await then?.();
    return { fault };
  };
}

/** The sequence exists, and a worker has given its first number. */
async function givesFirst(): Promise<void> {
  await stage.create('invoices');
  await stage.swapsIn('invoices', [{ first: 1, by: 'a' }]);
  stage.appends('invoices', { first: 1, by: 'a' });
}

describe('an order', () => {
  test('is held by etcd before the ledger has it, and by both afterwards', async () => {
    breaks('pass', async () => expect(stage.ledger).toEqual([]));
    const row = await stage.create('invoices');
    expect(row.known).toEqual({ ...CREATED, edition: 1 });
    expect([await stage.pending(), stage.ledger]).toEqual([['o1>1'], ['o1>1']]);
    expect((await stage.change('invoices', { closed: true })).known).toMatchObject({ edition: 2, closed: true });
    expect([await stage.pending(), stage.ledger]).toEqual([['o2>1'], ['o1>1', 'o2>1 closed']]);
  });

  test.each(['request lost', 'answer lost', 'asked twice', 'late', 'doubled'] as const)(
    'takes effect once when its write to etcd is %s',
    async (fault) => {
      await stage.create('invoices');
      breaks(fault);
      await stage.change('invoices', { step: 10 });
      while (stage.etcd.lateCount > 0) stage.etcd.deliverLate();
      expect([await stage.pending(), stage.ledger]).toEqual([['o2>1'], ['o1>1', 'o2>1']]);
    },
  );

  test('is given up once etcd has not answered five times in a row, and takes effect when it is given again', async () => {
    await stage.create('invoices');
    let writes = 0;
    stage.link = async (name) => {
      if (name !== 'transact') return { fault: 'pass' };
      writes += 1;
      return { fault: writes <= 5 ? 'request lost' : 'pass' };
    };
    await expect(stage.change('invoices', { step: 10 })).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    expect([writes, stage.ledger]).toEqual([5, ['o1>1']]);
    expect((await stage.change('invoices', { step: 10 })).known).toMatchObject({ edition: 2, step: 10 });
  });

  test('of a command that ended before its record was appended is completed by the next command', async () => {
    await stage.create('invoices');
    stage.beforeAppend = () => {
      throw new RangeError('killed');
    };
    await expect(stage.change('invoices', { step: 10 })).rejects.toThrow('killed');
    expect([await stage.pending(), stage.ledger]).toEqual([['o2>1'], ['o1>1']]);
    stage.beforeAppend = () => undefined;
    await stage.change('invoices', { closed: true });
    expect(stage.ledger).toEqual(['o1>1', 'o2>1', 'o3>1 closed']);
  });

  test('takes effect behind that of another operator, which came first while its own write was lost', async () => {
    await stage.create('invoices');
    breaks('request lost', () => stage.orderMeanwhile('invoices', changeTo({ max: 500 })));
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o1>1', 'o2>1', 'o3>1']);
    expect(await stage.show('invoices')).toMatchObject({ step: 10, max: 500, edition: 3 });
  });

  test('goes behind numbers of a worker that swapped in first', async () => {
    await stage.create('invoices');
    breaks('pass', () => stage.swapsInMeanwhile('invoices', [{ first: 1, by: 'a' }]));
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o1>1', 'n1 a', 'o2>2']);
  });

  test('comes behind the numbers that a dead worker left, which keep their keys', async () => {
    await stage.create('invoices');
    await stage.swapsIn('invoices', [
      { first: 1, by: 'a' },
      { first: 2, by: 'b' },
    ]);
    expect(await stage.show('invoices')).toMatchObject({ next: 3, ledger_next: 1, pending: 2, accord: 'pending' });
    await stage.change('invoices', { next: 50 });
    expect(stage.ledger).toEqual(['o1>1', 'n1 a', 'n2 b', 'o2>50']);
    // Should the ledger lose all of it but one, that one says what was decided. Before a creation nothing was.
    expect(stage.throughs).toEqual([-1, 7, 7, 7]);
    expect(await stage.show('invoices')).toMatchObject({ next: 50, pending: 0, accord: 'agree', edition: 2 });
  });

  test('does not append numbers that the ledger has in a part that the command had not read', async () => {
    await givesFirst();
    await stage.pass(2 * 24 * 3_600_000);
    stage.states('invoices', 2, 1);
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o1>1', 'n1 a', 'o1>2', 'o2>2']);
  });

  test('does not miss numbers that retention took', async () => {
    await givesFirst();
    stage.appendsOther(7);
    stage.states('invoices', 2, 1);
    stage.trims(2);
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['-', 'o1>2', 'o2>2']);
  });

  test('leaves what is pending of other sequences pending, in front of itself, until the ledger shows it', async () => {
    await stage.create('invoices');
    await stage.create('tickets');
    expect(await stage.pending()).toEqual(['o1>1']);
    await stage.swapsIn('tickets', [{ first: 1, by: 'a' }]);
    await stage.change('invoices', { step: 10 });
    expect(await stage.pending()).toEqual(['n1', 'o2>1']);
    stage.appends('tickets', { first: 1, by: 'a' });
    await stage.change('invoices', { step: 20 });
    expect(await stage.pending()).toEqual(['o3>1']);
  });

  test('lands at its place although other records come first', async () => {
    await stage.create('invoices');
    let others = 3;
    stage.beforeAppend = () => {
      others -= 1;
      if (others >= 0) stage.appendsOther();
    };
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o1>1', '-', '(o2>1)', '-', '(o2>1)', '-', '(o2>1)', 'o2>1']);
  });

  test('is OVERTAKEN where other records always come first, and is completed by the next command', async () => {
    await stage.create('invoices');
    stage.beforeAppend = () => stage.appendsOther();
    await expect(stage.change('invoices', { step: 10 })).rejects.toMatchObject({ code: 'OVERTAKEN' });
    stage.beforeAppend = () => undefined;
    expect((await stage.change('invoices', { closed: true })).known).toMatchObject({ edition: 3, step: 10 });
    expect(stage.ledger.slice(-2)).toEqual(['o2>1', 'o3>1 closed']);
  });
});

describe('what was ordered', () => {
  test('a closed sequence stays closed though the ledger loses the statement, and is not created again', async () => {
    await stage.create('invoices');
    await stage.change('invoices', { closed: true });
    stage.losesTail(1);
    expect(await stage.show('invoices')).toMatchObject({ closed: true, edition: 2 });
    const seen: unknown[] = [];
    const refuse = (now: unknown) => {
      seen.push(now);
      throw new Error('refused');
    };
    await expect(stage.order('invoices', refuse)).rejects.toThrow('refused');
    expect(seen).toEqual([{ ...CREATED, closed: true, edition: 2 }]);
    expect(stage.ledger.at(-1)).toBe('o2>1 closed');
  });

  test('a sequence exists though the ledger lost all, and goes on behind its last number', async () => {
    await givesFirst();
    await stage.swapsIn('invoices', [{ first: 2, by: 'b' }]);
    stage.appends('invoices', { first: 2, by: 'b' });
    stage.losesTail(0);
    stage.requests(40);
    expect(await stage.show('invoices')).toMatchObject({ next: 3, ledger_next: null, etcd_next: 3, accord: 'lost' });
    await stage.change('invoices', { step: 10 });
    // The loss, from the first number that was pending; then that number, and the order behind it.
    expect(stage.ledger).toEqual(['l1>2~39', 'n2 b', 'o2>3']);
  });

  test('a loss is stated without an order, once, and what is pending stays for the next worker', async () => {
    await givesFirst();
    await stage.statesLosses();
    expect(stage.ledger, 'nothing is lost').toEqual(['o1>1', 'n1 a']);
    await stage.swapsIn('invoices', [{ first: 2, by: 'b' }]);
    stage.losesTail(0);
    stage.requests(40);
    for (const again of [1, 2]) {
      await stage.statesLosses();
      expect(stage.ledger, `try ${again}`).toEqual(['l1>2~39']);
    }
    expect(await stage.show('invoices')).toMatchObject({ next: 3, pending: 1, accord: 'pending' });
  });

  test('a loss is not stated of a request topic that was created again as well: it waits for adopt-cluster', async () => {
    await givesFirst();
    await stage.swapsIn('invoices', [{ first: 2, by: 'b' }]);
    stage.losesTail(0);
    stage.requests(7);
    const message = expect.stringMatching(/request offset 7 of partition 0, .* ends at 7.*adopt-cluster/);
    const refusal = { code: 'REQUESTS_RECREATED', message };
    await expect(stage.change('invoices', { step: 10 })).rejects.toMatchObject(refusal);
    expect(stage.ledger).toEqual([]);
    stage.requests(1);
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger[0]).toBe('l1>2~7');
  });

  test('numbers below a gap are stated as lost before the order', async () => {
    await givesFirst();
    await stage.swapsIn('invoices', [{ first: 2, by: 'b' }]);
    stage.requests(8);
    stage.losesTail(1);
    stage.appendsOther();
    stage.appends('invoices', { first: 2, by: 'b' });
    expect(await stage.show('invoices')).toMatchObject({ accord: 'lost', next: 3 });
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o1>1', '-', 'n2 b', 'l1>3~7', 'o2>3']);
  });

  test('where both have lost their memory, the operator says where it goes on', async () => {
    const row = await stage.order('invoices', (now) => {
      expect(now).toBeUndefined();
      return { ...CREATED, next: 700 };
    });
    expect(row.known).toMatchObject({ next: 700, edition: 1 });
  });

  test('a sequence of the version before is taken over at its next number', async () => {
    stage.states('invoices', 5);
    stage.appends('invoices', { first: 5, by: 'a' });
    expect(await stage.show('invoices')).toMatchObject({ next: 6, etcd_next: null, edition: 0, accord: 'behind' });
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o0>5', 'n5 a', 'o1>6', 'o2>6']);
  });
});

describe('a sequence that the ledger contradicts', () => {
  beforeEach(async () => {
    await stage.create('invoices');
    await stage.swapsIn('invoices', [{ first: 1, by: 'a' }]);
    stage.appends('invoices', { first: 1, by: 'b' });
    stage.appends('invoices', { first: 2, by: 'c' });
  });

  test('is stopped, and takes no order', async () => {
    expect(await stage.show('invoices')).toMatchObject({ accord: 'stopped', pending: 1 });
    await expect(stage.change('invoices', { step: 10 })).rejects.toMatchObject({ code: 'SEQUENCE_STOPPED' });
    expect(stage.ledger).toEqual(['o1>1', 'n1 b', 'n2 c']);
  });

  test('is stopped as well where a request has other numbers already', async () => {
    await stage.create('tickets');
    stage.appends('tickets', { first: 1, by: 'a' });
    await stage.swapsIn('tickets', [{ first: 2, by: 'a' }]);
    stage.appends('tickets', { first: 2, by: 'a' });
    expect(await stage.show('tickets')).toMatchObject({ accord: 'stopped' });
  });

  test('goes on where the ledger is, once the namespace was rebuilt', async () => {
    stage.namespace = EARLIER;
    expect(await stage.show('invoices')).toMatchObject({ accord: 'behind' });
    await stage.change('invoices', { step: 10 });
    expect(stage.ledger).toEqual(['o1>1', 'n1 b', 'n2 c', 'o2>3']);
  });
});
