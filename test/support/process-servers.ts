import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEtcd } from '../../ops/dev/etcd-process.ts';
import { startKafka } from '../../ops/dev/kafka-process.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { ETCD_SIZE, LEAST_SESSION_MS, type TestServers } from './servers.ts';

const MEMBER_GRACE_MS = 500;

/** Starts Kafka and three etcd members as child processes, with data that is removed when they stop. */
export async function startProcessServers(log: (line: string) => void): Promise<TestServers> {
  const dir = await mkdtemp(join(tmpdir(), 'idalloc-servers-'));
  const kafkaDir = join(dir, 'kafka');
  const removeData = () => rm(dir, { recursive: true, force: true });
  const [proxyPort = 0] = await freePorts(1);
  const properties = { 'group.min.session.timeout.ms': String(LEAST_SESSION_MS) };
  const [kafka, etcd] = await Promise.allSettled([
    startKafka({ dir: kafkaDir, log, proxyPort, properties }),
    startEtcd({ dir: join(dir, 'etcd'), size: ETCD_SIZE, log }),
  ]);
  if (kafka.status === 'rejected' || etcd.status === 'rejected') {
    await Promise.all([kafka, etcd].map((part) => (part.status === 'fulfilled' ? part.value.stop() : undefined)));
    await removeData();
    throw new AggregateError(
      [kafka, etcd].flatMap((part) => (part.status === 'rejected' ? [part.reason] : [])),
      'the server processes did not start',
    );
  }
  let broker = kafka.value;
  const { endpoints, nodes } = etcd.value;
  const members = [...nodes];
  const memberAt = (index: number) => {
    const member = members[index];
    if (member === undefined) throw new RangeError(`there is no such etcd member: they are 0 to ${ETCD_SIZE - 1}`);
    return member;
  };
  const signal = async (index: number, name: 'SIGSTOP' | 'SIGCONT'): Promise<void> => {
    process.kill(memberAt(index).pid, name);
  };
  return {
    kind: 'processes',
    brokers: broker.brokers,
    etcdEndpoints: endpoints,
    proxied: { port: proxyPort, broker: broker.behindProxy ?? '' },
    pauseEtcd: (index) => signal(index, 'SIGSTOP'),
    resumeEtcd: (index) => signal(index, 'SIGCONT'),
    killEtcd: (index) => memberAt(index).kill(),
    async restartEtcd(index) {
      members[index] = await memberAt(index).restart();
    },
    killKafka: () => broker.kill(),
    async restartKafka() {
      await broker.stop();
      const addresses = () => [...broker.brokers, broker.behindProxy].join();
      const before = addresses();
      broker = await startKafka({ dir: kafkaDir, log, proxyPort, properties });
      const now = addresses();
      if (now !== before) throw new Error(`Kafka moved from ${before} to ${now}: another process has taken its port`);
    },
    async stop() {
      // A frozen member does not receive SIGTERM.
      await Promise.all(
        members.flatMap((member, index) => (member.ended() === undefined ? [signal(index, 'SIGCONT')] : [])),
      );
      // Members that stop at the same time wait for each other until this time limit.
      await Promise.all([broker.stop(), ...members.map((member) => member.stop(MEMBER_GRACE_MS))]);
      await removeData();
    },
  };
}
