import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CertificateAuthority } from '../support/certificates.ts';
import { lead } from '../support/cluster-scene.ts';
import { KafkaCluster, type NodeId } from '../support/kafka-cluster.ts';
import { LoadedWorker, readiness } from '../support/loaded-worker.ts';
import { Realm } from '../support/realm.ts';
import { grant, workerRights } from '../support/secured-kafka.ts';
import { suiteServers } from '../support/servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

const USER = 'id-worker';
const PASSWORD = 'kafka-pass';
const SECURITY = 'org.apache.kafka.common.security';
const REPLICAS = 3;
const ANSWERED = 40;
const why = whyNoProcesses('kafka', 'openssl');

const stack = new AsyncDisposableStack();
let cluster: KafkaCluster;
let dir: string;
let authority: CertificateAuthority;
let next: CertificateAuthority;

const shownBy = (node: NodeId) => join(dir, `broker-${node}.pem`);

/** Sets the certificate of a broker from its next start on. */
function show(node: NodeId, by: CertificateAuthority): void {
  copyFileSync(by.issue(`broker-${node}`).bothFile, shownBy(node));
}

function propertiesOf(node: NodeId): Record<string, string> {
  return {
    'listener.security.protocol.map': 'CLIENT:SASL_SSL,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'listener.name.client.ssl.keystore.type': 'PEM',
    'listener.name.client.ssl.keystore.location': shownBy(node),
    'listener.name.client.sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.client.plain.sasl.jaas.config': `${SECURITY}.plain.PlainLoginModule required user_${USER}="${PASSWORD}";`,
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'super.users': 'User:ANONYMOUS',
    // A broker that is back becomes the leader of its partitions again within seconds.
    'leader.imbalance.check.interval.seconds': '3',
    'leader.imbalance.per.broker.percentage': '0',
  };
}

beforeAll(async () => {
  if (why !== undefined) return;
  dir = mkdtempSync(join(tmpdir(), 'idalloc-secured-brokers-'));
  stack.defer(() => rmSync(dir, { recursive: true, force: true }));
  [authority, next] = [new CertificateAuthority(dir), new CertificateAuthority(mkdtempSync(join(dir, 'next-')))];
  for (const node of [1, 2, 3] as const) show(node, authority);
  cluster = stack.use(await KafkaCluster.start(propertiesOf));
});

afterAll(() => stack.disposeAsync());

describe.skipIf(why !== undefined)(`three brokers with logins and certificates${why ? `: ${why}` : ''}`, () => {
  test('a broker that restarts with a certificate of a new CA delays its partitions until KAFKA_CA has both, and loses nothing', async () => {
    const realm = await Realm.create(
      { ...suiteServers(), brokers: cluster.internal },
      { partitions: REPLICAS, replicas: REPLICAS },
    );
    await grant(realm, Object.values(workerRights(realm, USER)).flat());
    const ca = join(dir, 'ca');
    writeFileSync(ca, authority.own.certPem);
    await using loaded = await LoadedWorker.under(realm, {
      KAFKA_BROKERS: cluster.brokers.join(),
      KAFKA_TLS: '1',
      KAFKA_CA_FILE: ca,
      KAFKA_SASL_MECHANISM: 'plain',
      KAFKA_SASL_USERNAME: USER,
      KAFKA_SASL_PASSWORD: PASSWORD,
    });
    const { worker } = loaded;
    const leads = async (node: NodeId) => {
      const { topics } = await realm.admin.fetchTopicMetadata({ topics: [realm.requestTopic, realm.ledgerTopic] });
      return topics.some(({ partitions }) => partitions.some(({ leader }) => leader === node));
    };

    // Without its group, its witness and its replies, a worker serves nothing.
    await lead(realm, { never: 2 }, ['__consumer_offsets', realm.witnessTopic, realm.replyTopic]);
    await cluster.kill(2);
    await loaded.ready();
    await loaded.answered(ANSWERED);
    show(2, next);
    await cluster.startNode(2);
    const detail = await loaded.stopped('KAFKA_REFUSED');
    expect(detail).toMatch(/certificate.*KAFKA_CA/);
    expect(await leads(2)).toBe(true);
    expect(await worker.metric('idalloc_kafka_refused{resource="login"}')).toBe(1);
    await loaded.answered(ANSWERED); // requests of the partitions that others lead

    writeFileSync(ca, authority.own.certPem + next.own.certPem);
    await loaded.ready();
    expect(await worker.metric('idalloc_kafka_refused{resource="login"}')).toBe(0);
    await loaded.answered(loaded.load.requests.length - loaded.answers);

    const from = worker.lines.length;
    show(3, next);
    await cluster.kill(3);
    await cluster.startNode(3);
    await expect.poll(() => leads(3)).toBe(true);
    await loaded.answered(ANSWERED);
    expect(await readiness(worker)).toMatchObject({ status: 200 });
    expect(worker.lines.slice(from).filter(({ code }) => code === 'KAFKA_REFUSED')).toEqual([]);
    await loaded.check();
  });
});
