import { hostname } from 'node:os';
import {
  getContainerRuntimeClient,
  getReaper,
  LABEL_TESTCONTAINERS_SESSION_ID,
  Network,
  type StartedNetwork,
  type StartedTestContainer,
} from 'testcontainers';
import { IMAGES } from '../../ops/dev/images.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { isRunning, ownIdentity } from '../../ops/dev/process-identity.mjs';
import { ETCD_PORT, etcdContainer, kafkaContainer, removeLabelled } from '../../src/testcontainers/servers.ts';
import { LEAST_SESSION_MS, type ServerParts, SUITE, type TestServers } from './servers.ts';
import { unique } from './unique.ts';

const RESTART_MS = 20_000;
/** The label with the machine and process that a container belongs to. */
const HOST_LABEL = 'idalloc.test.host';
const PID_LABEL = 'idalloc.test.pid';
const START_LABEL = 'idalloc.test.start';
/** The label of the containers that were started, and are stopped, together. */
const SET_LABEL = 'idalloc.test.set';
const KAFKA_PORT = 9092;

/** The label of all containers and networks of this process's testcontainers session. */
export async function sessionLabel(): Promise<string> {
  const reaper = await getReaper(await getContainerRuntimeClient());
  return `${LABEL_TESTCONTAINERS_SESSION_ID}=${reaper.sessionId}`;
}

/**
 * Removes containers and networks of processes that were killed on this machine, and none of running processes: with a
 * reaper all processes share one session.
 */
export async function removeOrphans(log: (line: string) => void): Promise<void> {
  const { dockerode } = (await getContainerRuntimeClient()).container;
  const containers = await dockerode.listContainers({ all: true, filters: { label: [`${HOST_LABEL}=${hostname()}`] } });
  const dead = containers.filter(({ Labels }) => {
    return !isRunning({ pid: Number(Labels[PID_LABEL]), start: Labels[START_LABEL] ?? '' });
  });
  if (dead.length === 0) return;
  log(`removing ${dead.length} containers of killed processes`);
  await Promise.all(dead.map(({ Id }) => dockerode.getContainer(Id).remove({ force: true, v: true })));
  const made = await dockerode.listNetworks({ filters: { label: [LABEL_TESTCONTAINERS_SESSION_ID] } });
  const theirs = new Set(dead.flatMap(({ NetworkSettings }) => Object.keys(NetworkSettings.Networks)));
  await Promise.all(made.filter(({ Name }) => theirs.has(Name)).map(({ Id }) => dockerode.getNetwork(Id).remove()));
}

/** Labels that mark a container as this process's, so that a later run can remove it if this one is killed. */
export function ownerLabels(): Record<string, string> {
  const { pid, start } = ownIdentity();
  return { [HOST_LABEL]: hostname(), [PID_LABEL]: String(pid), [START_LABEL]: start };
}

type Labels = Readonly<Record<string, string>>;

async function startKafka(labels: Labels): Promise<{ container: StartedTestContainer; broker: string }> {
  const [port = 0] = await freePorts(1);
  const broker = `127.0.0.1:${port}`;
  const container = await kafkaContainer(IMAGES.kafka, [{ name: 'HOST', port: KAFKA_PORT, advertised: broker }])
    .withEnvironment({ KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS: String(LEAST_SESSION_MS) })
    .withLabels(labels)
    .withExposedPorts({ container: KAFKA_PORT, host: port })
    .start();
  return { container, broker };
}

/** One etcd cluster; its members wait for each other, so they start together. Fixed ports survive a restart. */
async function startEtcd(
  size: number,
  network: StartedNetwork,
  labels: Labels,
): Promise<{ members: StartedTestContainer[]; endpoints: string[] }> {
  const names = Array.from({ length: size }, (_, index) => `etcd${index + 1}`);
  const ports = await freePorts(names.length);
  const members = await Promise.all(
    names.map((name, index) =>
      etcdContainer(IMAGES.etcd, name, names)
        .withLabels(labels)
        .withNetwork(network)
        .withNetworkAliases(name)
        .withExposedPorts({ container: ETCD_PORT, host: ports[index] ?? 0 })
        .start(),
    ),
  );
  return { members, endpoints: ports.map((port) => `http://127.0.0.1:${port}`) };
}

async function handleOf(container: StartedTestContainer | undefined) {
  if (container === undefined) throw new RangeError('these servers have no such member');
  return (await getContainerRuntimeClient()).container.getById(container.getId());
}

async function isPaused(container: StartedTestContainer | undefined): Promise<boolean> {
  return (await (await handleOf(container)).inspect()).State.Paused;
}

/** Starts Kafka and the etcd members in parallel; if one fails, everything is removed. */
export async function startContainerServers(parts: ServerParts = SUITE): Promise<TestServers> {
  const set = unique();
  const labels = { ...ownerLabels(), [SET_LABEL]: set };
  const network = parts.etcdMembers > 0 ? await new Network().start() : undefined;
  let stopped: Promise<void> | undefined;
  const remove = async () => {
    await removeLabelled(`${SET_LABEL}=${set}`);
    await network?.stop();
  };
  const stop = () => {
    stopped ??= remove();
    return stopped;
  };
  const [kafka, etcd] = await Promise.allSettled([
    parts.kafka ? startKafka(labels) : undefined,
    network === undefined ? undefined : startEtcd(parts.etcdMembers, network, labels),
  ]);
  if (kafka.status === 'rejected' || etcd.status === 'rejected') {
    await stop();
    throw new AggregateError(
      [kafka, etcd].flatMap((part) => (part.status === 'rejected' ? [part.reason] : [])),
      'the containers did not start',
    );
  }
  const container = kafka.value?.container;
  const members = etcd.value?.members ?? [];
  return {
    kind: 'containers',
    brokers: kafka.value === undefined ? [] : [kafka.value.broker],
    etcdEndpoints: etcd.value?.endpoints ?? [],
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
    async restartKafka() {
      await container?.restart({ timeout: RESTART_MS });
    },
    stop,
  };
}
