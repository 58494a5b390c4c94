import { afterEach, describe, expect, expectTypeOf, test } from 'vitest';
import type { IdClient } from '../../src/client/client.ts';
import type { SequenceNumbers } from '../../src/client/id-source.ts';
import { MemoryWorkers } from '../../src/client/testing.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';
import { formatFault, formatNumber } from '../../src/codec/sequence-format.ts';
import { blocksOf, readPage } from '../support/docs.ts';
import { encodeBatch, stage, turns } from './stage.ts';

const open: IdClient[] = [];

afterEach(async () => {
  for (const client of open.splice(0)) await client.close();
});

async function start(name = 'invoices') {
  const workers = new MemoryWorkers();
  workers.createSequence(name, { format: 'INV-{number:6}' });
  const client = await workers.connect();
  open.push(client);
  return { workers, client, sequence: client.sequence(name) };
}

describe('numbers of a sequence', () => {
  test('follow each other, and are the same again under the same correlation ID', async () => {
    const { sequence } = await start();
    const first = await sequence.take(3, { correlationId: 'a' });
    const second = await sequence.take(2, { correlationId: 'b' });
    const again = await sequence.take(3, { correlationId: 'a' });
    expect([first, second, again].map((taken) => taken.numbers())).toEqual([
      [1, 2, 3],
      [4, 5],
      [1, 2, 3],
    ]);
    expect([first.replayed, again.replayed]).toEqual([false, true]);
    expect(second.texts()).toEqual(['INV-000004', 'INV-000005']);
    expectTypeOf(first).toEqualTypeOf<SequenceNumbers>();
  });

  test('never meet IDs of the same correlation ID', async () => {
    const { client, sequence } = await start();
    await client.request({ count: 2, correlationId: 'a' });
    expect((await sequence.take(2, { correlationId: 'a' })).numbers()).toEqual([1, 2]);
  });

  test('are refused without a correlation ID, with a wrong name or count, and as the workers refuse them', async () => {
    const { client, sequence } = await start();
    expect(() => client.sequence('no name')).toThrow(expect.objectContaining({ code: 'MALFORMED_REQUEST' }));
    const careless = sequence.take as (count: number) => Promise<unknown>;
    await expect(careless(1)).rejects.toMatchObject({ code: 'INVALID_CORRELATION_ID' });
    await expect(sequence.take(0, { correlationId: 'a' })).rejects.toMatchObject({ code: 'INVALID_COUNT' });
    const unknown = client.sequence('other').take(1, { correlationId: 'a' });
    await expect(unknown).rejects.toMatchObject({ code: 'UNKNOWN_SEQUENCE' });
    await sequence.take(1, { correlationId: 'b' });
    await expect(sequence.take(2, { correlationId: 'b' })).rejects.toMatchObject({ code: 'CONFLICT' });
  });

  test('are a CONFLICT while IDs are requested under the same correlation ID', async () => {
    const { workers, client, sequence } = await start();
    workers.stop();
    const ids = client.request({ count: 1, correlationId: 'a' });
    await expect(sequence.take(1, { correlationId: 'a' })).rejects.toMatchObject({ code: 'CONFLICT' });
    workers.recover();
    expect((await ids).batch.ranges).toHaveLength(1);
  });

  test('of two sequences at once under one correlation ID are a CONFLICT that names both, and what to do', async () => {
    const { workers, client, sequence } = await start();
    workers.createSequence('tickets');
    workers.stop();
    const invoices = sequence.take(2, { correlationId: 'order-1' });
    const tickets = () => client.sequence('tickets').take(1, { correlationId: 'order-1' });
    const message =
      /^a request for 2 numbers of invoices .* this one is for 1 number of tickets .*: .* such as 'tickets:' before/;
    await expect(tickets()).rejects.toMatchObject({ code: 'CONFLICT', message: expect.stringMatching(message) });
    workers.recover();
    expect((await invoices).numbers()).toEqual([1, 2]);
    expect((await tickets()).numbers()).toEqual([1]);
  });

  test('of one sequence at once under one correlation ID, but another count, are a CONFLICT that does not propose another ID', async () => {
    const { workers, sequence } = await start();
    workers.stop();
    const first = sequence.take(2, { correlationId: 'order-1' });
    await expect(sequence.take(1, { correlationId: 'order-1' })).rejects.toMatchObject({
      code: 'CONFLICT',
      message: expect.stringMatching(
        /: a document has its numbers of a sequence once: wait for the first, [^:]*same topic$/,
      ),
    });
    workers.recover();
    expect((await first).numbers()).toEqual([1, 2]);
  });

  test('are not mixed up with what another client on the reply topic gets under the same correlation ID', async () => {
    const { client, workers } = await stage({ prefetch: false }, { answering: false });
    open.push(client);
    const taken = client.sequence('invoices').take(1, { correlationId: 'order-1' });
    await turns();
    const replyOf = (sequence: string, first: number) => {
      const numbers = { sequence, first, count: 1, step: 1, format: '' };
      return encodeIdReply({ correlationId: Buffer.from('order-1'), numbers }, 'RANGES');
    };
    workers.reply('order-1', replyOf('tickets', 71));
    workers.reply('order-1', encodeBatch('order-1', [{ first: 1n, count: 1 }]));
    workers.reply('order-1', replyOf('invoices', 4));
    expect((await taken).numbers()).toEqual([4]);
  });

  test('are taken as the page about them shows', async () => {
    const page = 'docs/how-to/sequences.md';
    const { client } = await start('invoices/2027');
    const [program] = blocksOf(readPage(page)).filter(({ language }) => language === 'js');
    const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
    const run = new AsyncFunction('client', 'order', `${program?.body.join('\n')}\nreturn taken;`);
    const taken = await run(client, { id: 'order-4711' });
    const shown = program?.body.flatMap((line) => /\/\/ (.*)$/.exec(line)?.[1] ?? []);
    expect(shown).toEqual(["[ 'INV-000001' ]", '[ 1 ]']);
    expect([taken.texts(), taken.numbers()]).toEqual([['INV-000001'], [1]]);
  });
});

describe('the format of a sequence', () => {
  test.each([
    ['', 42, '42'],
    ['INV-{number:6}', 42, 'INV-000042'],
    ['{number}/27', 1_234_567, '1234567/27'],
    ['{number:3}', 12_345, '12345'],
    ['Ж{number:16}', 7, 'Ж0000000000000007'],
  ])('%s writes %i as %s', (format, number, text) => {
    expect(formatFault(format)).toBeUndefined();
    expect(formatNumber(format, number)).toBe(text);
  });

  test.each(['INV', '{number}{number}', '{number:0}', '{number:17}', '{name}-{number}', '{number}}', 'a\n{number}'])(
    '%j is none, and a number in it is an error',
    (format) => {
      expect(formatFault(format)).toBeDefined();
      expect(() => formatNumber(format, 1)).toThrow(RangeError);
    },
  );
});
