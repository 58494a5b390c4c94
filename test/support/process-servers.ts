import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEtcd } from '../../ops/bare/etcd.ts';
import { type KafkaOptions, startKafka } from '../../ops/bare/kafka.ts';
import { LEAST_SESSION_MS, type ServerParts, SUITE, type TestServers } from './servers.ts';

const MEMBER_GRACE_MS = 500;

export interface ProcessServers extends TestServers {
  /** Where the broker keeps its records. */
  readonly kafkaData: string;
  /** The broker's process; undefined without a broker. */
  kafkaPid(): number | undefined;
}

interface ProcessServerOptions extends Pick<KafkaOptions, 'ports' | 'properties' | 'isMeasured'> {
  /** Their data is in a directory below it, by default that of temporary files. */
  readonly parentDir?: string;
}

/** Starts Kafka and an etcd cluster as child processes, with data that is removed when they stop. */
export async function startProcessServers(
  log: (line: string) => void,
  parts: ServerParts = SUITE,
  { parentDir = tmpdir(), ...more }: ProcessServerOptions = {},
): Promise<ProcessServers> {
  const dir = await mkdtemp(join(parentDir, 'idalloc-servers-'));
  const kafkaDir = join(dir, 'kafka');
  const removeData = () => rm(dir, { recursive: true, force: true });
  const properties = { 'group.min.session.timeout.ms': String(LEAST_SESSION_MS), ...more.properties };
  const kafkaOptions = { ...more, dir: kafkaDir, log, properties };
  const [kafka, etcd] = await Promise.allSettled([
    parts.kafka ? startKafka(kafkaOptions) : undefined,
    parts.etcdMembers > 0 ? startEtcd({ dir: join(dir, 'etcd'), size: parts.etcdMembers, log }) : undefined,
  ]);
  if (kafka.status === 'rejected' || etcd.status === 'rejected') {
    await Promise.all([kafka, etcd].map((part) => (part.status === 'fulfilled' ? part.value?.stop() : undefined)));
    await removeData();
    throw new AggregateError(
      [kafka, etcd].flatMap((part) => (part.status === 'rejected' ? [part.reason] : [])),
      'the server processes did not start',
    );
  }
  let broker = kafka.value;
  const brokers = broker?.brokers ?? [];
  const members = [...(etcd.value?.nodes ?? [])];
  const memberAt = (index: number) => {
    const member = members[index];
    if (member === undefined) throw new RangeError(`no etcd member ${index}: there are ${members.length}`);
    return member;
  };
  const signal = async (index: number, name: 'SIGSTOP' | 'SIGCONT'): Promise<void> => {
    process.kill(memberAt(index).pid, name);
  };
  return {
    kind: 'processes',
    kafkaData: join(kafkaDir, 'data'),
    kafkaPid: () => broker?.pid,
    brokers,
    etcdEndpoints: etcd.value?.endpoints ?? [],
    pauseEtcd: (index) => signal(index, 'SIGSTOP'),
    resumeEtcd: (index) => signal(index, 'SIGCONT'),
    killEtcd: (index) => memberAt(index).kill(),
    async restartEtcd(index) {
      members[index] = await memberAt(index).restart();
    },
    killKafka: async () => broker?.kill(),
    async restartKafka() {
      await broker?.stop();
      broker = await startKafka(kafkaOptions);
      const [before, now] = [brokers.join(), broker.brokers.join()];
      if (now !== before) throw new Error(`Kafka moved from ${before} to ${now}: another process has taken its port`);
    },
    async stop() {
      // A frozen member does not receive SIGTERM.
      await Promise.all(
        members.flatMap((member, index) => (member.ended() === undefined ? [signal(index, 'SIGCONT')] : [])),
      );
      // Members that stop at the same time wait for each other until this time limit.
      await Promise.all([broker?.stop(), ...members.map((member) => member.stop(MEMBER_GRACE_MS))]);
      await removeData();
    },
  };
}
