import { afterAll, beforeAll, expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import type { SequenceNumbers } from '../../src/client/id-source.ts';
import { IdallocError } from '../../src/errors.ts';
import { ownServers } from '../support/own-servers.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { type LogLine, runIdalloc, startIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 3;
/** At least. */
const REQUESTS = 2_000;
const CLIENTS = 3;
/** So few that numbers are still taken when the last fault comes. */
const IN_FLIGHT = 2;
const FORMAT = 'INV-{number:6}';

const servers = await ownServers({ kafka: true });

let realm: Realm;
let clients: IdClient[];
/** Served as long as the realm. */
let workers: WorkerProcess[];
const taken = new Map<string, SequenceNumbers>();

beforeAll(async () => {
  realm = await Realm.create(servers, { partitions: PARTITIONS, env: SHORT_SESSION });
  workers = Array.from({ length: 3 }, () => realm.worker());
  await Promise.all(workers.map((worker) => worker.hasPartitions(1)));
  const [replyTopic, requestTopic] = [realm.replyTopic, realm.requestTopic];
  const options = { brokers: servers.brokers, replyTopic, requestTopic, prefetch: false, timeoutMs: 120_000 };
  clients = await Promise.all(Array.from({ length: CLIENTS }, () => IdClient.connect(options)));
});

afterAll(async () => {
  for (const client of clients ?? []) await client.close();
  await realm?.[Symbol.asyncDispose]();
});

async function sequence(...args: readonly string[]) {
  const { code, stdout, stderr } = await runIdalloc(['sequence', ...args, '--json'], realm.env);
  return { code, view: stdout === '' ? undefined : JSON.parse(stdout), stderr };
}

/** 1 to 1,000, about a million numbers in all. */
const countOf = (nth: number) => 1 + ((nth * 37) % 1_000);

/**
 * Takes numbers until the end, a few at a time from each client; a client that was closed leaves its own to another.
 */
async function takeUntil(end: AbortSignal): Promise<void> {
  let next = 0;
  const one = async (nthClient: number) => {
    for (let nth = next++; !end.aborted; nth = next++) taken.set(`order-${nth}`, await take(nth, nthClient));
  };
  await Promise.all(clients.flatMap((_, nthClient) => Array.from({ length: IN_FLIGHT }, () => one(nthClient))));
}

async function take(nth: number, nthClient: number): Promise<SequenceNumbers> {
  const client = clients[nthClient % clients.length] as IdClient;
  try {
    return await client.sequence('invoices').take(countOf(nth), { correlationId: `order-${nth}` });
  } catch (error) {
    if (error instanceof IdallocError && error.code === 'CLIENT_CLOSED') return take(nth, nthClient + 1);
    throw error;
  }
}

/** The numbers that follow all that were taken; throws if these have a gap or a double. */
function endOf(runs: readonly SequenceNumbers[]): number {
  let next = 1;
  for (const { first, count, correlationId } of runs.toSorted((one, other) => one.first - other.first)) {
    if (first !== next) throw new Error(`${correlationId} has ${first}, but ${next} was expected`);
    next += count;
  }
  return next;
}

/** The worker that was last assigned the partition. */
function ownerOf(partition: number): WorkerProcess | undefined {
  const isOwn = ({ msg, partitions }: LogLine) =>
    msg === 'joined the request group' && Array.isArray(partitions) && partitions.includes(partition);
  const lastMs = (worker: WorkerProcess) => Number(worker.lines.findLast(isOwn)?.time ?? 0);
  return workers.toSorted((one, other) => lastMs(other) - lastMs(one))[0];
}

/** Resolves when this many more requests have their numbers. */
async function taking(more: number): Promise<void> {
  const size = taken.size + more;
  await expect.poll(() => taken.size, { timeout: 60_000 }).toBeGreaterThanOrEqual(size);
}

test('a sequence is created once, and shown', async () => {
  const { code, view } = await sequence('create', 'invoices', '--format', FORMAT);
  expect(code).toBe(0);
  expect(view).toMatchObject({ sequence: 'invoices', next: 1, step: 1, format: FORMAT, closed: false });
  expect((await sequence('show', 'invoices')).view).toEqual(view);
  expect(await sequence('create', 'invoices')).toMatchObject({ code: 1, stderr: expect.stringContaining('CONFLICT') });
  expect(await sequence('show', 'other')).toMatchObject({ code: 1, stderr: expect.stringContaining('NOT_FOUND') });
});

test('its numbers have no gap and no double while owners are killed, frozen and stopped, the broker restarts and replies are lost', async () => {
  const end = new AbortController();
  const all = takeUntil(end.signal);
  const { partition } = (await sequence('show', 'invoices')).view;
  await taking(200);
  const killed = ownerOf(partition);
  killed?.kill('SIGKILL');
  workers = [...workers.filter((worker) => worker !== killed), realm.worker()];
  await taking(200);
  const frozen = ownerOf(partition);
  frozen?.kill('SIGSTOP');
  await taking(200); // by a worker that took over, while the frozen one still believes that it owns the partition
  frozen?.kill('SIGCONT');
  await taking(200);
  await servers.restartKafka();
  await taking(200);
  const lost = clients.shift(); // with the replies that are on their way to it
  await lost?.close();
  await taking(200);
  const stopped = ownerOf(partition);
  workers = workers.filter((worker) => worker !== stopped);
  await stopped?.stop();
  await taking(Math.max(200, REQUESTS - taken.size));
  end.abort();
  await all;
  expect((await sequence('show', 'invoices')).view).toMatchObject({ next: endOf([...taken.values()]) });
});

test('a request that is repeated gets its numbers again, in the format of the sequence', async () => {
  const [client] = clients;
  for (const [correlationId, before] of [...taken].slice(0, 20)) {
    const again = await client?.sequence('invoices').take(before.count, { correlationId });
    expect([again?.numbers(), again?.replayed]).toEqual([before.numbers(), true]);
  }
  const first = [...taken.values()].find((one) => one.first === 1);
  expect(first?.texts()[0]).toBe('INV-000001');
  await expect(client?.sequence('invoices').take(2, { correlationId: 'order-0' })).rejects.toMatchObject({
    code: 'CONFLICT',
  });
});

test('`request --sequence` prints numbers, `trace` finds who has one, and an unknown sequence is an error', async () => {
  const ask = (name: string, id: string) =>
    runIdalloc(
      ['request', '--sequence', name, '--correlation-id', id, '--reply-topic', realm.replyTopic, '--json'],
      realm.env,
    );
  const { next } = (await sequence('show', 'invoices')).view;
  const { stdout } = await ask('invoices', 'by-hand');
  const text = `INV-${String(next).padStart(6, '0')}`;
  expect(JSON.parse(stdout)).toMatchObject({ sequence: 'invoices', numbers: [{ value: next, text }], replayed: false });
  const traced = await runIdalloc(['trace', '--sequence', 'invoices', '--number', String(next), '--json'], realm.env);
  expect(JSON.parse(traced.stdout)).toMatchObject({ text, correlation_id: 'by-hand', first: next, count: 1 });
  const document = ['trace', '--sequence', 'invoices', '--correlation-id'];
  const has = await runIdalloc([...document, 'by-hand', '--json'], realm.env);
  expect(JSON.parse(has.stdout)).toMatchObject({ correlation_id: 'by-hand', numbers: [{ value: next, text }] });
  const nothing = await runIdalloc([...document, 'nobody'], realm.env);
  expect(nothing).toMatchObject({ code: 1, stderr: expect.stringContaining('NOT_FOUND') });
  const never = await runIdalloc(['trace', '--sequence', 'invoices', '--number', String(next + 1)], realm.env);
  expect(never).toMatchObject({ code: 1, stderr: expect.stringContaining('NOT_FOUND') });
  const refused = await ask('nothing', 'by-hand');
  expect([refused.code, JSON.parse(refused.stdout).error.code]).toEqual([1, 'UNKNOWN_SEQUENCE']);
});

test('a sequence is restarted at a higher number, redefined, and closed for good', async () => {
  const [client] = clients as [IdClient];
  const { next } = (await sequence('show', 'invoices')).view;
  const restart = (at: number, ...flags: string[]) => sequence('restart', 'invoices', '--at', String(at), ...flags);
  expect(await restart(1, '--yes')).toMatchObject({ code: 78 });
  expect(await restart(next + 100)).toMatchObject({ code: 1, stderr: expect.stringContaining('NOT_CONFIRMED') });
  expect((await restart(next + 100, '--yes')).view).toMatchObject({
    next: next + 100,
    left_out: { from: next, to: next + 99, count: 100 },
  });
  const { view } = await sequence('redefine', 'invoices', '--step', '10', '--max', String(next + 115));
  expect(view).toMatchObject({ step: 10, max: next + 115 });
  const numbers = (correlationId: string, count: number) => client.sequence('invoices').take(count, { correlationId });
  expect((await numbers('stepped', 2)).numbers()).toEqual([next + 100, next + 110]);
  await expect(numbers('beyond', 1)).rejects.toMatchObject({ code: 'SEQUENCE_EXHAUSTED' });
  expect((await sequence('close', 'invoices', '--yes')).view).toMatchObject({ closed: true });
  await expect(numbers('late', 1)).rejects.toMatchObject({ code: 'SEQUENCE_CLOSED' });
  expect((await numbers('stepped', 2)).replayed).toBe(true);
  expect(await sequence('create', 'invoices', '--start', String(next + 1_000))).toMatchObject({ code: 1 });
  expect((await sequence('list')).view.sequences).toMatchObject([{ sequence: 'invoices', closed: true }]);
});

test('the journal has each order for a sequence, with what came of it', async () => {
  const { stdout } = await runIdalloc(['journal', '--json'], realm.env);
  const entries = (JSON.parse(stdout).entries as readonly Record<string, unknown>[]).map(
    ({ command, outcome, code }) => `${command} ${outcome}${code === '' ? '' : ` ${code}`}`,
  );
  expect(entries.slice(-4)).toEqual([
    'sequence restart done',
    'sequence redefine done',
    'sequence close done',
    'sequence create failed CONFLICT',
  ]);
});

test('a whole topic that is replayed gives every request the same numbers, and the audit finds nothing wrong', async () => {
  const replies = await realm.follow();
  const numbersIn = (seen: typeof replies.seen) => seen.filter(({ message }) => message.key?.toString() === 'order-7');
  await Promise.all(workers.map((worker) => worker.stop()));
  const before = numbersIn(replies.seen).length;
  const replay = startIdalloc(['replay', '--from', '1d', '--yes', '--json'], realm.env);
  await replay.printed(/start the workers now/);
  const again = realm.worker();
  const { code, stdout, stderr } = await replay.ended;
  expect(code, stderr).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ findings: [] });
  await replies.until('the request is answered again', (seen) => numbersIn(seen).length > before);
  const values = new Set(numbersIn(replies.seen).map(({ message }) => message.value?.toString('hex')));
  expect(values.size).toBe(1);
  expect(JSON.parse((await runIdalloc(['audit', '--json'], realm.env)).stdout)).toMatchObject({ findings: [] });
  await again.stop();
});
