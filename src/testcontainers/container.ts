import type { Readable } from 'node:stream';
import { AbstractStartedContainer, GenericContainer, type StartedTestContainer, Wait } from 'testcontainers';
import { IdallocError } from '../client/index.ts';
import { formatHostPort } from '../core/host-port.ts';
import { evictHolder, stepClockTo, withHandle } from './faults.ts';
import { DEFAULT_IMAGES } from './images.ts';
import { ETCD_PORT, requireEngine } from './servers.ts';

const API_PORT = 8080;
const OPS_PORT = 9464;
const KAFKA_PORT = 9092;
const READY_MS = 120_000;
const LOG_LINES = 20;
const FREEZE_TRIES = 10;
/** The network of containers that don't name one. */
const DEFAULT_NETWORK = 'bridge';

/** For a single broker, which is not durable enough for a ledger in production. */
export const WORKER_DEFAULTS = {
  DATACENTER_ID: '0',
  TOPIC_REPLICATION_FACTOR: '1',
  ALLOW_WEAK_LEDGER: '1',
  API_HOST: '0.0.0.0',
  OPS_HOST: '0.0.0.0',
};

/**
 * One worker. The caller provides Kafka, its topics and etcd: see withKafka() and withEtcd(). All other methods of a
 * GenericContainer work too, such as withEnvironment() for the worker's variables.
 */
export class IdAllocContainer extends GenericContainer {
  readonly #image: string;
  #joined: string | undefined;

  constructor(image: string = DEFAULT_IMAGES.worker) {
    super(image);
    this.#image = image;
    this.withEnvironment(WORKER_DEFAULTS)
      .withExposedPorts(API_PORT, OPS_PORT)
      .withWaitStrategy(Wait.forLogMessage(/"msg":"idalloc ready"/))
      .withStartupTimeout(READY_MS);
  }

