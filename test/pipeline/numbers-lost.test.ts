import { describe, expect, it } from 'vitest';
import type { SequenceHead } from '../../src/codec/head-values.ts';
import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { linkOf } from '../support/memory-ledger.ts';
import { entry, numbers, statement } from '../support/memory-records.ts';
import { gists, lose, numbersWorld, shown, swaps, wanted } from '../support/numbers-world.ts';

const OTHER_NAMESPACE = '22222222-2222-4222-8222-222222222222';
const DEFINITION: SequenceHead = { next: 1, step: 1, max: 1_000, format: '', closed: false, edition: 1 };

describe('a ledger that lost its tail', () => {
  it('gets what was swapped in last, with the same numbers, if it lost no more', async () => {
    const { worker, topic } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a', 3)]);
    lose(topic, 1, one);
    await one.serve([wanted(1, 'b')]);
    await one.serve([wanted(0, 'a', 3)]);
    expect([gists(one), one.losses]).toEqual([['1+3', '4+1', '1+3'], []]); // biome-ignore format: pairs
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '4']);
  });

  it('gets the statement of a loss; no number is given twice, and what was decided in the lost part is FORGOTTEN', async () => {
    const { worker, topic } = numbersWorld();
    topic.requestEnds.set(0, 7);
    const one = worker();
    await one.serve([wanted(0, 'a', 3)]);
    await one.serve([wanted(1, 'b')]);
    lose(topic, 1, one);
    await one.serve([wanted(0, 'a', 3), wanted(1, 'b'), wanted(6, 'waited'), wanted(7, 'c', 2)]);
    expect(gists(one)).toEqual(['1+3', '4+1', 'FORGOTTEN', '4+1', 'FORGOTTEN', '5+2']);
    const message = expect.stringContaining(
      'look whether its document has its numbers; if not, send the request under a new',
    );
    expect(one.replies()[2]).toMatchObject({ error: { message } });
    expect(shown(topic)).toEqual(['edition 1 at 1', 'loss at 4', '4', '5']);
    expect(one.losses).toEqual([{ partition: 0, sequence: 'invoices', from: 1, to: 4, through: 6 }]);
  });

  it('gives no number again whose key only a late renewal shows', async () => {
    const { worker, topic } = numbersWorld();
    topic.requestEnds.set(0, 2);
    await worker().serve([wanted(0, 'a', 3)]);
    topic.truncate(0, 1);
    topic.land(0, [numbers('a', { count: 3, at: RENEWAL, end: 2, through: 0 })]);
    const one = worker();
    await one.serve([wanted(2, 'b'), wanted(0, 'a', 3)]);
    expect(gists(one).toSorted()).toEqual(['1+3', '4+1']);
    expect(one.losses).toEqual([{ partition: 0, sequence: 'invoices', from: 1, to: 4, through: 1 }]);
  });

  it('is noticed by a worker that never knew more, and every later copy of it forgets the same requests', async () => {
    const { worker, topic } = numbersWorld();
    topic.requestEnds.set(0, 2);
    const gone = worker();
    await gone.serve([wanted(0, 'a', 3)]);
    await gone.serve([wanted(1, 'b')]);
    topic.truncate(0, 1);
    const one = worker();
    await one.serve([wanted(2, 'c')]);
    const restored = worker();
    await restored.serve([wanted(0, 'a', 3), wanted(2, 'c'), wanted(1, 'b')]);
    expect([gists(one), gists(restored)]).toEqual([['5+1'], ['FORGOTTEN', '5+1', '4+1']]); // biome-ignore format: pairs
  });

  it('is noticed although it is as long again, by numbers behind one that is not there', async () => {
    const { worker, topic } = numbersWorld();
    topic.requestEnds.set(0, 2);
    const [one, other] = [worker({ link: linkOf('pass', 'late') }), worker()];
    await one.serve([wanted(0, 'a')]);
    await expect(one.serve([wanted(1, 'b')])).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    topic.truncate(0, 1);
    topic.land(0, [entry('other')]);
    topic.deliverLate();
    await other.serve([wanted(2, 'c')]);
    // biome-ignore format: pairs
    expect([gists(other), shown(topic)]).toEqual([['3+1'], ['edition 1 at 1', '2', 'loss at 3', '3']]);
  });

  it('with a sequence that it does not know any more goes on as etcd knows it', async () => {
    const { worker, topic } = numbersWorld();
    topic.requestEnds.set(0, 2);
    const one = worker();
    await one.serve([wanted(0, 'a', 3)]);
    await one.serve([wanted(1, 'b')]);
    lose(topic, 0, one);
    await one.serve([wanted(2, 'c'), wanted(1, 'b')]);
    expect(gists(one).slice(2)).toEqual(['5+1', '4+1']);
    expect(shown(topic)).toEqual(['loss at 4', '4', '5']);
  });

  it('makes a worker read the head again that had seen all of it in the copy before', async () => {
    const { worker, topic } = numbersWorld();
    topic.requestEnds.set(0, 1);
    const one = worker();
    await one.serve([wanted(0, 'a')]);
    await one.serve([wanted(0, 'a')]);
    lose(topic, 1, one);
    await one.serve([wanted(1, 'b')]);
    expect(gists(one).at(-1)).toBe('2+1');
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', '2']);
  });
});

