import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { freePorts } from '../../ops/dev/ports.ts';
import { ALERTS } from '../../ops/prometheus/rules.ts';
import {
  decodeEndHead,
  decodeSequenceHead,
  encodeEndHead,
  encodePending,
  encodeSequenceHead,
  type PendingNumbers,
} from '../../src/codec/head-values.ts';
import { WIDE_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeNumbersKey } from '../../src/codec/ledger-key.ts';
import { decodeDescriptor } from '../../src/codec/namespace-values.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { CalmWorkers } from '../support/calm-workers.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { FakedClock } from '../support/faked-clock.ts';
import { hastyRules, LASTING } from '../support/hasty-rules.ts';
import { OwnEtcd, requireOwnEtcd, SMALL_QUOTA_BYTES } from '../support/own-etcd.ts';
import { ownServers } from '../support/own-servers.ts';
import { Prometheus, requirePrometheus, type Sample } from '../support/prometheus.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { WITHOUT_ETCD } from '../support/stops.ts';
import { isProduceTo, TcpProxy } from '../support/tcp-proxy.ts';
import { testKafka } from '../support/test-kafka.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

/** Some faults fire after a minute, and a busy machine is slow. */
const FIRES_WITHIN_MS = 240_000;
const FULL_DISK = join(import.meta.dirname, '../support/full-disk.mjs');
/** Five minutes of Prometheus. */
const CALM_EVALUATIONS = 300;
const HOUR_MS = 3_600_000;

const broken = await ownServers({ kafka: true, etcdMembers: 1 });
const seen = new Set<string>();

let prometheus: Prometheus;
let calm: CalmWorkers;
let beganMs: number;

beforeEach(async (context) => {
  await requirePrometheus(context);
  prometheus ??= await Prometheus.start(hastyRules());
  calm ??= await CalmWorkers.start(prometheus);
  beganMs = performance.now();
});

afterAll(async () => {
  await calm?.[Symbol.asyncDispose]();
  await prometheus?.[Symbol.asyncDispose]();
});

/** What is the highest of a series since this test began. */
function highest(series: string): Promise<readonly Sample[]> {
  const seconds = Math.max(1, Math.floor((performance.now() - beganMs) / 1_000));
  return prometheus.query(`max_over_time(${series}[${seconds}s])`);
}

/** Waits until Prometheus has fired each of the alerts, with these labels among others. */
async function expectFired(alerts: Readonly<Record<string, Sample['metric']>>): Promise<void> {
  for (const [alert, labels] of Object.entries(alerts)) {
    const firing = `ALERTS{alertname="${alert}",alertstate="firing"}`;
    const series = expect.objectContaining({ metric: expect.objectContaining(labels) });
    await expect.poll(() => highest(firing), { timeout: FIRES_WITHIN_MS, message: alert }).toContainEqual(series);
    seen.add(alert);
  }
}

/** A number that some worker swapped in for an unknown request. */
function pendingNumbers(sequence: string, first: number): PendingNumbers {
  const replyTopic = 'id.replies.unknown';
  const entry = {
    ...({ kind: 'numbers', replyTopic, requestOffset: 1_000_000, framing: 'SINGLE_OBJECT' } as const),
    ...{ requestHash: requestHash(1, replyTopic), schemaFingerprint: WIDE_REPLY_FINGERPRINT },
    ...{ first, count: 1, step: 1, format: '' },
  };
  return { kind: 'numbers', sequence, key: encodeNumbersKey(sequence, Buffer.from('unknown')), edition: 1, entry };
}

/** Often, so that a lost etcd is noticed soon: the ceiling is half used up before the worker stops. */
const ETCD_NOTICED = {
  LEASE_TTL_SECONDS: '14',
  LEASE_HEARTBEAT_MS: '1000',
  ETCD_REFUSE_AFTER_MS: '11000',
  RESERVATION_MS: '12000',
  LEASE_MARGIN_MS: '1000',
} as const;

test('etcd that does not answer fires that its calls fail, that the ceiling is near, that the gate is closed, and that it remembers no decisions', async () => {
  const job = 'idalloc-etcd';
  const servers = { ...suiteServers(), etcdEndpoints: broken.etcdEndpoints };
  await using realm = await Realm.create(servers, { env: ETCD_NOTICED });
  const worker = realm.worker();
  await worker.ready();
  const replies = await realm.follow();
  await prometheus.scrape(job, [worker]);
  await expect.poll(() => prometheus.query(`up{job="${job}"} == 1`)).toHaveLength(1);
  await broken.pauseEtcd(0);
  try {
    await realm.send([{ correlationId: 'decided', count: 1 }]);
    await replies.reply('decided');
    await expectFired({
      IdallocCeilingNear: { job },
      IdallocGateClosed: { job, reason: expect.toBeOneOf([...WITHOUT_ETCD]) },
      IdallocEtcdCallsFail: { job },
      IdallocHeadsNotKept: { job },
    });
    const url = `${await worker.api()}/api/v1/ids`;
    const ask = async () => {
      const { status } = await fetch(url);
      return [status, await highest(`ALERTS{alertname="IdallocHttpFails",job="${job}",alertstate="firing"}`)];
    };
    await expect.poll(ask, { timeout: FIRES_WITHIN_MS, interval: 200 }).toMatchObject([503, [{ value: 1 }]]);
    await expectFired({
      IdallocHttpFails: { job },
      IdallocFailureBudgetBurns: { job },
      IdallocFailureBudgetShrinks: { job },
      [LASTING]: { job, of: 'IdallocGateClosed' },
    });
  } finally {
    await broken.resumeEtcd(0);
  }
});