  /**
   * The brokers: host:port as the worker's container sees them, or a started container whose network is joined.
   *
   * @param port of the listener that the container advertises in its network
   * @throws IdallocError CONFIG_INVALID if it is in another network than the container of withEtcd().
   */
  withKafka(brokers: string | readonly string[] | StartedTestContainer, port = KAFKA_PORT): this {
    return this.withEnvironment({ KAFKA_BROKERS: this.#addresses(brokers, port).join() });
  }

  /**
   * The members of one etcd cluster: host:port or URLs as the worker's container sees them, or a started container
   * whose network is joined.
   *
   * @throws IdallocError CONFIG_INVALID if it is in another network than the container of withKafka().
   */
  withEtcd(endpoints: string | readonly string[] | StartedTestContainer, port = ETCD_PORT): this {
    const urls = this.#addresses(endpoints, port).map((text) => (text.includes('://') ? text : `http://${text}`));
    return this.withEnvironment({ ETCD_ENDPOINTS: urls.join() });
  }

  /**
   * Starts the worker and waits for its ready line, after which it serves requests.
   *
   * @throws IdallocError CONFIG_INVALID without withKafka() or withEtcd(), or without a container engine; an Error with
   * the last lines of the log if the worker was not ready in time (withStartupTimeout, 120 s) or exited.
   */
  override async start(): Promise<StartedIdAllocContainer> {
    for (const [name, method] of [
      ['KAFKA_BROKERS', 'withKafka'],
      ['ETCD_ENDPOINTS', 'withEtcd'],
    ] as const) {
      if (!this.environment[name]) throw new IdallocError('CONFIG_INVALID', `${name} is not set: call ${method}()`);
    }
    await requireEngine();
    const others = this.logConsumer;
    return new StartedIdAllocContainer(await startWithLog(this, this.#image, () => super.start(), others));
  }

  #addresses(servers: string | readonly string[] | StartedTestContainer, port: number): readonly string[] {
    if (typeof servers === 'string') return servers.split(',');
    if (!('getNetworkNames' in servers)) return servers;
    const networks = servers.getNetworkNames();
    // With network aliases testcontainers also leaves a container in the default network.
    const network = this.#joined ?? networks.find((name) => name !== DEFAULT_NETWORK) ?? DEFAULT_NETWORK;
    if (!networks.includes(network)) {
      const message = `Kafka and etcd are in different networks, ${network} and ${networks.join()}: start them in the same one`;
      throw new IdallocError('CONFIG_INVALID', message);
    }
    this.#joined = network;
    if (network !== DEFAULT_NETWORK) this.withNetworkMode(network);
    // The default network has no host names, and Docker's names have an underscore, which etcd clients reject.
    return [addressAt(servers.getIpAddress(network), port)];
  }
}

/** As in a URL. testcontainers returns an IPv6 host with brackets or without, as it was configured. */
export function addressAt(host: string, port: number): string {
  return formatHostPort({ host: host.replace(/^\[(.*)\]$/, '$1'), port });
}

/** A running worker, with methods to inject faults. */
export class StartedIdAllocContainer extends AbstractStartedContainer {
  #clockOffsetMs = 0;

  /** The base URL of /healthz, /readyz and /metrics. */
  get opsUrl(): string {
    return `http://${addressAt(this.getHost(), this.getMappedPort(OPS_PORT))}`;
  }

  /** The base URL of the HTTP API (/api/v1/ids and so on). */
  get apiUrl(): string {
    return `http://${addressAt(this.getHost(), this.getMappedPort(API_PORT))}`;
  }

  /** Whether requests are served now, and if not, the reason given by /readyz. Rejects without an answer within 5 s. */
  async readiness(): Promise<{ readonly ready: boolean; readonly reason?: string | undefined }> {
    const answer = await fetch(`${this.opsUrl}/readyz`, { signal: AbortSignal.timeout(5_000) });
    const { reason } = (await answer.json()) as { reason?: string };
    return { ready: answer.ok, reason };
  }

  /**
   * Removes the worker's lease and worker ID, as if the lease had expired. Resolves when it is gone from etcd. The
   * worker notices at its next heartbeat, stops with LEASE_LOST, and acquires a worker ID again.
   *
   * @returns the worker ID that was removed
   * @throws IdallocError NOT_FOUND if the worker holds none.
   */
  loseLease(): Promise<number> {
    return evictHolder(this.startedTestContainer);
  }

  /** Freezes the whole process, as a long pause of the machine would; its lease keeps running. */
  async pause(): Promise<void> {
    await withHandle(this, async (handle) => {
      for (let tries = 1; !(await handle.inspect()).State.Paused; tries += 1) {
        await handle.pause().catch((error: unknown) => {
          // The kernel gives up freezing a group that starts threads meanwhile; the next try usually succeeds.
          if (tries === FREEZE_TRIES || !String(error).includes('unable to freeze')) throw error;
        });
      }
    });
  }

  /** Ends the freeze; does nothing if the worker is not frozen. */
  async resume(): Promise<void> {
    await withHandle(this, async (handle) => {
      if ((await handle.inspect()).State.Paused) await handle.unpause();
    });
  }

  /**
   * Steps the wall clock of this worker only; monotonic time is not affected. Steps add up.
   *
   * @param ms negative to step back
   * @throws IdallocError CONFIG_INVALID if the image does not support it (ops/Dockerfile.faults builds one that does).
   */
  async stepClock(ms: number): Promise<void> {
    await stepClockTo(this, this.#clockOffsetMs + ms);
    this.#clockOffsetMs += ms;
  }
}

/**
 * Starts a container of the worker's image. An error contains the last lines of its log or, if the image does not
 * exist, the command that builds it.
 */
export async function startWithLog<Started>(
  container: GenericContainer,
  image: string,
  start: () => Promise<Started>,
  others?: (stream: Readable) => unknown,
): Promise<Started> {
  let started = false;
  let log = '';
  container.withLogConsumer((stream) => {
    started = true;
    others?.(stream);
    stream.on('data', (chunk: Buffer | string) => {
      log = `${log}${chunk}`.split('\n').slice(-LOG_LINES).join('\n');
    });
  });
  try {
    return await start();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const more = started
      ? `the end of its log:\n${log}`
      : `if the image does not exist, build it in a checkout of idalloc: docker build -f ops/Dockerfile -t ${image} .`;
    throw new Error(`a container of ${image} did not start: ${reason}; ${more}`, { cause: error });
  }
}
