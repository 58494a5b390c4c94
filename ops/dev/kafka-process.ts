import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, logHolds, startChild, untilReady } from './child.ts';
import { type Container, containerName, endContainer, inContainer, startContainer } from './container-process.ts';
import { installKafka, kafkaTools } from './kafka-install.ts';
import { kafkaProperties } from './kafka-properties.ts';
import { cacheDir } from './paths.ts';
import { portsOf } from './ports.ts';
import { run } from './run.ts';
import { requireTools } from './toolchain.ts';

/** For a hang only: a broker that exits is noticed at once, and a busy machine takes more than a minute. */
const READY_TIMEOUT_MS = 180_000;
const FORMAT_TIMEOUT_MS = 60_000;
/** Between choosing a free port and listening on it another process may take it. */
const ATTEMPTS = 3;
const LOG = 'kafka.log';
/** What Kafka and the container engine print then. */
const TAKEN = ['Address already in use', 'address already in use', 'port is already allocated'];
/** Where Kafka's image has its jars. */
const IMAGE_LIBS = '/opt/kafka/libs';
/** For clients, for the broker itself and for its controller. */
const PORTS = 3;

export interface KafkaOptions {
  /** Holds the data, the configuration, the log and the ports; existing data is used again. */
  readonly dir: string;
  /** Broker properties on top of the ones here. */
  readonly properties?: Readonly<Record<string, string>>;
  /**
   * Ports of the client's, the broker's and the controller's listener; by default free ones, the same at each start.
   */
  readonly ports?: readonly number[];
  /** The port of the client's listener if it is free; not for `ports`. */
  readonly preferredPort?: number;
  /** The cluster ID with which the storage is formatted: 16 bytes in base64url, the same for all nodes of a cluster. */
  readonly clusterId?: string;
  /** Runs in a container of this image; without it, as a process of this machine. Both use the same data and ports. */
  readonly container?: Container | undefined;
  /**
   * Compiles hot code as production's brokers do, which takes a core for the first seconds of load; by default only
   * quickly.
   */
  readonly isMeasured?: boolean;
  readonly log?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

/** A running broker. `pid` is that of the JVM itself: SIGSTOP and SIGCONT freeze and thaw it. */
export interface KafkaProcess extends Child {
  readonly brokers: readonly string[];
}

/**
 * Starts one Kafka broker with its own controller, on the loopback address, and waits until it serves. It ends with
 * this process at the latest. Throws when a tool is missing, the download fails, or it is not ready in time.
 */
export async function startKafka(options: KafkaOptions): Promise<KafkaProcess> {
  const env = options.env ?? process.env;
  const cache = cacheDir(env);
  const log = options.log ?? (() => undefined);
  if (!options.container) requireTools(kafkaTools(cache, env), env);
  const libs = options.container ? IMAGE_LIBS : await installKafka(env, { cache, log, signal: options.signal });
  await endContainer(join(options.dir, LOG));
  const preferred = options.preferredPort === undefined ? [] : [options.preferredPort];
  for (let attempt = 1; ; attempt++) {
    const ports = options.ports ?? (await portsOf(options.dir, PORTS, preferred));
    try {
      return await startOnce(libs, ports, options, env);
    } catch (error) {
      const collided = TAKEN.some((text) => logHolds(join(options.dir, LOG), text));
      const isLast = attempt === ATTEMPTS || options.ports !== undefined;
      if (!collided || isLast || options.signal?.aborted) throw error;
    }
  }
}

async function startOnce(libs: string, ports: readonly number[], options: KafkaOptions, env: NodeJS.ProcessEnv) {
  const config = join(options.dir, 'server.properties');
  const data = join(options.dir, 'data');
  mkdirSync(options.dir, { recursive: true });
  const [client, broker, controller] = ports;
  // A container publishes a port only for a listener on all of its own addresses.
  const published = `CLIENT://0.0.0.0:${client},BROKER://127.0.0.1:${broker},CONTROLLER://127.0.0.1:${controller}`;
  const properties = { ...(options.container ? { listeners: published } : {}), ...options.properties };
  writeFileSync(config, kafkaProperties(data, ports, properties));
  if (!existsSync(join(data, 'meta.properties'))) await format(libs, data, config, options, env);
  const what = { name: 'Kafka', logFile: join(options.dir, LOG) };
  const compiler = options.isMeasured === true ? [] : [QUICK_COMPILER];
  const program = java(libs, [...compiler, '-Xms256m', '-Xmx512m', '-Dlog4j2.level=INFO'], 'kafka.Kafka', [config]);
  const child = options.container
    ? await startContainer(what, options.container, { ...program, dir: options.dir, ports: ports.slice(0, 1) })
    : await startChild({ ...what, ...program, env });
  const ready = () => logHolds(what.logFile, 'Kafka Server started');
  await untilReady(child, ready, { timeoutMs: READY_TIMEOUT_MS, signal: options.signal });
  return { ...child, brokers: [`127.0.0.1:${client}`] };
}

/** Code that runs for seconds is compiled quickly. A broker's calls then take twice as long as in production. */
const QUICK_COMPILER = '-XX:TieredStopAtLevel=1';

/**
 * The flags are for a short start. A class-data archive would save another second, but costs more to create and keep.
 */
function java(libs: string, flags: string[], main: string, args: string[]) {
  const always = ['-XX:+UseSerialGC', '-Xlog:disable'];
  return { command: 'java', args: [...always, ...flags, '-cp', `${libs}/*`, main, ...args] };
}

/** Writes the storage once. Its meta.properties come last, so a directory without them was never in use. */
async function format(
  libs: string,
  data: string,
  config: string,
  { clusterId = newClusterId(), signal, container, dir }: KafkaOptions,
  env: NodeJS.ProcessEnv,
) {
  rmSync(data, { recursive: true, force: true });
  const program = java(libs, [QUICK_COMPILER], 'kafka.tools.StorageTool', ['format', '-t', clusterId, '-c', config]);
  await run({
    ...(container ? inContainer(`${containerName(dir)}-format`, container, { ...program, dir }) : { ...program, env }),
    purpose: "the formatting of Kafka's storage",
    timeoutMs: FORMAT_TIMEOUT_MS,
    signal,
  });
  if (!existsSync(join(data, 'meta.properties'))) {
    throw new Error(`the container engine doesn't share ${dir} with this machine; set IDALLOC_SERVERS=processes`);
  }
}

/** An ID for a storage: 16 random bytes in base64url; a leading dash would be read as an option. */
export function newClusterId(): string {
  const id = randomBytes(16).toString('base64url');
  return id.startsWith('-') ? `A${id.slice(1)}` : id;
}