test('etcd at its quota fires that its database is large, that it has raised an alarm, and that it refuses calls', async (context) => {
  requireOwnEtcd(context);
  const job = 'idalloc-etcd-full';
  await using etcd = await OwnEtcd.small();
  const servers = { ...suiteServers(), etcdEndpoints: etcd.endpoints };
  await using realm = await Realm.create(servers, { env: { ETCD_QUOTA_BYTES: String(SMALL_QUOTA_BYTES) } });
  await etcd.fill();
  await prometheus.scrape(job, [realm.worker()]);
  await expectFired({
    IdallocEtcdRefuses: { job },
    IdallocEtcdAlarm: { job, alarm: 'NOSPACE' },
    IdallocEtcdDatabaseLarge: { job, endpoint: etcd.endpoints[0] ?? '' },
  });
});

test('brokers of another cluster than the ledger is bound to fire that', async () => {
  const job = 'idalloc-cluster';
  await using realm = await Realm.create(suiteServers());
  const bound = `${realm.keys.root}clusters/${realm.ledgerTopic}`;
  await realm.etcd.transact([], [{ put: bound, value: Buffer.from('another-cluster') }]);
  await prometheus.scrape(job, [realm.worker()]);
  await expectFired({ IdallocClusterChanged: { job } });
});

test('brokers that are gone fire that Kafka is silent, and that partitions are not reached', async () => {
  const job = 'idalloc-kafka';
  const servers = { ...suiteServers(), brokers: broken.brokers };
  await using realm = await Realm.create(servers);
  const worker = realm.worker();
  await worker.ready();
  await prometheus.scrape(job, [worker]);
  await broken.killKafka();
  try {
    await expectFired({ IdallocKafkaSilent: { job }, IdallocPartitionUnreached: { job } });
  } finally {
    await broken.restartKafka();
  }
});

test('a session that the brokers refuse fires that, and that the worker is not in the group', async () => {
  const job = 'idalloc-group';
  await using realm = await Realm.create(suiteServers(), { env: { KAFKA_SESSION_TIMEOUT_MS: '1000' } });
  await prometheus.scrape(job, [realm.worker()]);
  await expectFired({ IdallocNotInGroup: { job }, IdallocKafkaRefused: { job, resource: 'group' } });
});

test("a clock that is off the brokers' fires that it drifts, and beyond half of the margin that they are off", async (context) => {
  const job = 'idalloc-clock';
  using clock = await FakedClock.create(context, 400);
  await using realm = await Realm.create(suiteServers());
  await prometheus.scrape(job, [realm.worker({ ...clock.env, BROKER_CLOCK_MARGIN_MS: '400' })]);
  await expectFired({ IdallocClockDrift: { job, bound: 'low' }, IdallocBrokerClock: { job } });
});

test('a ledger that acknowledges late fires that answers are slow, over Kafka and HTTP', async () => {
  const job = 'idalloc-slow';
  await using proxy = await TcpProxy.start(suiteServers());
  await using realm = await Realm.create(suiteServers(), { partitions: 1, apiReplies: true });
  const worker = realm.worker({ KAFKA_BROKERS: proxy.address });
  await worker.ready();
  const url = `${await worker.api()}/api/v1/id`;
  // With a key the ledger decides, as for a record.
  const ask = async (key: string) => {
    const { status } = await fetch(url, { method: 'POST', headers: { 'idempotency-key': key } });
    expect(status).toBe(200);
  };
  await ask('first');
  await prometheus.scrape(job, [worker]);
  const asked = `idalloc_http_request_seconds_count{job="${job}",route="/api/v1/id"}`;
  await expect.poll(() => prometheus.query(asked)).toMatchObject([{ value: 1 }]);
  const late = proxy.delayAnswers(isProduceTo(realm.ledgerTopic), 3, 2_000);
  for (let i = 0; i < 3; i += 1) await ask(`late-${i}`);
  await late;
  await expectFired({
    IdallocHttpSlow: { job },
    IdallocAnswersSlow: { job },
    IdallocLatencyBudgetBurns: { job },
    IdallocLatencyBudgetShrinks: { job },
  });
});

