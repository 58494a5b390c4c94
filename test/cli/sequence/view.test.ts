import { beforeEach, describe, expect, test } from 'vitest';
import { type SequenceView, sequencesText } from '../../../src/cli/sequence/sequence-view.ts';
import { OrderStage } from './order-stage.ts';

let stage: OrderStage;

beforeEach(() => {
  stage = new OrderStage();
});

const textOf = async () => sequencesText([(await stage.show('invoices')) as SequenceView]).split('\n');

describe('what is printed of a sequence', () => {
  test('is one line while the ledger shows all that etcd holds', async () => {
    await stage.create('invoices');
    await stage.change('invoices', { format: 'INV-{number:6}', closed: true });
    expect(await textOf()).toEqual([
      'sequence  partition  next  in etcd  step  largest  edition  written as  state',
      'invoices          0     1        1     1     1000        2  INV-000001  closed',
      '',
    ]);
  });

  test('says what differs, what it means, and who settles it', async () => {
    await stage.create('invoices');
    await stage.swapsIn('invoices', [{ first: 1, by: 'a' }]);
    const [, pending, meaning] = await textOf();
    expect(pending).toMatch(/open, pending$/);
    expect(meaning).toBe('invoices: etcd holds 1 decision that the ledger does not show yet: a worker appends them');
    stage.appends('invoices', { first: 1, by: 'a' });
    stage.losesTail(0);
    const [, lost, after] = await textOf();
    expect(lost).toMatch(/open, lost$/);
    expect(after).toBe(
      'invoices: the ledger lost its tail, and shows nothing of it; a worker or the next order states that, and the next new number is 2',
    );
  });

  test('says of a sequence from before that etcd does not hold it yet', async () => {
    stage.states('invoices', 5);
    const [, line, meaning] = await textOf();
    expect(line).toMatch(/ 5 +– .*open, behind$/);
    expect(meaning).toContain('etcd does not hold it: the next request or order writes there what the ledger shows');
  });
});