describe('a sequence that etcd knows better than the ledger', () => {
  it('is as etcd says once that is stated: a close is not lost with the ledger', async () => {
    const { worker, topic, heads, headNow } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a')]);
    const head = await headNow();
    const closed = { ...DEFINITION, next: 2, closed: true, edition: 2 };
    await heads.swap(0, head, { ...head, pending: [], sequences: new Map([['invoices', closed]]) });
    await one.serve([wanted(1, 'b')]);
    expect(gists(one)).toEqual(['1+1', 'SEQUENCE_CLOSED']);
    expect(shown(topic)).toEqual(['edition 1 at 1', '1', 'edition 2 at 2']);
  });

  it('gets an order that is pending there before any number behind it', async () => {
    const { worker, topic, heads, headNow } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a')]);
    const head = await headNow();
    const statementNow = { ...DEFINITION, next: 10, step: 5, edition: 2 };
    const order = { kind: 'order', sequence: 'invoices', first: 2, statement: statementNow } as const;
    await heads.swap(0, head, { ...head, pending: [order], sequences: new Map([['invoices', statementNow]]) });
    await one.serve([wanted(1, 'b', 2)]);
    await one.serve([wanted(2, 'c')]);
    expect([gists(one), shown(topic)]).toEqual([
      ['1+1', '10+2', '20+1'],
      ['edition 1 at 1', '1', 'edition 2 at 10', '10', '20'],
    ]);
  });

  it('that is created is known to a request that comes afterwards, whatever the worker remembered', async () => {
    const { worker, heads, topic } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a', 1, 'new')]);
    const head = await heads.read(0, ['new']);
    const order = { kind: 'order', sequence: 'new', first: -1, statement: { ...DEFINITION, next: 7 } } as const;
    const sequences = new Map([['new', { ...DEFINITION, next: 7 }]]);
    await heads.swap(0, head, { ...head, namespace: OTHER_NAMESPACE, pending: [order], sequences });
    await one.serve([wanted(1, 'b', 1, 'new'), wanted(0, 'a', 1, 'new')]);
    expect(gists(one)).toEqual(['UNKNOWN_SEQUENCE', '7+1', '8+1']);
    expect(shown(topic)).toEqual(['edition 1 at 1', 'edition 1 at 7', '7', '8']);
  });
});