test('the holder of the last worker ID, on a full disk, fires that, and three starts in its place that it restarts', async () => {
  const job = 'idalloc-restarts';
  const [port] = await freePorts(1);
  await using realm = await Realm.create(suiteServers(), { env: { POOL_LAST: '0', OPS_PORT: String(port) } });
  const first = realm.worker({ NODE_OPTIONS: `--import ${FULL_DISK}` });
  await first.ready();
  await prometheus.scrape(job, [first]);
  await expectFired({ IdallocNoSpareWorkerId: { job }, IdallocIndexDiskFull: { job } });
  const started = async () => (await prometheus.query(`process_start_time_seconds{job="${job}"}`))[0]?.value ?? 0;
  let worker = first;
  for (let starts = 1; starts <= 3; starts += 1) {
    const before = await started();
    worker.kill('SIGKILL');
    await worker.ended();
    worker = realm.worker();
    await expect.poll(started).toBeGreaterThan(before);
  }
  await expectFired({ IdallocRestarts: { job } });
});

describe('one worker', () => {
  const job = 'idalloc-one';
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-alerts-'));
  /** It ends after 49 days, and allocates 16,000 IDs in a second. */
  const layout = {
    LAYOUT: 'custom',
    LAYOUT_FIELDS: 'timestamp:32,worker:5,sequence:4',
    LAYOUT_EPOCH_MS: String(Date.now() - HOUR_MS),
    DATACENTER_ID: '0',
  };
  let realm: Realm;
  let worker: WorkerProcess;

  beforeAll(async () => {
    const { certFile, keyFile } = new CertificateAuthority(dir).issueOld('server');
    realm = await Realm.create(suiteServers(), { partitions: 2, env: layout });
    worker = realm.worker({ API_TLS_CERT_FILE: certFile, API_TLS_KEY_FILE: keyFile });
    await worker.ready();
    // It looks at the topics each minute, so that passes beside the first tests.
    await realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', String(HOUR_MS));
  });

  afterAll(async () => {
    await realm?.[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true, force: true });
  });

  test('fires that it has no standby, a certificate that expires, and a layout that ends', async () => {
    await prometheus.scrape(job, [worker]);
    await expectFired({
      IdallocStandbyMissing: { job, partition: '1' },
      IdallocCertificateExpires: { job, variable: 'API_TLS_CERT' },
      IdallocLayoutEnds: { job },
    });
  });

  test('fires a flood of bad requests', async () => {
    const junk = Array.from({ length: 500 }, () => ({ value: 'junk' }));
    let isOver = false;
    // A rate needs scrapes on the way, which fail where the flood takes the machine: each round waits for Prometheus.
    const flood = (async () => {
      while (!isOver) {
        await realm.sendRaw(junk);
        const before = await prometheus.evaluations();
        await expect.poll(() => prometheus.evaluations()).toBeGreaterThan(before);
      }
    })();
    try {
      await expectFired({
        IdallocDeadLetters: { job, code: 'MALFORMED_REQUEST' },
        IdallocDeadLetterFlood: { job },
        IdallocRequestsRefused: { job, code: 'MALFORMED_REQUEST' },
        IdallocMostRequestsRefused: { job },
      });
    } finally {
      isOver = true;
      await flood;
    }
  });

  test('fires a flood of connections', async () => {
    const { port } = await worker.line(({ msg }) => msg === 'health and metrics are served');
    const sockets = Array.from({ length: 400 }, () => connect(Number(port), '127.0.0.1').on('error', () => undefined));
    try {
      await expectFired({ IdallocConnectionsShed: { job, listener: 'ops' } });
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  });

  test('fires numbers that the ledger has lost, and a sequence that etcd contradicts', async () => {
    const { env, etcd, keys, datacenterId, ledgerTopic } = realm;
    const kept = async (key: string): Promise<Buffer> => {
      const found = (await etcd.get([key])).get(key);
      if (found === undefined) throw new Error(`etcd has no key ${key}`);
      return found.value;
    };
    const { uuid: namespace } = decodeDescriptor(await kept(keys.descriptor));
    const replies = await realm.follow();
    /**
     * A sequence from 5, of which etcd remembers this as next, and these numbers as pending; a worker is then asked for
     * one.
     */
    const remembered = async (name: string, next: number, records: readonly PendingNumbers[]) => {
      const { code, stderr } = await runIdalloc(['sequence', 'create', name, '--start', '5', '--json'], env);
      if (code !== 0) throw new Error(stderr);
      const partition = partitionFor(Buffer.from(name), 2, () => 0);
      const heads = ledgerHeadKeys(env.ETCD_PREFIX ?? '', datacenterId, ledgerTopic, partition);
      const key = heads.sequence(name);
      const value = encodeSequenceHead({ ...decodeSequenceHead(await kept(key), key), next });
      const pending = encodePending({ namespace, through: -1, records });
      // biome-ignore format: two puts
      await etcd.transact([], [{ put: key, value }, { put: heads.pending, value: pending }]);
      await realm.send([{ correlationId: `of-${name}`, count: 1, sequence: name }]);
      return await replies.reply(`of-${name}`);
    };
    // Whatever was sent before the loss is stated may have been decided by what is lost.
    expect(await remembered('lost', 9, [])).toMatchObject({ reply: { error: { code: 'FORGOTTEN' } } });
    await expectFired({ IdallocNumbersLost: { job } });
    const refused = await remembered('stopped', 5, [pendingNumbers('stopped', 1)]);
    expect(refused).toMatchObject({ reply: { error: { code: 'SEQUENCE_STOPPED' } } });
    await expectFired({ IdallocSequenceStopped: { job } });
  });

  test('fires a ledger that ends before the last entry that etcd remembers', async () => {
    const { env, etcd, datacenterId, ledgerTopic } = realm;
    const { end: key } = ledgerHeadKeys(env.ETCD_PREFIX ?? '', datacenterId, ledgerTopic, 0);
    const head = { end: 1_000_000, digest: Buffer.alloc(16), through: -1, time: 0, life: 0 };
    await etcd.transact([], [{ put: key, value: encodeEndHead(head) }]);
    const replies = await realm.follow();
    let rounds = 0;
    // The worker learns that another has written the head when it has something to add, and compares before it decides
    // again.
    const livesAfterOneMore = async () => {
      rounds += 1;
      const id = `after-${rounds}`;
      const value = encodeIdRequest({ count: 1, correlationId: Buffer.from(id), replyTopic: realm.replyTopic });
      await realm.sendRaw([{ value, partition: 0 }]);
      await replies.reply(id);
      return decodeEndHead(key, (await etcd.get([key])).get(key)?.value ?? Buffer.alloc(0)).life;
    };
    await expect.poll(livesAfterOneMore, { timeout: FIRES_WITHIN_MS }).toBe(1);
    await expectFired({ IdallocLedgerLost: { job } });
  });

  test('fires requests that wait behind an open transaction, their number, and large requests that wait too long', async () => {
    // Half of them are in the other partition, which takes longer than a minute for those.
    const large = Array.from({ length: 200 }, (_, i) => ({ correlationId: `large-${i}`, count: 15_000 }));
    const producer = testKafka(suiteServers().brokers).producer({
      transactionalId: realm.groupId,
      idempotent: true,
      maxInFlightRequests: 1,
      transactionTimeout: FIRES_WITHIN_MS,
    });
    await producer.connect();
    const transaction = await producer.transaction();
    try {
      const value = encodeIdRequest({ count: 1, correlationId: Buffer.from('open'), replyTopic: realm.replyTopic });
      const messages = Array.from({ length: 10_001 }, () => ({ value, partition: 0 }));
      await transaction.send({ topic: realm.requestTopic, messages });
      await realm.send(large);
      await expectFired({
        IdallocConsumerLag: { job },
        IdallocRequestsUnanswered: { job, partition: '0' },
        IdallocLargeRequestsWait: { job },
      });
    } finally {
      await transaction.abort();
      await producer.disconnect();
    }
  });

  test('fires partitions that were added, and a retention that was lowered', async () => {
    await realm.admin.createPartitions({ topicPartitions: [{ topic: realm.requestTopic, count: 3 }] });
    await expectFired({
      IdallocPartitionsAdded: { job, topic: 'requests' },
      IdallocTopicsChanged: { job, code: 'LEDGER_RETENTION' },
    });
  });

  test('fires an entry of the ledger that it can not read', async () => {
    await realm.sendRaw([{ key: 'foreign', value: 'not an entry', partition: 1 }], realm.ledgerTopic);
    await expectFired({ IdallocLedgerStopped: { job } });
  });
});

test('two workers that served for five minutes beside all these faults, and met a bad request, fired nothing of which a person would be notified', async () => {
  const { fired, ids } = await calm.served(CALM_EVALUATIONS);
  expect(fired).toEqual([]);
  expect(ids).toBeGreaterThan(CALM_EVALUATIONS);
});

test('a worker that is killed fires that it is down and missing, and the last one that none serves', async () => {
  const { job } = calm;
  await calm.rest();
  calm.kill(0);
  await expectFired({ IdallocWorkerDown: { job }, IdallocWorkersMissing: { job } });
  calm.kill(1);
  await expectFired({ IdallocNoWorkerServes: { job } });
});

test('every alert was seen firing', () => {
  expect(ALERTS.map(({ alert }) => alert).filter((alert) => !seen.has(alert))).toEqual([]);
});
