import { noop } from 'cockatiel';
import { Etcd3 } from 'etcd3';
import { Kafka, logLevel } from 'kafkajs';
import { expect, test } from 'vitest';
import { ownServers } from '../support/own-servers.ts';
import { ETCD_SIZE, etcdLeader, SUITE } from '../support/servers.ts';
import { unique } from '../support/unique.ts';

const servers = await ownServers(SUITE);
const ANSWER_MS = 2_000;

/** A client of one member only: etcd3's rotation and circuit breakers would hide which member answers. */
async function withMember<T>(index: number, use: (etcd: Etcd3) => Promise<T>): Promise<T> {
  const etcd = new Etcd3({
    hosts: servers.etcdEndpoints[index] ?? '',
    faultHandling: { host: () => noop, global: noop },
    defaultCallOptions: () => ({ deadline: Date.now() + ANSWER_MS }),
  });
  try {
    return await use(etcd);
  } finally {
    etcd.close();
  }
}

function put(index: number, key: string): Promise<boolean> {
  return withMember(index, (etcd) =>
    etcd
      .put(key)
      .value('v')
      .then(
        () => true,
        () => false,
      ),
  );
}

async function withAdmin<T>(use: (admin: ReturnType<Kafka['admin']>) => Promise<T>): Promise<T> {
  const kafka = new Kafka({ clientId: 'test', brokers: [...servers.brokers], logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

test('Kafka creates a topic and advertises its configured address', async () => {
  const topic = `servers-${unique()}`;
  await withAdmin(async (admin) => {
    await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 3 }] });
    const { brokers } = await admin.describeCluster();
    expect(brokers.map(({ host, port }) => `${host}:${port}`)).toEqual(servers.brokers);
    // A broker that has just started may need a moment to lead.
    await expect.poll(() => admin.fetchTopicOffsets(topic), { timeout: 30_000 }).toHaveLength(3);
  });
});

test('a killed Kafka restarts on its port with its data', async () => {
  const topic = `servers-${unique()}`;
  await withAdmin((admin) => admin.createTopics({ waitForLeaders: true, topics: [{ topic }] }));
  try {
    await servers.killKafka();
  } finally {
    await servers.restartKafka();
  }
  expect(await withAdmin((admin) => admin.listTopics())).toContain(topic);
});

test('the three etcd members are one cluster', async () => {
  expect(servers.etcdEndpoints).toHaveLength(ETCD_SIZE);
  const key = `servers/${unique()}`;
  expect(await put(0, key)).toBe(true);
  expect(await withMember(ETCD_SIZE - 1, (etcd) => etcd.get(key).string())).toBe('v');
});

test.for([0, 1, 2])('etcd serves with member %i frozen, and that member answers again when resumed', async (frozen) => {
  const key = `servers/${unique()}`;
  const others = [0, 1, 2].filter((index) => index !== frozen);
  await servers.pauseEtcd(frozen);
  try {
    for (const index of others) {
      await expect.poll(() => put(index, key), { timeout: 30_000 }).toBe(true);
    }
    expect(await put(frozen, key)).toBe(false);
  } finally {
    await servers.resumeEtcd(frozen);
  }
  await expect.poll(() => put(frozen, key), { timeout: 30_000 }).toBe(true);
});

test('a killed etcd leader is replaced by another, and restarts on its address with its data', async () => {
  const key = `servers/${unique()}`;
  const leader = await etcdLeader(servers);
  expect(await put(leader, key)).toBe(true);
  const other = (leader + 1) % ETCD_SIZE;
  try {
    await servers.killEtcd(leader);
    await expect.poll(() => put(other, `${key}/2`), { timeout: 30_000 }).toBe(true);
    expect(await etcdLeader(servers)).not.toBe(leader);
  } finally {
    await servers.restartEtcd(leader);
  }
  expect(await withMember(leader, (etcd) => etcd.get(key).string())).toBe('v');
  expect(await withMember(leader, (etcd) => etcd.get(`${key}/2`).string())).toBe('v');
});
