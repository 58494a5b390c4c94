import { GenericContainer, getContainerRuntimeClient, Wait } from 'testcontainers';
import { IdallocError } from '../client/index.ts';

/** A listener of the broker: its port in the container, and the address that it advertises to clients. */
export interface KafkaListener {
  readonly name: string;
  readonly port: number;
  /** host:port. */
  readonly advertised: string;
}

/** The client port of an etcd member in its container. */
export const ETCD_PORT = 2379;
const ETCD_PEER_PORT = 2380;
const BROKER_PORT = 9094;
const CONTROLLER_PORT = 9093;
const START_MS = 120_000;

/**
 * Kafka as one combined node without automatic topic creation; start() resolves when it serves. Advertised addresses
 * are in its variables, so host ports must be fixed before the start, and survive a restart. The broker has a separate
 * listener for itself, since it could not reach one that is advertised at a host port.
 *
 * @param listeners plaintext listeners; ports 9093 and 9094 are reserved
 */
export function kafkaContainer(image: string, listeners: readonly KafkaListener[]): GenericContainer {
  const all = [...listeners, { name: 'BROKER', port: BROKER_PORT, advertised: `localhost:${BROKER_PORT}` }];
  const names = [...all.map(({ name }) => name), 'CONTROLLER'];
  return new GenericContainer(image)
    .withEnvironment({
      KAFKA_NODE_ID: '1',
      KAFKA_PROCESS_ROLES: 'broker,controller',
      KAFKA_CONTROLLER_QUORUM_VOTERS: `1@localhost:${CONTROLLER_PORT}`,
      KAFKA_LISTENERS: [
        ...all.map(({ name, port }) => `${name}://:${port}`),
        `CONTROLLER://:${CONTROLLER_PORT}`,
      ].join(),
      KAFKA_ADVERTISED_LISTENERS: all.map(({ name, advertised }) => `${name}://${advertised}`).join(),
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: names.map((name) => `${name}:PLAINTEXT`).join(),
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
    .withStartupTimeout(START_MS);
}

/**
 * One member of an etcd cluster; start() resolves when it serves, so start all members of a cluster concurrently.
 *
 * @param name the network alias by which the other members reach it; set by the caller
 * @param cluster the names of all members
 */
export function etcdContainer(image: string, name: string, cluster: readonly string[] = [name]): GenericContainer {
  const peerUrl = (member: string) => `http://${member}:${ETCD_PEER_PORT}`;
  return new GenericContainer(image)
    .withEnvironment({
      ETCD_NAME: name,
      ETCD_DATA_DIR: '/tmp/etcd',
      ETCD_LISTEN_CLIENT_URLS: `http://0.0.0.0:${ETCD_PORT}`,
      ETCD_ADVERTISE_CLIENT_URLS: `http://${name}:${ETCD_PORT}`,
      ETCD_LISTEN_PEER_URLS: `http://0.0.0.0:${ETCD_PEER_PORT}`,
      ETCD_INITIAL_ADVERTISE_PEER_URLS: peerUrl(name),
      ETCD_INITIAL_CLUSTER: cluster.map((member) => `${member}=${peerUrl(member)}`).join(),
      ETCD_INITIAL_CLUSTER_STATE: 'new',
    })
    .withCommand(['/usr/local/bin/etcd'])
    .withWaitStrategy(Wait.forLogMessage(/ready to serve client requests/))
    .withStartupTimeout(START_MS);
}

/**
 * Fails where no container engine answers, before anything is started.
 *
 * @throws IdallocError CONFIG_INVALID with what to do; testcontainers itself names neither the engine nor a remedy.
 */
export async function requireEngine(): Promise<void> {
  try {
    await getContainerRuntimeClient();
  } catch (error) {
    const remedy =
      'start Docker or another engine with its API, or set DOCKER_HOST to its socket; for tests without containers ' +
      'there is MemoryWorkers of @idalloc/client/testing';
    throw new IdallocError('CONFIG_INVALID', `no container engine answers here: ${remedy}`, { cause: error });
  }
}

/** Removes the containers and networks with a label, except testcontainers' reaper, which exits with its session. */
export async function removeLabelled(label: string): Promise<void> {
  const { dockerode } = (await getContainerRuntimeClient()).container;
  const filters = { label: [label] };
  const containers = await dockerode.listContainers({ all: true, filters });
  const own = containers.filter((container) => container.Labels['org.testcontainers.ryuk'] !== 'true');
  await Promise.all(own.map(({ Id }) => dockerode.getContainer(Id).remove({ force: true, v: true })));
  const networks = await dockerode.listNetworks({ filters });
  await Promise.all(networks.map(({ Id }) => dockerode.getNetwork(Id).remove()));
}
