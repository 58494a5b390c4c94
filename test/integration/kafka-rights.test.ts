import type { AclEntry } from 'kafkajs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LoadedWorker, readiness } from '../support/loaded-worker.ts';
import { Realm, type RealmOptions, STEADY_LEASE } from '../support/realm.ts';
import { grant, isOperation, revoke, SecuredKafka, type WorkerRights, workerRights } from '../support/secured-kafka.ts';
import { suiteServers } from '../support/servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const USER = 'id-worker';
const PASSWORD = 'kafka-pass';
const PARTITIONS = 2;
const ERROR_LEVEL = 50;
const WARN_LEVEL = 40;
/** The most lines at level warn and above about one fault in 10 s: each loop that meets it logs once. */
const MAX_LINES = 12;
const SAME_LINE_MS = 10_000;
/** Number of malformed records, which become dead letters. */
const BAD = 5;
const why = whyNoProcesses('kafka', 'etcd', 'openssl');

const stack = new AsyncDisposableStack();
let kafka: SecuredKafka;

beforeAll(async () => {
  if (why !== undefined) return;
  kafka = stack.use(await SecuredKafka.start());
  await kafka.setPassword(USER, PASSWORD);
});

afterAll(() => stack.disposeAsync());

function login(): Readonly<Record<string, string>> {
  return {
    KAFKA_BROKERS: kafka.byLogin,
    KAFKA_TLS: '1',
    KAFKA_CA_FILE: kafka.authority.own.certFile,
    KAFKA_SASL_MECHANISM: 'scram-sha-512',
    KAFKA_SASL_USERNAME: USER,
    KAFKA_SASL_PASSWORD: PASSWORD,
  };
}

/** The status and code of a request for numbers of a sequence that does not exist. */
async function fetchNumbers(worker: WorkerProcess, key: string) {
  const headers = { 'idempotency-key': key };
  const answer = await fetch(`${await worker.api()}/api/v1/sequences/none`, { method: 'POST', headers });
  return { status: answer.status, ...((await answer.json()) as { code: string; detail: string }) };
}

/** The status and code of a request for IDs with a key. */
async function fetchIds(worker: WorkerProcess, key: string) {
  const answer = await fetch(`${await worker.api()}/api/v1/ids`, { headers: { 'idempotency-key': key } });
  return { status: answer.status, ...((await answer.json()) as object) };
}

/** Starts a worker with exactly the rights of the list, under a load of which half must be forwarded. */
async function start(options: Pick<RealmOptions, 'apiReplies'> = {}): Promise<LoadedWorker> {
  const realm = await Realm.create(
    { ...suiteServers(), brokers: [kafka.plaintext] },
    { ...options, partitions: PARTITIONS, env: STEADY_LEASE },
  );
  await grant(realm, Object.values(workerRights(realm, USER)).flat());
  return stack.use(await LoadedWorker.under(realm, login(), { misroutes: true }));
}

interface Right {
  /** The resource as the metric names it. */
  readonly resource: string;
  readonly name: (realm: Realm) => string;
  readonly remedy: RegExp;
  readonly acl: (rights: WorkerRights) => readonly AclEntry[];
}

const ALL = /allow Read, Write and DescribeConfigs to 'id-worker'/;
const REQUESTS = { resource: 'requests', name: ({ requestTopic }: Realm) => requestTopic, remedy: ALL };
const LEDGER = { resource: 'ledger', name: ({ ledgerTopic }: Realm) => ledgerTopic, remedy: ALL };
const ON_REQUESTS: Right = { ...REQUESTS, acl: ({ requests }) => requests };
const ON_LEDGER: Right = { ...LEDGER, acl: ({ ledger }) => ledger };
const ON_WITNESS: Right = {
  resource: 'witness',
  name: ({ witnessTopic }) => witnessTopic,
  remedy: ALL,
  acl: ({ witness }) => witness,
};
const ON_GROUP: Right = {
  resource: 'group',
  name: ({ groupId }) => groupId,
  remedy: /allow Read to 'id-worker'/,
  acl: ({ group }) => group,
};
const ON_REPLIES: Right = {
  resource: 'replies',
  name: ({ replyTopic }) => replyTopic,
  remedy: /allow Write to 'id-worker'/,
  acl: ({ replies }) => replies,
};
const ON_DEAD_LETTERS: Right = {
  resource: 'dead_letters',
  name: ({ deadLetterTopic }) => deadLetterTopic,
  remedy: /allow Write and DescribeConfigs to 'id-worker'/,
  acl: ({ deadLetters }) => deadLetters,
};
const WRITE_ON_REQUESTS: Right = { ...REQUESTS, acl: ({ requests }) => requests.filter(isOperation('Write')) };
const WRITE_ON_LEDGER: Right = { ...LEDGER, acl: ({ ledger }) => ledger.filter(isOperation('Write')) };

