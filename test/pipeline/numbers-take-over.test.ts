import { describe, expect, it } from 'vitest';
import { encodeSequenceHead } from '../../src/codec/head-values.ts';
import type { MemoryLedger } from '../support/memory-ledger.ts';
import { numbers, request, statement } from '../support/memory-records.ts';
import { headKeysOf, type MemoryWorker } from '../support/memory-worker.ts';
import { appends, gists, lose, numbersWorld, shown, wanted } from '../support/numbers-world.ts';

const [ALL, ONE_MORE] = ['lots', 'tickets'];

/** As a worker does that takes the partition over. */
async function takeOver(worker: MemoryWorker): Promise<void> {
  worker.numbers.forget(0);
  await worker.numbers.stateLosses(worker.deps, 0);
}

const losses = ({ losses: all }: MemoryWorker) => all.map(({ sequence, from, to }) => `${sequence} ${from}-${to}`);
const throughs = ({ losses: all }: MemoryWorker) => new Set(all.map(({ through }) => through));

/** Three sequences, after a worker that is gone; `isLost`: the ledger lost all numbers of two of them. */
async function lostWorld(isLost = false) {
  const world = numbersWorld();
  const { worker, topic } = world;
  topic.land(0, [statement(1, {}, ALL), statement(2, {}, ONE_MORE)]);
  const gone = worker();
  await gone.serve([wanted(0, 'kept', 2, ALL)]);
  for (const offset of [1, 3]) {
    await gone.serve([wanted(offset, `a${offset}`), wanted(offset + 1, `b${offset}`, 1, ONE_MORE)]);
  }
  if (isLost) {
    topic.requestEnds.set(0, 5);
    loseNumbers(topic);
  }
  return world;
}

/** Three records of definitions, their first editions in etcd's order, and one of numbers are kept. */
function loseNumbers(topic: MemoryLedger, ...workers: MemoryWorker[]): void {
  lose(topic, keptIn(topic), ...workers);
}

const keptIn = (topic: MemoryLedger) => topic.read(0, 0).length - 4;

