import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Child, logHolds, startChild, untilReady } from '../dev/child.ts';
import { type Container, containerName, endContainer, inContainer, startContainer } from '../dev/container-process.ts';
import { cacheDir } from '../dev/paths.ts';
import { portsOf } from '../dev/ports.ts';
import { run } from '../dev/run.ts';
import { type BuildOptions, cached, cacheName } from './cache.ts';
import { requireTools, type ToolName } from './toolchain.ts';

const POM = join(import.meta.dirname, '../../locks/kafka/pom.xml');
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;

/** The directory where the jars are, or will be. KAFKA_HOME, if set, names an unpacked distribution to use instead. */
function plan(cache: string, env: NodeJS.ProcessEnv) {
  if (env.KAFKA_HOME) {
    const libs = join(env.KAFKA_HOME, 'libs');
    if (!existsSync(libs))
      throw new Error(`KAFKA_HOME is set, but ${libs} does not exist; correct the variable or unset it`);
    return { libs, ready: true } as const;
  }
  const version = /<kafka\.version>([^<]+)</.exec(readFileSync(POM, 'utf8'))?.[1];
  if (!version) throw new Error(`no <kafka.version> in ${POM}`);
  const name = cacheName('kafka', version, [POM]);
  return { libs: join(cache, name), ready: existsSync(join(cache, name)), name, version } as const;
}

/** The tools that Kafka needs on this machine; fewer once it is in the cache. */
export function kafkaTools(cache: string, env: NodeJS.ProcessEnv): ToolName[] {
  return plan(cache, env).ready ? ['java'] : ['java', 'mvn'];
}

/** Where Kafka comes from, for people. */
export function kafkaOrigin(cache: string, env: NodeJS.ProcessEnv): string {
  const { libs, ready, version } = plan(cache, env);
  return ready ? `Kafka from ${libs}` : `Kafka ${version} downloaded by Maven`;
}

/** The directory of Kafka's jars, which Maven downloads if the cache lacks them. */
export async function installKafka(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  const { libs, name, version } = plan(options.cache, env);
  if (name === undefined) return libs;
  return cached(name, { ...options, what: `Kafka ${version} (jars by Maven)` }, async (into) => {
    await run({
      command: 'mvn',
      args: [
        ...['-q', '-B', '-Dstyle.color=never', '-f', POM, 'dependency:copy-dependencies'],
        ...['-DincludeScope=runtime', `-DoutputDirectory=${into}`],
      ],
      purpose: "the download of Kafka's jars by Maven",
      timeoutMs: DOWNLOAD_TIMEOUT_MS,
      env,
      signal: options.signal,
    });
  });
}

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
  /** A directory of classes that the properties name; not for a container. */
  readonly classes?: string | undefined;
  /** The cluster ID with which the storage is formatted: 16 bytes in base64url, the same for all nodes of a cluster. */
  readonly clusterId?: string;
  /** Runs in a container of this image; without it, as a process of this machine. Both use the same data and ports. */
  readonly container?: Container | undefined;
  /**
   * Runs with the memory, the collector and the compilers that Kafka's own scripts start a broker with; by default with
   * what starts quickly.
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
  const flags = [...(options.isMeasured === true ? AS_PACKAGED : QUICK), '-Dlog4j2.level=INFO'];
  const program = java(libs, flags, 'kafka.Kafka', [config], options.classes);
  const child = options.container
    ? await startContainer(what, options.container, { ...program, dir: options.dir, ports: ports.slice(0, 1) })
    : await startChild({ ...what, ...program, env });
  const ready = () => logHolds(what.logFile, 'Kafka Server started');
  await untilReady(child, ready, { timeoutMs: READY_TIMEOUT_MS, signal: options.signal });
  return { ...child, brokers: [`127.0.0.1:${client}`] };
}

/**
 * For a short start. Hot code is then compiled only quickly, so that a broker's calls take twice as long as in
 * production, and all calls wait while the collector runs: beside large records for 10 ms each second. A class-data
 * archive would save another second, but costs more to create and keep.
 */
const QUICK = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xms256m', '-Xmx512m'];

/** What kafka-run-class.sh and kafka-server-start.sh pass by default. */
const AS_PACKAGED = [
  ...['-server', '-Xms1g', '-Xmx1g', '-XX:+UseG1GC', '-XX:MaxGCPauseMillis=20'],
  ...['-XX:InitiatingHeapOccupancyPercent=35', '-XX:+ExplicitGCInvokesConcurrent'],
];

function java(libs: string, flags: readonly string[], main: string, args: readonly string[], classes?: string) {
  const path = [...(classes === undefined ? [] : [classes]), `${libs}/*`].join(delimiter);
  return { command: 'java', args: ['-Xlog:disable', ...flags, '-cp', path, main, ...args] };
}

/** Writes the storage once. Its meta.properties come last, so a directory without them was never in use. */
async function format(
  libs: string,
  data: string,
  config: string,
  { clusterId = newClusterId(), signal, container, dir, classes }: KafkaOptions,
  env: NodeJS.ProcessEnv,
) {
  rmSync(data, { recursive: true, force: true });
  const args = ['format', '-t', clusterId, '-c', config];
  const program = java(libs, QUICK, 'kafka.tools.StorageTool', args, classes);
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

/**
 * The configuration of one broker that is its own controller, small and quick enough for a laptop and a test. The
 * BROKER listener is the one by which it reaches itself.
 */
function kafkaProperties(
  dataDir: string,
  ports: readonly number[],
  more: Readonly<Record<string, string>> = {},
): string {
  const [client, broker, controller] = ports;
  const properties = {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@127.0.0.1:${controller}`,
    listeners: `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker},CONTROLLER://127.0.0.1:${controller}`,
    'advertised.listeners': `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker}`,
    'listener.security.protocol.map': 'CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'inter.broker.listener.name': 'BROKER',
    'controller.listener.names': 'CONTROLLER',
    'log.dirs': dataDir,
    // a cluster of one
    'offsets.topic.replication.factor': '1',
    'offsets.topic.num.partitions': '1',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    'transaction.state.log.num.partitions': '1',
    'share.coordinator.state.topic.replication.factor': '1',
    'share.coordinator.state.topic.min.isr': '1',
    'share.coordinator.state.topic.num.partitions': '1',
    // as idalloc expects it
    'auto.create.topics.enable': 'false',
    'group.initial.rebalance.delay.ms': '0',
    // otherwise half of the heap is used for the cleaner's buffer
    'log.cleaner.dedupe.buffer.size': '16777216',
    ...more,
  };
  return `${Object.entries(properties)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n')}\n`;
}