/** Revokes a right until requests pile up, and grants it again; `play` does what needs the right beside the load. */
async function without(loaded: LoadedWorker, right: Right, play = async () => {}): Promise<void> {
  const { realm, worker } = loaded;
  const acl = right.acl(workerRights(realm, USER));
  const metric = `idalloc_kafka_refused{resource="${right.resource}"}`;
  const from = worker.lines.length;
  const revokedMs = performance.now();
  await revoke(realm, acl);
  await play();
  const detail = await loaded.stopped('KAFKA_REFUSED');
  expect(detail).toContain(`'${right.name(realm)}'`);
  expect(detail).toMatch(right.remedy);
  expect(await worker.metric(metric)).toBe(1);
  const line = await worker.line(({ msg }) => msg === 'the brokers refuse this worker', from);
  expect(line).toMatchObject({ level: ERROR_LEVEL, code: 'KAFKA_REFUSED', resource: right.resource });
  const warnings = worker.lines.slice(from).filter(({ level }) => Number(level) >= WARN_LEVEL);
  const most = MAX_LINES * Math.ceil((performance.now() - revokedMs) / SAME_LINE_MS);
  expect(warnings.length, warnings.map((one) => JSON.stringify(one)).join('\n')).toBeLessThan(most);

  await grant(realm, acl);
  await loaded.ready();
  expect(await worker.metric(metric)).toBe(0);
  await loaded.answered(loaded.load.requests.length - loaded.answers);
}

const TITLE = 'the worker logs which right it lacks, and continues by itself when it is granted again';

describe.skipIf(why !== undefined)(`rights that are revoked under load${why ? `: ${why}` : ''}`, () => {
  describe('all rights on one resource at a time', () => {
    let loaded: LoadedWorker;
    const bad = Array.from({ length: BAD }, (_, i) => `bad-${i}`);

    beforeAll(async () => {
      loaded = await start();
    });

    test.for([
      ['requests', ON_REQUESTS],
      ['the ledger', ON_LEDGER],
      ['the witness topic', ON_WITNESS],
      ['the group', ON_GROUP],
      ['reply topics', ON_REPLIES],
    ] as const)(`on %s: ${TITLE}`, ([, right]) => without(loaded, right));

    test(`on dead letters, when some are due: ${TITLE}`, async () => {
      const records = bad.map((key) => ({ key, value: Buffer.of(1, 2, 3), partition: 0 }));
      await without(loaded, ON_DEAD_LETTERS, async () => {
        await loaded.realm.sendRaw(records);
      });
    });

    test('after all that, every request has one batch, and every bad record is a dead letter', async () => {
      await loaded.check();
      const letters = await loaded.realm.follow(loaded.realm.deadLetterTopic);
      const all = await loaded.realm.records(loaded.realm.deadLetterTopic);
      await letters.until('all letters', (seen) => seen.length >= all);
      expect(new Set(letters.seen.map(({ message }) => String(message.key)))).toEqual(new Set(bad));
    });
  });

  describe('Write alone', () => {
    let loaded: LoadedWorker;

    beforeAll(async () => {
      loaded = await start();
    });

    test.for([
      ['requests, of which half must be forwarded', WRITE_ON_REQUESTS],
      ['the ledger', WRITE_ON_LEDGER],
    ] as const)(`on %s: ${TITLE}`, ([, right]) => without(loaded, right));

    test('after all that, every request has one batch, and none is a dead letter', async () => {
      await loaded.check();
      expect(await loaded.realm.records(loaded.realm.deadLetterTopic)).toBe(0);
    });
  });

  test('Read on the replies to HTTP callers: keys and numbers of sequences get 503 until it is granted, and all else is served', async () => {
    const loaded = await start({ apiReplies: true });
    const { realm, worker } = loaded;
    expect(await fetchNumbers(worker, 'granted')).toMatchObject({ status: 404, code: 'UNKNOWN_SEQUENCE' });
    const known = await fetchIds(worker, 'granted');
    expect(known).toMatchObject({ status: 200 });
    const acl = workerRights(realm, USER).apiReplies;
    expect(acl).toHaveLength(1);
    await worker.stop();
    await revoke(realm, acl);
    const again = realm.worker(login());
    await again.ready();
    const detail = expect.stringContaining(`'${realm.env.API_REPLY_TOPIC}'`);
    const refused = { status: 503, code: 'KAFKA_UNAVAILABLE', detail };
    await expect.poll(() => fetchNumbers(again, 'revoked')).toMatchObject(refused);
    await expect.poll(() => fetchIds(again, 'granted')).toMatchObject(refused);
    expect((await fetch(`${await again.api()}/api/v1/ids`)).status).toBe(200);
    expect(await readiness(again)).toMatchObject({ status: 200 });
    await grant(realm, acl);
    await expect.poll(() => fetchNumbers(again, 'granted again')).toMatchObject({ status: 404 });
    expect(await fetchIds(again, 'granted')).toEqual(known);
    await loaded.answered(loaded.load.requests.length - loaded.answers);
  });
});
