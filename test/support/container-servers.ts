import { hostname } from 'node:os';
import {
  getContainerRuntimeClient,
  getReaper,
  LABEL_TESTCONTAINERS_SESSION_ID,
  Network,
  RandomPortGenerator,
  type StartedNetwork,
  type StartedTestContainer,
} from 'testcontainers';
import { IMAGES } from '../../ops/dev/images.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { isRunning, ownIdentity } from '../../ops/dev/process-identity.mjs';
import { ETCD_PORT, etcdContainer, kafkaContainer, removeLabelled } from '../../src/testcontainers/servers.ts';
import { ETCD_SIZE, LEAST_SESSION_MS, type ProxiedBroker, type TestServers } from './servers.ts';

const RESTART_MS = 20_000;
/** The label with the machine and process that a container belongs to. */
const HOST_LABEL = 'idalloc.test.host';
const PID_LABEL = 'idalloc.test.pid';
const START_LABEL = 'idalloc.test.start';

/** The label of all containers and networks of this process's testcontainers session. */
export async function sessionLabel(): Promise<string> {
  const reaper = await getReaper(await getContainerRuntimeClient());
  return `${LABEL_TESTCONTAINERS_SESSION_ID}=${reaper.sessionId}`;
}

/** Removes the containers of this session, and nothing else. */
async function removeSession(): Promise<void> {
  await removeLabelled(await sessionLabel());
}

/** Removes containers of sessions whose process was killed on this machine, and none of running processes. */
export async function removeOrphans(log: (line: string) => void): Promise<void> {
  const { dockerode } = (await getContainerRuntimeClient()).container;
  const containers = await dockerode.listContainers({ all: true, filters: { label: [`${HOST_LABEL}=${hostname()}`] } });
  const dead = containers.filter(({ Labels }) => {
    return !isRunning({ pid: Number(Labels[PID_LABEL]), start: Labels[START_LABEL] ?? '' });
  });
  const sessions = new Set(dead.flatMap(({ Labels }) => Labels[LABEL_TESTCONTAINERS_SESSION_ID] ?? []));
  for (const session of sessions) {
    log(`removing the containers of the killed session ${session}`);
    await removeLabelled(`${LABEL_TESTCONTAINERS_SESSION_ID}=${session}`);
  }
}

/** Labels that mark a container as this process's, so that a later run can remove it if this one is killed. */
export function ownerLabels(): Record<string, string> {
  const { pid, start } = ownIdentity();
  return { [HOST_LABEL]: hostname(), [PID_LABEL]: String(pid), [START_LABEL]: start };
}

/** Kafka, with a second listener for clients behind a proxy. */
async function startKafka(): Promise<{ container: StartedTestContainer; broker: string; proxied: ProxiedBroker }> {
  const ports = new RandomPortGenerator();
  const port = await ports.generatePort();
  const behindProxy = await ports.generatePort();
  const [proxyPort = 0] = await freePorts(1);
  const broker = `127.0.0.1:${port}`;
  const container = await kafkaContainer(IMAGES.kafka, [
    { name: 'HOST', port: 9092, advertised: broker },
    { name: 'PROXY', port: 9095, advertised: `127.0.0.1:${proxyPort}` },
  ])
    .withEnvironment({ KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS: String(LEAST_SESSION_MS) })
    .withLabels(ownerLabels())
    .withExposedPorts({ container: 9092, host: port }, { container: 9095, host: behindProxy })
    .start();
  return { container, broker, proxied: { port: proxyPort, broker: `127.0.0.1:${behindProxy}` } };
}

/** One etcd cluster; its members wait for each other, so they start together. Fixed ports survive a restart. */
async function startEtcd(network: StartedNetwork): Promise<{ members: StartedTestContainer[]; endpoints: string[] }> {
  const names = Array.from({ length: ETCD_SIZE }, (_, index) => `etcd${index + 1}`);
  const ports = await freePorts(names.length);
  const members = await Promise.all(
    names.map((name, index) =>
      etcdContainer(IMAGES.etcd, name, names)
        .withLabels(ownerLabels())
        .withNetwork(network)
        .withNetworkAliases(name)
        .withExposedPorts({ container: ETCD_PORT, host: ports[index] ?? 0 })
        .start(),
    ),
  );
  return { members, endpoints: ports.map((port) => `http://127.0.0.1:${port}`) };
}

async function handleOf(container: StartedTestContainer | undefined) {
  if (container === undefined) throw new RangeError(`there is no such etcd member: they are 0 to ${ETCD_SIZE - 1}`);
  return (await getContainerRuntimeClient()).container.getById(container.getId());
}

async function isPaused(container: StartedTestContainer | undefined): Promise<boolean> {
  return (await (await handleOf(container)).inspect()).State.Paused;
}

/** Starts Kafka and three etcd members in parallel; if one fails, everything is removed. */
export async function startContainerServers(): Promise<TestServers> {
  const begun = Promise.allSettled([startKafka(), new Network().start().then(startEtcd)]);
  const [kafka, etcd] = await begun;
  if (kafka.status === 'rejected' || etcd.status === 'rejected') {
    await removeSession();
    throw new AggregateError(
      [kafka, etcd].flatMap((part) => (part.status === 'rejected' ? [part.reason] : [])),
      'the containers did not start',
    );
  }
  const { container, broker, proxied } = kafka.value;
  const { members, endpoints } = etcd.value;
  return {
    kind: 'containers',
    brokers: [broker],
    etcdEndpoints: endpoints,
    proxied,
    async pauseEtcd(index) {
      if (!(await isPaused(members[index]))) await (await handleOf(members[index])).pause();
    },
    async resumeEtcd(index) {
      if (await isPaused(members[index])) await (await handleOf(members[index])).unpause();
    },
    async killEtcd(index) {
      await (await handleOf(members[index])).kill();
    },
    async restartEtcd(index) {
      await members[index]?.restart({ timeout: RESTART_MS });
    },
    async killKafka() {
      await (await handleOf(container)).kill();
    },
    restartKafka: () => container.restart({ timeout: RESTART_MS }),
    stop: removeSession,
  };
}
