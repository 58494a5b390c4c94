import { hostname } from 'node:os';
import {
  GenericContainer,
  getContainerRuntimeClient,
  getReaper,
  LABEL_TESTCONTAINERS_SESSION_ID,
  Network,
  RandomPortGenerator,
  type StartedNetwork,
  type StartedTestContainer,
  Wait,
} from 'testcontainers';
import { IMAGES } from '../../ops/dev/images.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { isRunning, ownIdentity } from '../../ops/dev/process-identity.mjs';
import { ETCD_SIZE, type ProxiedBroker, type TestServers } from './servers.ts';

const START_MS = 120_000;
const RESTART_MS = 20_000;
/** Which process of which machine a container belongs to. */
const HOST_LABEL = 'idalloc.test.host';
const PID_LABEL = 'idalloc.test.pid';
const START_LABEL = 'idalloc.test.start';

/** The label by which everything of this process's testcontainers session is found again. */
export async function sessionLabel(): Promise<string> {
  const reaper = await getReaper(await getContainerRuntimeClient());
  return `${LABEL_TESTCONTAINERS_SESSION_ID}=${reaper.sessionId}`;
}

/** Removes the containers and networks with a label; a reaper among them goes by itself when its session ends. */
async function removeLabelled(label: string): Promise<void> {
  const { dockerode } = (await getContainerRuntimeClient()).container;
  const filters = { label: [label] };
  const containers = await dockerode.listContainers({ all: true, filters });
  const own = containers.filter((container) => container.Labels['org.testcontainers.ryuk'] !== 'true');
  await Promise.all(own.map(({ Id }) => dockerode.getContainer(Id).remove({ force: true, v: true })));
  const networks = await dockerode.listNetworks({ filters });
  await Promise.all(networks.map(({ Id }) => dockerode.getNetwork(Id).remove()));
}

/** Removes what this session started, and nothing else. */
async function removeSession(): Promise<void> {
  await removeLabelled(await sessionLabel());
}

/** Removes what sessions left whose process was killed on this machine; that of living ones stays. */
export async function removeOrphans(log: (line: string) => void): Promise<void> {
  const { dockerode } = (await getContainerRuntimeClient()).container;
  const containers = await dockerode.listContainers({ all: true, filters: { label: [`${HOST_LABEL}=${hostname()}`] } });
  const dead = containers.filter(({ Labels }) => {
    return !isRunning({ pid: Number(Labels[PID_LABEL]), start: Labels[START_LABEL] ?? '' });
  });
  const sessions = new Set(dead.flatMap(({ Labels }) => Labels[LABEL_TESTCONTAINERS_SESSION_ID] ?? []));
  for (const session of sessions) {
    log(`removing what the killed session ${session} left`);
    await removeLabelled(`${LABEL_TESTCONTAINERS_SESSION_ID}=${session}`);
  }
}

function ownerLabels(): Record<string, string> {
  const { pid, start } = ownIdentity();
  return { [HOST_LABEL]: hostname(), [PID_LABEL]: String(pid), [START_LABEL]: start };
}

/**
 * Kafka as one combined node. The host port is fixed before the start, so that the advertised address is known to the
 * image's own command and survives a restart. The broker reaches itself by a listener of its own.
 */
async function startKafka(): Promise<{ container: StartedTestContainer; broker: string; proxied: ProxiedBroker }> {
  const ports = new RandomPortGenerator();
  const port = await ports.generatePort();
  const behindProxy = await ports.generatePort();
  const [proxyPort = 0] = await freePorts(1);
  const broker = `127.0.0.1:${port}`;
  const container = await new GenericContainer(IMAGES.kafka)
    .withLabels(ownerLabels())
    .withExposedPorts({ container: 9092, host: port }, { container: 9095, host: behindProxy })
    .withEnvironment({
      KAFKA_NODE_ID: '1',
      KAFKA_PROCESS_ROLES: 'broker,controller',
      KAFKA_CONTROLLER_QUORUM_VOTERS: '1@localhost:9093',
      KAFKA_LISTENERS: 'HOST://:9092,BROKER://:9094,CONTROLLER://:9093,PROXY://:9095',
      KAFKA_ADVERTISED_LISTENERS: `HOST://${broker},BROKER://localhost:9094,PROXY://127.0.0.1:${proxyPort}`,
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: 'HOST:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXY:PLAINTEXT',
      KAFKA_INTER_BROKER_LISTENER_NAME: 'BROKER',
      KAFKA_CONTROLLER_LISTENER_NAMES: 'CONTROLLER',
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: '1',
      KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS: '1',
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: '1',
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: '1',
      KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS: '1',
      KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: '0',
      KAFKA_AUTO_CREATE_TOPICS_ENABLE: 'false',
      KAFKA_HEAP_OPTS: '-Xms256m -Xmx512m',
    })
    .withWaitStrategy(Wait.forLogMessage(/Kafka Server started/))
    .withStartupTimeout(START_MS)
    .start();
  return { container, broker, proxied: { port: proxyPort, broker: `127.0.0.1:${behindProxy}` } };
}

/** One etcd cluster; its members wait for each other, so they start together. Fixed ports survive a restart. */
async function startEtcd(network: StartedNetwork): Promise<{ members: StartedTestContainer[]; endpoints: string[] }> {
  const names = Array.from({ length: ETCD_SIZE }, (_, index) => `etcd${index + 1}`);
  const cluster = names.map((name) => `${name}=http://${name}:2380`).join(',');
  const ports = await freePorts(names.length);
  const members = await Promise.all(
    names.map((name, index) =>
      new GenericContainer(IMAGES.etcd)
        .withLabels(ownerLabels())
        .withNetwork(network)
        .withNetworkAliases(name)
        .withExposedPorts({ container: 2379, host: ports[index] ?? 0 })
        .withEnvironment({
          ETCD_NAME: name,
          ETCD_DATA_DIR: '/tmp/etcd',
          ETCD_LISTEN_CLIENT_URLS: 'http://0.0.0.0:2379',
          ETCD_ADVERTISE_CLIENT_URLS: `http://${name}:2379`,
          ETCD_LISTEN_PEER_URLS: 'http://0.0.0.0:2380',
          ETCD_INITIAL_ADVERTISE_PEER_URLS: `http://${name}:2380`,
          ETCD_INITIAL_CLUSTER: cluster,
          ETCD_INITIAL_CLUSTER_STATE: 'new',
        })
        .withCommand(['/usr/local/bin/etcd'])
        .withWaitStrategy(Wait.forLogMessage(/ready to serve client requests/))
        .withStartupTimeout(START_MS)
        .start(),
    ),
  );
  return { members, endpoints: ports.map((port) => `http://127.0.0.1:${port}`) };
}

async function handleOf(container: StartedTestContainer | undefined) {
  if (container === undefined) throw new RangeError(`no such server; etcd members are 0 to ${ETCD_SIZE - 1}`);
  return (await getContainerRuntimeClient()).container.getById(container.getId());
}

async function isPaused(container: StartedTestContainer | undefined): Promise<boolean> {
  return (await (await handleOf(container)).inspect()).State.Paused;
}

/** Starts Kafka and three etcd members side by side; when one fails, all that was started is removed. */
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
