import type { Readable } from 'node:stream';
import { AbstractStartedContainer, GenericContainer, type StartedTestContainer, Wait } from 'testcontainers';
import { IdallocError } from '../errors.ts';
import { evictHolder, stepClockTo, withHandle } from './faults.ts';
import { DEFAULT_IMAGES } from './images.ts';
import { ETCD_PORT } from './servers.ts';

const API_PORT = 8080;
const OPS_PORT = 9464;
const KAFKA_PORT = 9092;
const READY_MS = 120_000;
const LAST_WORDS = 20;
/** The network that containers are in when nobody names one. */
const DEFAULT_NETWORK = 'bridge';

/** One broker or one etcd member cannot keep what a ledger should keep; for tests that is enough. */
export const WORKER_DEFAULTS = {
  DATACENTER_ID: '0',
  TOPIC_REPLICATION_FACTOR: '1',
  ALLOW_WEAK_LEDGER: '1',
  API_HOST: '0.0.0.0',
  OPS_HOST: '0.0.0.0',
};

/**
 * One worker. Kafka, its topics and etcd are the caller's: withKafka() and withEtcd() say where. Everything else of a
 * GenericContainer works too, such as withEnvironment() for the worker's own variables.
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
   * @throws IdallocError CONFIG_INVALID when it is in another network than the container of withEtcd().
   */
  withKafka(brokers: string | readonly string[] | StartedTestContainer, port = KAFKA_PORT): this {
    return this.withEnvironment({ KAFKA_BROKERS: this.#addresses(brokers, port).join() });
  }

  /**
   * The members of one etcd cluster: host:port or URLs as the worker's container sees them, or a started container whose
   * network is joined.
   *
   * @throws IdallocError CONFIG_INVALID when it is in another network than the container of withKafka().
   */
  withEtcd(endpoints: string | readonly string[] | StartedTestContainer, port = ETCD_PORT): this {
    const urls = this.#addresses(endpoints, port).map((text) => (text.includes('://') ? text : `http://${text}`));
    return this.withEnvironment({ ETCD_ENDPOINTS: urls.join() });
  }

  /**
   * Starts it and waits for its ready line: from then on requests are served.
   *
   * @throws IdallocError CONFIG_INVALID without withKafka() or withEtcd(); an Error with the last lines of the log when the
   * worker was not ready in time (withStartupTimeout, 120 s) or ended.
   */
  override async start(): Promise<StartedIdAllocContainer> {
    for (const [name, method] of [
      ['KAFKA_BROKERS', 'withKafka'],
      ['ETCD_ENDPOINTS', 'withEtcd'],
    ] as const) {
      if (!this.environment[name]) throw new IdallocError('CONFIG_INVALID', `${name} is not set: call ${method}()`);
    }
    const others = this.logConsumer;
    return new StartedIdAllocContainer(await startTelling(this, this.#image, () => super.start(), others));
  }

  #addresses(servers: string | readonly string[] | StartedTestContainer, port: number): readonly string[] {
    if (typeof servers === 'string') return servers.split(',');
    if (!('getNetworkNames' in servers)) return servers;
    const networks = servers.getNetworkNames();
    // With network aliases testcontainers leaves a container in the default network, too.
    const network = this.#joined ?? networks.find((name) => name !== DEFAULT_NETWORK) ?? DEFAULT_NETWORK;
    if (!networks.includes(network)) {
      const message = `Kafka and etcd are in different networks, ${network} and ${networks.join()}: start them in one`;
      throw new IdallocError('CONFIG_INVALID', message);
    }
    this.#joined = network;
    if (network !== DEFAULT_NETWORK) this.withNetworkMode(network);
    // The default network has no names, and names that Docker gives have an underscore, which clients of etcd refuse.
    return [`${servers.getIpAddress(network)}:${port}`];
  }
}

/** A worker that runs, and what can be done to it. */
export class StartedIdAllocContainer extends AbstractStartedContainer {
  #clockOffsetMs = 0;

  /** Where /healthz, /readyz and /metrics are, as an address without a path. */
  get opsUrl(): string {
    return `http://${this.getHost()}:${this.getMappedPort(OPS_PORT)}`;
  }

  /** Where the HTTP API is (/api/v1/ids and so on), as an address without a path. */
  get apiUrl(): string {
    return `http://${this.getHost()}:${this.getMappedPort(API_PORT)}`;
  }

  /** Whether requests are served now; if not, why, as /readyz tells it. Rejects when nothing answers in 5 s. */
  async readiness(): Promise<{ readonly ready: boolean; readonly reason?: string }> {
    const answer = await fetch(`${this.opsUrl}/readyz`, { signal: AbortSignal.timeout(5_000) });
    const { reason } = (await answer.json()) as { reason?: string };
    return { ready: answer.ok, ...(reason === undefined ? {} : { reason }) };
  }

  /**
   * Takes the worker's lease and worker ID away, as if it had run out. Resolves when it is gone from etcd: the worker
   * notices at its next heartbeat, stops with LEASE_LOST, and takes a worker ID anew.
   *
   * @returns the worker ID that was taken away
   * @throws IdallocError NOT_FOUND when it holds none now.
   */
  loseLease(): Promise<number> {
    return evictHolder(this.startedTestContainer);
  }

  /** Freezes the whole process, as a long pause of a machine does; its lease runs on without it. */
  async pause(): Promise<void> {
    await withHandle(this, async (handle) => {
      if (!(await handle.inspect()).State.Paused) await handle.pause();
    });
  }

  /** Ends the freeze; harmless when there is none. */
  async resume(): Promise<void> {
    await withHandle(this, async (handle) => {
      if ((await handle.inspect()).State.Paused) await handle.unpause();
    });
  }

  /**
   * Steps the wall clock of the worker, and of nothing else; monotonic time goes on. Steps add up.
   *
   * @param ms negative: back
   * @throws IdallocError CONFIG_INVALID when the image has no clock to step (ops/Dockerfile.faults makes one that has).
   */
  async stepClock(ms: number): Promise<void> {
    await stepClockTo(this, this.#clockOffsetMs + ms);
    this.#clockOffsetMs += ms;
  }
}

/**
 * Starts a container of the worker's image; a failure comes with the last lines of its log and, where there is no such
 * image, with the command that makes it.
 */
export async function startTelling<Started>(
  container: GenericContainer,
  image: string,
  start: () => Promise<Started>,
  others?: (stream: Readable) => unknown,
): Promise<Started> {
  let begun = false;
  let words = '';
  container.withLogConsumer((stream) => {
    begun = true;
    others?.(stream);
    stream.on('data', (chunk: Buffer | string) => {
      words = `${words}${chunk}`.split('\n').slice(-LAST_WORDS).join('\n');
    });
  });
  try {
    return await start();
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    const more = begun
      ? `its last words:\n${words}`
      : `if there is no such image, make it in a checkout of idalloc: docker build -f ops/Dockerfile -t ${image} .`;
    throw new Error(`a container of ${image} did not start: ${said}; ${more}`, { cause: error });
  }
}