describe('a partition that is taken over', () => {
  it('gets the statements of all its losses before anybody asks, in one append, with one end of the requests', async () => {
    const { worker, topic } = await lostWorld(true);
    const before = shown(topic);
    const next = worker();
    await takeOver(next);
    expect([losses(next), [...throughs(next)]]).toEqual([['invoices 1-2', 'tickets 1-2'], [4]]);
    expect([appends(next), shown(topic)]).toEqual([['append 2'], [...before, 'loss at 2', 'loss at 2']]);
  });

  it('gives the next number to the first order of a sequence, however late that comes', async () => {
    const { worker, topic } = await lostWorld(true);
    const next = worker();
    await takeOver(next);
    topic.requestEnds.set(0, 901);
    await next.serve([wanted(900, 'new', 1, ONE_MORE), wanted(2, 'b1', 1, ONE_MORE), wanted(4, 'b3', 1, ONE_MORE)]);
    expect(gists(next)).toEqual(['3+1', 'FORGOTTEN', '2+1']);
  });

  it('is looked at once, and nothing is appended, where nothing is lost', async () => {
    const { worker, topic } = await lostWorld();
    const next = worker();
    const before = shown(topic);
    for (const _ of [1, 2]) await next.numbers.stateLosses(next.deps, 0);
    expect([next.etcdCalls, shown(topic), appends(next)]).toEqual([['get', 'range', 'get'], before, []]);
    await takeOver(next);
    expect(next.etcdCalls).toEqual(['get', 'range', 'get', 'get', 'range', 'get']);
  });

  it('lets new numbers wait for that, but neither IDs nor what is known', async () => {
    const { worker, topic } = await lostWorld(true);
    const { promise: answer, resolve } = Promise.withResolvers<void>();
    const next = worker({ etcdLink: async (name) => ({ fault: 'pass', ...(name === 'range' && { back: answer }) }) });
    const stating = takeOver(next);
    const waiting = next.serve([wanted(900, 'new', 1, ONE_MORE)]);
    await next.serve([request(901, 'for IDs')]);
    await next.serve([wanted(0, 'kept', 2, ALL)]);
    expect([next.replies().length, losses(next)]).toEqual([2, []]);
    topic.requestEnds.set(0, 902);
    resolve();
    await Promise.all([stating, waiting]);
    await next.serve([wanted(902, 'newer', 1, ONE_MORE)]);
    expect([gists(next).slice(-2), losses(next)]).toEqual([
      ['FORGOTTEN', '3+1'],
      ['invoices 1-2', 'tickets 1-2'],
    ]);
  });

  it('is looked at again after etcd did not answer, and requests for numbers are retried until then', async () => {
    const { worker } = await lostWorld(true);
    let isSilent = true;
    const next = worker({ etcdLink: async () => ({ fault: isSilent ? 'request lost' : 'pass' }) });
    await expect(takeOver(next)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    await expect(next.serve([wanted(900, 'new', 1, ONE_MORE)])).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    await next.serve([request(5, 'for IDs')]);
    isSilent = false;
    await next.serve([wanted(900, 'new', 1, ONE_MORE)]);
    expect([gists(next).at(-1), losses(next)]).toEqual(['3+1', ['invoices 1-2', 'tickets 1-2']]);
  });

  it('is looked at again for the next term, also if it changes hands during a look', async () => {
    const { worker } = await lostWorld();
    let terms = 1;
    const one = worker({
      etcdLink: async (name) => {
        if (name === 'range' && terms-- > 0) one.numbers.forget(0);
        return { fault: 'pass' };
      },
    });
    await one.numbers.stateLosses(one.deps, 0);
    expect(one.etcdCalls).toEqual(['get', 'range', 'get']);
    await one.numbers.stateLosses(one.deps, 0);
    expect(one.etcdCalls).toEqual(['get', 'range', 'get', 'get', 'range', 'get']);
  });

  it('has no use for a head that was read, or swapped in, in the term before', async () => {
    for (const during of ['get', 'transact']) {
      const { worker } = numbersWorld();
      let calls = 0;
      const one = worker({
        etcdLink: async (name) => {
          if (name === during) calls += 1;
          if (name === during && calls === (during === 'get' ? 3 : 1)) one.numbers.forget(0);
          return { fault: 'pass' };
        },
      });
      const look = ['get', 'range', 'get', 'get'];
      await one.serve([wanted(0, 'a')]);
      expect(one.etcdCalls).toEqual(during === 'get' ? [...look, ...look, 'transact'] : [...look, 'transact', ...look]);
      expect(gists(one)).toEqual(['1+1']);
    }
  });

  it('gets thousands of statements in some appends, between which other work has its turns', async () => {
    const { worker, topic, etcd } = numbersWorld();
    const head = encodeSequenceHead({ next: 5, step: 1, max: 99, format: '', closed: false, edition: 1 });
    for (let i = 0; i < 2_050; i += 1) etcd.tamper(headKeysOf(0).sequence(`s${i}`), head);
    const between: number[] = [];
    const next = worker({
      link: async () => {
        void next.ledger.inTurn(0, async () => {
          topic.requestEnds.set(0, 2_000_000);
          between.push(next.losses.length);
        });
        return { fate: 'pass' };
      },
    });
    await takeOver(next);
    expect([appends(next), between]).toEqual([
      ['append 2000', 'append 50'],
      [2_000, 2_050],
    ]);
    expect([...throughs(next)]).toEqual([999_999]);
    expect(next.etcdCalls).toEqual(['get', 'range', 'range', 'range', 'get']);
  });

  it('states them at other places if another writer comes first', async () => {
    const { worker, topic } = await lostWorld(true);
    const before = shown(topic);
    const next = worker({
      link: async () => {
        if (appends(next).length === 1) topic.land(0, [statement(topic.bounds(0).high, {}, 'other')]);
        return { fate: 'pass' };
      },
    });
    await takeOver(next);
    expect(appends(next)).toEqual(['append 2', 'append 2']);
    expect(losses(next)).toEqual(['invoices 1-2', 'tickets 1-2']);
    await worker().serve([wanted(900, 'new', 1, ONE_MORE)]);
    expect(shown(topic).slice(before.length)).toEqual([
      'edition 1 at 1',
      ...['loss at 2', 'loss at 2', 'loss at 2', 'loss at 2'],
      ...['2', '2', '3'],
    ]);
  });
});

describe('losses at whose place another writer always comes first', () => {
  it('are OVERTAKEN after nine appends, and stated by the next look', async () => {
    const { worker, topic } = await lostWorld(true);
    let isBeaten = true;
    const next = worker({
      link: async () => {
        if (appends(next).length > 20) throw new Error('it never gives up');
        if (isBeaten) topic.land(0, [statement(topic.bounds(0).high, {}, 'other')]);
        return { fate: 'pass' };
      },
    });
    await expect(takeOver(next)).rejects.toMatchObject({ code: 'OVERTAKEN', retryable: true });
    expect([appends(next).length, losses(next)]).toEqual([9, []]);
    isBeaten = false;
    await next.numbers.stateLosses(next.deps, 0);
    expect(losses(next)).toEqual(['invoices 1-2', 'tickets 1-2']);
  });
});

describe('a copy that was restored', () => {
  it('is looked at again, since the ledger may have lost what the copy had shown', async () => {
    const { worker, topic } = await lostWorld();
    topic.requestEnds.set(0, 5);
    const one = worker();
    await takeOver(one);
    expect(losses(one)).toEqual([]);
    loseNumbers(topic, one);
    await one.numbers.stateLosses(one.deps, 0);
    expect(losses(one)).toEqual(['invoices 1-2', 'tickets 1-2']);
  });
});

describe('a gap that shows while a partition is served', () => {
  it('is stated with all other losses, before new numbers', async () => {
    const { worker, topic, etcd } = await lostWorld();
    topic.requestEnds.set(0, 5);
    const one = worker();
    await takeOver(one);
    etcd.tamper(
      headKeysOf(0).sequence(ALL),
      encodeSequenceHead({ next: 9, step: 1, max: 99, format: '', closed: false, edition: 1 }),
    );
    topic.land(0, [numbers('late', { at: topic.bounds(0).high, first: 7, count: 1 })]);
    one.catchUp();
    topic.requestEnds.set(0, 7);
    await one.serve([wanted(7, 'new')]);
    expect([gists(one), losses(one)]).toEqual([['8+1'], ['invoices 8-8', 'lots 3-9']]);
  });
});
