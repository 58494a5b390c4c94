import { beforeEach, describe, expect, test } from 'vitest';
import { restart } from '../../../src/cli/sequence/sequence-run.ts';
import { leftOut } from '../../../src/cli/sequence/sequence-view.ts';
import { AdoptStage, OLD } from '../namespace/adopt-stage.ts';
import { CREATED } from './order-stage.ts';

describe('a restart', () => {
  let stage: AdoptStage;
  let question: string;

  /** The sequence `invoices` has given out 1 and 2, and goes on at 3. */
  beforeEach(async () => {
    stage = new AdoptStage();
    await stage.decides();
    question = '';
    expect(stage.bound).toBe(OLD);
  });

  function answer(text: string): void {
    const terminal = { input: true, output: true, errors: true };
    const ask = async (asked: string) => {
      question = asked;
      return text;
    };
    stage.answers = { terminal, ask };
  }

  function run(at: number, flags: { readonly yes?: true; readonly json?: true } = {}): Promise<void> {
    stage.out = '';
    return stage.loop.runtime.until(restart(stage.session(), 'invoices', { at, ...flags }));
  }

  test('names the numbers that it leaves out before it asks, and afterwards', async () => {
    answer('yes');
    await run(58);
    expect(question).toBe('Restart invoices at 58? It leaves out 55 numbers of invoices: 3 to 57. [y/N] ');
    expect(stage.out).toMatch(/\nleft out 55 numbers of invoices: 3 to 57\n$/);
    expect((await stage.show('invoices'))?.next).toBe(58);
  });

  test('changes nothing if that is not confirmed, and leaves no entry in the journal', async () => {
    answer('no');
    const { revision } = stage.etcd;
    await expect(run(58)).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
    expect([stage.etcd.revision, (await stage.show('invoices'))?.next]).toEqual([revision, 3]);
    stage.answers = {};
    await expect(run(58)).rejects.toMatchObject({
      code: 'NOT_CONFIRMED',
      message: expect.stringMatching(/leaves out 55 numbers of invoices: 3 to 57.*confirm with --yes/),
    });
  });

  test('has what it left out in its JSON, and in the journal', async () => {
    await run(58, { yes: true, json: true });
    expect(stage.json).toMatchObject({ sequence: 'invoices', next: 58, left_out: { from: 3, to: 57, count: 55 } });
    const given = { ledger: 'id.ledger', sequence: 'invoices', at: 58 };
    expect(await stage.journal()).toMatchObject([
      {
        ...{ who: 'alice@host', command: 'sequence restart', arguments: given, outcome: 'done', code: '' },
        note: 'left out 55 numbers of invoices: 3 to 57',
      },
    ]);
  });

  test('at the next number leaves out none, and does not ask', async () => {
    await run(3, { json: true });
    expect(stage.json).toMatchObject({ next: 3, left_out: null });
  });

  test('reports what was left out when it took effect, not when it asked', async () => {
    const terminal = { input: true, output: true, errors: true };
    const ask = async () => {
      await stage.swapsInMeanwhile('invoices', [{ first: 3, by: 'c' }]);
      stage.appends('invoices', { first: 3, by: 'c', end: stage.end, through: 7 });
      return 'y';
    };
    stage.answers = { terminal, ask };
    await run(58, { json: true });
    expect(stage.json).toMatchObject({ next: 58, left_out: { from: 4, to: 57, count: 54 } });
  });

  test('keeps what the sequence is, though the ledger has lost it', async () => {
    await stage.change('invoices', { max: 500, format: 'INV-{number:6}' });
    stage.losesTail(0);
    await run(58, { yes: true, json: true });
    expect(stage.json).toMatchObject({ next: 58, step: 1, max: 500, format: 'INV-{number:6}', accord: 'agree' });
  });

  test('below the next number is refused before it asks', async () => {
    answer('yes');
    await expect(run(2)).rejects.toMatchObject({ code: 'CONFIG_INVALID', message: expect.stringContaining('below 3') });
    expect([question, await stage.journal()]).toEqual(['', []]);
  });

  test('of a closed sequence is refused before it asks', async () => {
    await stage.change('invoices', { closed: true });
    answer('yes');
    await expect(run(58)).rejects.toMatchObject({ code: 'SEQUENCE_CLOSED' });
    expect(question).toBe('');
  });

  test('that etcd holds, but this login may not write to the ledger, is unknown in the journal, for a worker completes it', async () => {
    const refuses = (call: string) => (call === 'produce' ? ('TOPIC_AUTHORIZATION_FAILED' as const) : undefined);
    stage.loop.kafka.cluster.refuses = refuses;
    await expect(run(58, { yes: true })).rejects.toMatchObject({
      code: 'TOPIC_INVALID',
      message: expect.stringMatching(/may not write topic 'id.ledger'.*if etcd holds it, a worker completes it$/),
    });
    const note = 'left out 55 numbers of invoices: 3 to 57';
    expect(await stage.journal()).toMatchObject([{ outcome: 'unknown', code: 'TOPIC_INVALID', note }]);
    expect((await stage.storedHead()).pending).toMatchObject([{ kind: 'order', statement: { next: 58 } }]);
  });

  test('is not given if the journal can not be written', async () => {
    stage.etcd.fill();
    await expect(run(58, { yes: true })).rejects.toMatchObject({
      code: 'ETCD_REFUSED',
      message: expect.stringContaining('the journal of commands could not be written, so nothing was done'),
    });
    expect((await stage.show('invoices'))?.next).toBe(3);
  });
});

describe('the numbers that a restart leaves out', () => {
  test.each([
    [{ next: 10 }, 3, { from: 3, to: 9, count: 7 }],
    [{ next: 4 }, 3, { from: 3, to: 3, count: 1 }],
    [{ next: 3 }, 3, null],
    [{ next: 30, step: 10 }, 3, { from: 3, to: 23, count: 3 }],
    [{ next: 33, step: 10 }, 3, { from: 3, to: 23, count: 3 }],
    [{ next: 34, step: 10 }, 3, { from: 3, to: 33, count: 4 }],
    [{ next: 25, step: 10, max: 15 }, 3, { from: 3, to: 13, count: 2 }],
    [{ next: 16, max: 15 }, 16, null],
  ])('are, for %o after %d, %o', (after, next, expected) => {
    expect(leftOut({ ...CREATED, ...after }, next)).toEqual(expected);
  });
});
