import { afterAll, beforeAll, expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import type { SequenceNumbers } from '../../src/client/sequence.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const IN_FLIGHT = 20;
const RESTARTED_AT = 1_000_000;
const STEP = 10;
/** Requests that get their numbers between two changes. */
const BETWEEN = 150;
const FIRST_FORMAT = 'INV-{number:6}';
const LATER_FORMAT = 'RE-{number:8}';

let realm: Realm;
const clients: IdClient[] = [];
const taken: SequenceNumbers[] = [];
let end: number;

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { env: SHORT_SESSION });
  const workers = [realm.worker(), realm.worker()];
  await Promise.all(workers.map((worker) => worker.ready()));
});

afterAll(async () => {
  for (const client of clients) await client.close();
  await realm?.[Symbol.asyncDispose]();
});

async function connect(requestTopic: string): Promise<IdClient> {
  const options = { brokers: suiteServers().brokers, replyTopic: realm.replyTopic, requestTopic };
  const client = await IdClient.connect({ ...options, prefetch: false, timeoutMs: 120_000 });
  clients.push(client);
  return client;
}

async function sequence(args: readonly string[], env = realm.env) {
  const { code, stdout, stderr } = await runIdalloc(['sequence', ...args, '--json'], env);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout);
}

/** Takes numbers until the sequence is closed. */
async function takeUntilClosed(client: IdClient): Promise<void> {
  let next = 0;
  const one = async () => {
    for (;;) {
      const nth = next++;
      taken.push(await client.sequence('invoices').take(1 + (nth % 5), { correlationId: `order-${nth}` }));
    }
  };
  const ends = await Promise.allSettled(Array.from({ length: IN_FLIGHT }, one));
  for (const { status, ...outcome } of ends) {
    expect([status, outcome]).toMatchObject(['rejected', { reason: { code: 'SEQUENCE_CLOSED' } }]);
  }
}

async function more(): Promise<void> {
  const size = taken.length + BETWEEN;
  await expect.poll(() => taken.length).toBeGreaterThanOrEqual(size);
}

test('a sequence that is redefined, restarted and closed under load has no other gap than that of the restart', async () => {
  const client = await connect(realm.requestTopic);
  await sequence(['create', 'invoices', '--format', FIRST_FORMAT]);
  const load = takeUntilClosed(client);
  await more();
  await sequence(['redefine', 'invoices', '--format', LATER_FORMAT]);
  await more();
  await sequence(['redefine', 'invoices', '--step', String(STEP)]);
  await more();
  const restarted = await sequence(['restart', 'invoices', '--at', String(RESTARTED_AT), '--yes']);
  expect(restarted).toMatchObject({ step: STEP, format: LATER_FORMAT, left_out: { to: expect.any(Number) } });
  await more();
  await sequence(['close', 'invoices', '--yes']);
  await load;

  const runs = taken.toSorted((one, other) => one.first - other.first);
  let next = 1;
  for (const { first, count, step, correlationId } of runs) {
    if (first !== RESTARTED_AT) expect(first, String(correlationId)).toBe(next);
    else expect(next).toBeLessThan(RESTARTED_AT);
    next = first + count * step;
  }
  end = next;
  // Each change holds for all numbers behind it, and for none before.
  const changes = (of: (run: SequenceNumbers) => unknown) => runs.map(of).filter((one, i, all) => one !== all[i - 1]);
  expect(changes(({ step }) => step)).toEqual([1, STEP]);
  expect(changes(({ format }) => format)).toEqual([FIRST_FORMAT, LATER_FORMAT]);
  expect(await sequence(['show', 'invoices'])).toMatchObject({ next: end, closed: true });
  const audit = await runIdalloc(['audit', '--json'], realm.env);
  const { from, to, count } = restarted.left_out;
  // Some of those that the operator was told may have been given out before the order.
  const leftOut = { to, command: 'sequence restart', who: expect.stringContaining('@') };
  expect(JSON.parse(audit.stdout)).toMatchObject({
    findings: [],
    sequences: [{ sequence: 'invoices', from: 1, lost: 0, missing: 0, void: 0, left_out_ranges: [leftOut] }],
  });
  expect(count).toBe((to - from) / STEP + 1);
});

test('a closed sequence goes on in a pair of topics with more partitions, and its old correlation IDs in the first pair', async () => {
  const second = {
    ...realm.env,
    REQUEST_TOPIC: `${realm.requestTopic}.2`,
    LEDGER_TOPIC: `${realm.ledgerTopic}.2`,
    DEAD_LETTER_TOPIC: `${realm.requestTopic}.2.dlt`,
    KAFKA_GROUP_ID: `${realm.groupId}.2`,
    REQUEST_PARTITIONS: '12',
  };
  expect(await runIdalloc(['topics', 'init'], second)).toMatchObject({ code: 0 });
  await realm.worker(second).ready();
  const created = await sequence(['create', 'invoices', '--start', String(end), '--step', String(STEP)], second);
  expect(created).toMatchObject({ next: end, step: STEP, closed: false });

  const [first] = clients as [IdClient];
  const later = await connect(second.REQUEST_TOPIC);
  const moved = await later.sequence('invoices').take(2, { correlationId: 'moved' });
  expect(moved.numbers()).toEqual([end, end + STEP]);
  const known = taken[0] as SequenceNumbers;
  const { correlationId, count } = known;
  const again = await first.sequence('invoices').take(count, { correlationId });
  expect([again.numbers(), again.replayed]).toEqual([known.numbers(), true]);
  await expect(first.sequence('invoices').take(1, { correlationId: 'late' })).rejects.toMatchObject({
    code: 'SEQUENCE_CLOSED',
  });
  const audit = await runIdalloc(['audit', '--ledger-topic', realm.ledgerTopic, '--json'], second);
  expect(JSON.parse(audit.stdout)).toMatchObject({ findings: [] });
});

test('a closed sequence stays closed though the ledger is lost, and nothing creates it again', async () => {
  await using lost = await Realm.create(suiteServers(), { partitions: 1, env: SHORT_SESSION });
  await sequence(['create', 'invoices'], lost.env);
  const before = lost.worker();
  const { replyTopic, requestTopic } = lost;
  const options = { brokers: suiteServers().brokers, replyTopic, requestTopic, prefetch: false, timeoutMs: 120_000 };
  await using client = await IdClient.connect(options);
  const take = (correlationId: string) => client.sequence('invoices').take(1, { correlationId });
  expect((await take('a')).numbers()).toEqual([1]);
  await sequence(['close', 'invoices', '--yes'], lost.env);
  await before.stop();
  await lost.recreate(lost.ledgerTopic);

  const shown = { closed: true, next: 2, ledger_next: null, etcd_next: 2, edition: 2, accord: 'lost' };
  expect(await sequence(['show', 'invoices'], lost.env)).toMatchObject(shown);
  expect(await runIdalloc(['sequence', 'create', 'invoices', '--start', '2'], lost.env)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/CONFLICT: .* is closed, for good/),
  });
  lost.worker();
  await expect(take('b')).rejects.toMatchObject({ code: 'SEQUENCE_CLOSED' });
  const settled = { closed: true, next: 2, ledger_next: 2, etcd_next: 2, edition: 2, accord: 'agree' };
  expect(await sequence(['show', 'invoices'], lost.env)).toMatchObject(settled);
});
