import { setTimeout as pause } from 'node:timers/promises';
import { Member } from '../../src/kafka/loops/member.ts';
import { memberSettings } from '../../src/kafka/loops/member-options.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';
import type { Realm } from '../support/realm.ts';
import type { SuiteServers } from '../support/servers.ts';
import { Watchers } from '../support/watchers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';
import type { Service } from './soak-stage.ts';

/** What the faults of a soak may touch. */
export interface SoakScene {
  readonly servers: SuiteServers;
  readonly realm: Realm;
  readonly partitions: number;
  readonly workers: WorkerProcess[];
  readonly services: readonly Service[];
  /** Times of the faults as a multiple of the shortest. */
  readonly scale: number;
  readonly pick: <T>(from: readonly T[]) => T;
}

interface SoakFault {
  readonly name: string;
  /** Resolves when the fault is over. */
  readonly play: (scene: SoakScene) => Promise<void>;
}

/** The name of the service that floods, and of the one that is suspended. */
export const FLOODING = 'flooding';
export const SUSPENDED = 'suspended';
/** The fault in which it is. */
export const SERVICE_SUSPENDED = 'a service is suspended';
/** A flood lasts until the service that takes most has taken its full buffer, and half of another, beside it. */
export const BESIDE_FLOOD = 'steady';
/** The one whose reply topic is deleted and created again. */
export const ASKING = 'asking';
const LOOK_MS = 50;

/** What it takes from the group it keeps, since it sends heartbeats, and it answers nothing. */
async function takePartitions({ servers, realm, partitions, workers, scale }: SoakScene): Promise<void> {
  const dialer = kafkaDialer({ clientId: 'thief', tls: false });
  const cluster = new Cluster({ dialer, seeds: seedsOf(servers.brokers), runtime: RUNTIME });
  const watchers = new Watchers();
  let held: readonly number[] = [];
  const member = new Member({
    settings: memberSettings({ groupId: realm.groupId, topic: realm.requestTopic, partitions }),
    report: () => ({ copies: new Map(), unreached: [] }),
    cluster,
    runtime: RUNTIME,
    onAssigned: (assigned) => {
      held = assigned.partitions;
      watchers.changed();
    },
    onLost: () => undefined,
    onFenced: () => undefined,
  });
  member.start();
  try {
    const look = () => (held.length > 0 ? true : undefined);
    await watchers.wait({ what: () => `a partition for a member beside ${workers.length} workers`, look });
    await pause(10_000 * scale);
  } finally {
    await member.leave();
    await cluster.close();
  }
}

async function killWorker({ realm, workers, pick, scale }: SoakScene): Promise<void> {
  const index = pick([...workers.keys()]);
  const worker = workers[index] as WorkerProcess;
  worker.kill('SIGKILL');
  await worker.ended();
  await pause(1_000 * scale);
  workers[index] = realm.worker();
  await workers[index].ready();
}

async function suspend(target: Pick<WorkerProcess | Service, 'kill'>, ms: number): Promise<void> {
  target.kill('SIGSTOP');
  await pause(ms);
  target.kill('SIGCONT');
}

/** With one partition in place of many, so that who has read another one is to find it, and is to get IDs again. */
async function recreateReplyTopic({ realm, services }: SoakScene): Promise<void> {
  const asking = named(services, ASKING);
  const topic = asking.plan.client.replyTopic;
  const isListed = async () => (await realm.admin.listTopics()).includes(topic);
  await realm.admin.deleteTopics({ topics: [topic] });
  while (await isListed()) await pause(LOOK_MS);
  // Its name is free a moment after brokers have ceased to list it.
  const create = () => realm.createTopic(topic).then(() => true, isListed);
  while (!(await create())) await pause(LOOK_MS);
  const { taken } = asking;
  await asking.until('replies on its new topic', () => asking.taken > taken);
}

const named = (services: readonly Service[], name: string): Service => {
  const found = services.find(({ plan }) => plan.name === name);
  if (found === undefined) throw new Error(`no service is called ${name}`);
  return found;
};

async function flood({ services }: SoakScene): Promise<void> {
  const [flooding, steady] = [named(services, FLOODING), named(services, BESIDE_FLOOD)];
  const { idsPerSecond = 0, coverSeconds = 0 } = steady.plan.client;
  const full = 2 * idsPerSecond * coverSeconds;
  const enough = steady.taken + 1.5 * full;
  // Failed calls count too: a client that runs dry beside a flood is to end it as well.
  const failed = () => steady.failures.reduce((sum, { times, count }) => sum + times * count, 0);
  const before = failed();
  flooding.tell('flood');
  try {
    await steady.until(`it had taken ${1.5 * full} IDs`, () => steady.taken + failed() - before >= enough);
  } finally {
    flooding.tell('calm');
  }
}

export const SOAK_FAULTS: readonly SoakFault[] = [
  { name: 'another service floods with large requests', play: flood },
  { name: 'a worker is killed', play: killWorker },
  { name: 'a member of the group takes partitions and answers nothing', play: takePartitions },
  {
    name: 'a worker is suspended',
    play: ({ workers, pick, scale }) => suspend(pick(workers), 6_000 * scale),
  },
  {
    name: SERVICE_SUSPENDED,
    play: ({ services, scale }) => suspend(named(services, SUSPENDED), 8_000 * scale),
  },
  { name: 'a reply topic is deleted and created again', play: recreateReplyTopic },
  {
    name: 'the broker is killed and started again',
    play: async ({ servers, scale }) => {
      await servers.killKafka();
      await pause(2_000 * scale);
      await servers.restartKafka();
    },
  },
];
