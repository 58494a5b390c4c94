import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Load } from '../support/load.ts';
import { Realm, SHORT_LEASE } from '../support/realm.ts';
import { grant, revoke, SecuredKafka, workerRights } from '../support/secured-kafka.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, settledRecords } from '../support/whole-history.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const USER = 'id-worker';
const PASSWORD = 'kafka-pass';
const PARTITIONS = 2;
const ERROR_LEVEL = 50;
const WARN_LEVEL = 40;
/** Requests that are sent and stay unanswered while the right is missing. */
const UNANSWERED = 20;
/** Lines at level warn and above that one fault is worth: each loop that meets it says so once in 10 s. */
const MAX_LINES = 12;
const POLL = { timeout: 60_000, interval: 200 };
const why = whyNoProcesses('kafka', 'etcd', 'openssl');

const stack = new AsyncDisposableStack();
let kafka: SecuredKafka;

beforeAll(async () => {
  if (why !== undefined) return;
  kafka = stack.use(await SecuredKafka.start());
  await kafka.setPassword(USER, PASSWORD);
});

afterAll(() => stack.disposeAsync());

async function readiness(worker: WorkerProcess): Promise<{ status: number; reason?: string; detail?: string }> {
  const response = await worker.ops('/readyz');
  return { ...((await response.json()) as object), status: response.status };
}

function named(realm: Realm): Record<string, string> {
  const { requestTopic, ledgerTopic, witnessTopic, groupId, replyTopic } = realm;
  return { requests: requestTopic, ledger: ledgerTopic, witness: witnessTopic, group: groupId, replies: replyTopic };
}

describe.skipIf(why !== undefined)(`rights that are taken away under load${why ? `: ${why}` : ''}`, () => {
  test.for([
    ['requests', /allow Read and Write/],
    ['ledger', /allow Read and Write/],
    ['witness', /allow Read and Write/],
    ['group', /allow Read/],
    ['replies', /allow Write/],
  ] as const)('on %s: the worker says what it lacks, waits for it, and loses nothing', async ([resource, remedy]) => {
    await using realm = await Realm.create(
      { ...suiteServers(), brokers: [kafka.plaintext] },
      { partitions: PARTITIONS, env: SHORT_LEASE },
    );
    const rights = workerRights(realm, USER);
    await grant(realm, Object.values(rights).flat());
    const replies = await realm.follow();
    const ledger = await realm.follow(realm.ledgerTopic);
    const worker = realm.worker({
      KAFKA_BROKERS: kafka.byLogin,
      KAFKA_TLS: '1',
      KAFKA_CA: readFileSync(kafka.authority.own.certFile, 'utf8'),
      KAFKA_SASL_MECHANISM: 'scram-sha-512',
      KAFKA_SASL_USERNAME: USER,
      KAFKA_SASL_PASSWORD: PASSWORD,
    });
    await worker.ready();
    const load = new Load(realm, { partitions: PARTITIONS, burst: 2, paceMs: 100 });
    await replies.replies(10);

    const from = worker.lines.length;
    await revoke(realm, rights[resource] ?? []);
    await expect.poll(() => readiness(worker), POLL).toMatchObject({ status: 503, reason: 'KAFKA_REFUSED' });
    const { detail = '' } = await readiness(worker);
    expect(detail).toContain(`'${named(realm)[resource]}'`);
    expect(detail).toMatch(remedy);
    expect(await worker.metric(`idalloc_kafka_refused{resource="${resource}"}`)).toBe(1);
    const line = await worker.line(({ msg }) => msg === 'the brokers refuse this worker', from);
    expect(line).toMatchObject({ level: ERROR_LEVEL, code: 'KAFKA_REFUSED', resource });
    await expect
      .poll(() => load.asks.length - new Set(replies.seen.map(({ message }) => String(message.key))).size, POLL)
      .toBeGreaterThan(UNANSWERED);
    expect(await readiness(worker)).toMatchObject({ status: 503, reason: 'KAFKA_REFUSED' });
    const told = worker.lines.slice(from).filter(({ level }) => Number(level) >= WARN_LEVEL);
    expect(told.length, told.map((one) => JSON.stringify(one)).join('\n')).toBeLessThan(MAX_LINES);

    await grant(realm, rights[resource] ?? []);
    await expect.poll(() => readiness(worker), POLL).toMatchObject({ status: 200 });
    expect(await worker.metric(`idalloc_kafka_refused{resource="${resource}"}`)).toBe(0);
    const asks = await load.stop();
    await checkWholeHistory(realm, asks, replies, () => settledRecords(realm, realm.ledgerTopic, ledger));
    expect(await realm.records(realm.deadLetterTopic)).toBe(0);
  });
});