describe('a sequence that the ledger knows better than etcd', () => {
  it('of a release before heads gets its first head from the ledger, and then its first edition', async () => {
    const { worker, topic, headNow } = numbersWorld({ next: 5, edition: 0 });
    const one = worker();
    await one.serve([wanted(0, 'a', 2)]);
    // biome-ignore format: pairs
    expect([gists(one), shown(topic)]).toEqual([['5+2'], ['edition 0 at 5', 'edition 1 at 5', '5']]);
    expect(one.events.filter((event) => event.startsWith('swap ') || event === 'repaired')).toEqual([
      'swap done',
      'repaired',
      'swap done',
    ]);
    expect((await headNow()).sequences.get('invoices')).toMatchObject({ next: 7, edition: 1 });
  });

  it('goes on after etcd was wiped', async () => {
    const { worker, etcd, nextInEtcd } = numbersWorld();
    await worker().serve([wanted(0, 'a', 3)]);
    etcd.wipe();
    const next = worker();
    await next.serve([wanted(1, 'b'), wanted(0, 'a', 3)]);
    expect([gists(next), await nextInEtcd()]).toEqual([['4+1', '1+3'], 5]); // biome-ignore format: pairs
  });

  it('is stopped if the ledger contradicts what is pending, until the namespace is rebuilt', async () => {
    const { worker, topic, etcd } = numbersWorld();
    const its = { namespace: OTHER_NAMESPACE };
    const dead = worker({ link: linkOf('entries lost') });
    await expect(dead.serve([wanted(0, 'a', 3)])).rejects.toThrow();
    topic.land(0, [numbers('theirs', { at: 1, count: 5, requestOffset: 9 })]);
    const one = worker();
    await one.serve([wanted(0, 'a', 3), wanted(1, 'b')]);
    expect([gists(one), swaps(one), one.stopped]).toEqual([
      ['SEQUENCE_STOPPED', 'SEQUENCE_STOPPED'],
      [],
      ['invoices', 'invoices'],
    ]);
    expect([one.numbers.stopped, etcd.lateCount]).toEqual([1, 0]);
    const after = worker({ namespace: () => its.namespace });
    await after.serve([wanted(0, 'a', 3), wanted(1, 'b')]);
    expect([gists(after), swaps(after)]).toEqual([
      ['6+3', '9+1'],
      ['swap done', 'swap done'],
    ]);
    await one.serve([wanted(1, 'b'), wanted(2, 'c')]);
    expect([gists(one).slice(2), one.numbers.stopped]).toEqual([['9+1', '10+1'], 0]); // biome-ignore format: pairs
  });

  it('is stopped if the ledger has lost and contradicts what this worker had seen in it', async () => {
    const { worker, topic } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a')]);
    topic.truncate(0, 1);
    topic.land(0, [numbers('theirs', { at: 1, requestOffset: 9 }), numbers('a', { at: 2, first: 2 })]);
    lose(topic, 3, one); // the copy is restored, and shows other numbers for the same request
    await one.serve([wanted(1, 'b')]);
    expect(gists(one)).toEqual(['1+1', 'SEQUENCE_STOPPED']);
    expect(swaps(one)).toEqual(['swap done']);
  });

  it('that is stopped holds up no other one', async () => {
    const { worker, topic } = numbersWorld();
    topic.land(0, [statement(1, {}, 'tickets')]);
    const dead = worker({ link: linkOf('entries lost') });
    await expect(dead.serve([wanted(0, 'a', 3)])).rejects.toThrow();
    topic.land(0, [numbers('theirs', { at: 2, count: 5, requestOffset: 9 })]);
    const one = worker();
    await one.serve([wanted(1, 'b'), wanted(2, 'c', 1, 'tickets')]);
    await one.serve([wanted(3, 'd', 1, 'tickets')]);
    expect(gists(one)).toEqual(['SEQUENCE_STOPPED', '1+1', '2+1']);
  });
});

describe('a term of ownership', () => {
  it('begins with a look at etcd, since another worker may have swapped', async () => {
    const { worker } = numbersWorld();
    const one = worker();
    await one.serve([wanted(0, 'a')]);
    await worker().serve([wanted(1, 'b')]);
    one.numbers.forget(0);
    await one.serve([wanted(2, 'c')]);
    expect([gists(one), swaps(one)]).toEqual([
      ['1+1', '3+1'],
      ['swap done', 'swap done'],
    ]);
  });
});
