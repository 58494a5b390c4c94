import { join } from 'node:path';
import { etcdOrigin, etcdTools, startEtcd } from '../bare/etcd.ts';
import { kafkaOrigin, kafkaTools, startKafka } from '../bare/kafka.ts';
import { aptObstacle, ensureTools, type ToolName, toolFaults } from '../bare/toolchain.ts';
import type { Container } from './container-process.ts';
import { localEngine } from './docker-engine.ts';
import { IMAGES, type ImageName, pullImages } from './images.ts';
import { cacheDir } from './paths.ts';
import { USUAL_PORTS } from './ports.ts';
import type { Progress } from './progress.mjs';
import { choose } from './server-choice.ts';

export interface ServersOptions {
  /** Where data, logs and locks of this checkout are. */
  readonly stateDir: string;
  readonly env: NodeJS.ProcessEnv;
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

export interface OwnServers {
  /** The addresses of the servers that the environment does not name. */
  readonly started: { readonly brokers?: string; readonly endpoints?: string };
  readonly ended: Promise<string>;
  stop(): Promise<void>;
}

interface Running {
  readonly address: { readonly brokers: string } | { readonly endpoints: string };
  readonly ended: Promise<string>;
  stop(): Promise<void>;
}

type Name = Extract<ImageName, 'kafka' | 'etcd'>;
type Containers = Readonly<Record<Name, Container>>;
const STARTERS = { kafka, etcd } as const;
const TITLES = { kafka: 'Kafka', etcd: 'etcd' } as const;

/** Containers, if an engine has or can pull the images, or why not. */
async function containersFor(names: readonly Name[], options: ServersOptions): Promise<Containers | { why: string }> {
  const engine = await localEngine(options.signal);
  options.signal.throwIfAborted();
  if ('unavailable' in engine) return { why: engine.unavailable };
  const why = await pullImages(names, options.progress.step, options.signal);
  if (why !== undefined) return { why };
  const { user } = engine;
  return { kafka: { image: IMAGES.kafka, user }, etcd: { image: IMAGES.etcd, user } };
}

/** The variable that asks for a kind of servers. */
function wishOf(env: NodeJS.ProcessEnv): { kind: string; by: string } | undefined {
  if (env.IDALLOC_SERVERS) return { kind: env.IDALLOC_SERVERS, by: 'IDALLOC_SERVERS' };
  return env.KAFKA_HOME ? { kind: 'processes', by: 'KAFKA_HOME' } : undefined;
}

/** Decides what runs the servers, says so and why, and installs what is missing for it. Undefined: child processes. */
async function prepare(names: readonly Name[], options: ServersOptions): Promise<Containers | undefined> {
  const { env, progress, signal } = options;
  const cache = cacheDir(env);
  const wish = wishOf(env);
  const found = wish?.kind === 'processes' ? { why: '' } : await containersFor(names, options);
  const noContainers = 'why' in found ? found.why : undefined;
  const needed: Readonly<Record<Name, () => ToolName[]>> = {
    kafka: () => kafkaTools(cache, env),
    etcd: () => etcdTools(cache, env),
  };
  const tools = noContainers === undefined ? [] : names.flatMap((name) => needed[name]());
  const missing = toolFaults(tools, env).map(({ text }) => text);
  const choice = choose({ wish, noContainers, missing, noInstall: aptObstacle(env) });
  const origins = { kafka: () => kafkaOrigin(cache, env), etcd: () => etcdOrigin(cache, env) };
  const where = (name: Name) => (choice.kind === 'containers' ? `${TITLES[name]} of ${IMAGES[name]}` : origins[name]());
  const kind = choice.kind === 'containers' ? 'containers' : 'child processes';
  progress.say(`servers: ${kind}, because ${choice.because}; ${names.map(where).join(', ')}`);
  if (!('why' in found)) return found;
  await ensureTools(tools, { env, log: progress.step, signal });
  return undefined;
}

/**
 * Starts Kafka and etcd, in parallel and with persistent data, unless the environment names them. If one can't be
 * started, the other is stopped. All missing tools are reported in one error.
 */
export async function startOwnServers(options: ServersOptions): Promise<OwnServers> {
  const { env, progress } = options;
  const names = (['kafka', 'etcd'] as const).filter((name) =>
    name === 'kafka' ? !env.KAFKA_BROKERS : !env.ETCD_ENDPOINTS,
  );
  const containers = await prepare(names, options);
  const giveUp = new AbortController();
  const signal = AbortSignal.any([options.signal, giveUp.signal]);
  progress.step(`starting ${names.map((name) => TITLES[name]).join(' and ')}`);
  const starts = names.map(async (name): Promise<Running> => {
    const dir = join(options.stateDir, name);
    const [container, preferredPort] = [containers?.[name], USUAL_PORTS[name]];
    const server = await STARTERS[name]({ env, log: progress.step, signal, dir, container, preferredPort });
    progress.say(`${TITLES[name]} serves at ${Object.values(server.address).join()}`);
    return server;
  });
  let cause: unknown;
  const running = await Promise.all(
    starts.map((start) =>
      start.catch((error: unknown) => {
        cause ??= error;
        giveUp.abort();
        return undefined;
      }),
    ),
  );
  const up = running.filter((server) => server !== undefined);
  const stop = async () => {
    await Promise.all(up.map((server) => server.stop()));
  };
  if (up.length < starts.length) {
    await stop();
    throw cause;
  }
  const started = Object.assign({}, ...up.map((server) => server.address));
  return { started, ended: Promise.race(up.map((server) => server.ended)), stop };
}

async function kafka(options: Parameters<typeof startKafka>[0]): Promise<Running> {
  const server = await startKafka(options);
  const brokers = server.brokers.join(',');
  return {
    address: { brokers },
    ended: server.exited.then((how) => `Kafka exited (${how}); log: ${server.logFile}`),
    stop: () => server.stop(),
  };
}

async function etcd(options: Parameters<typeof startEtcd>[0]): Promise<Running> {
  const server = await startEtcd(options);
  const endpoints = server.endpoints.join(',');
  return {
    address: { endpoints },
    ended: server.exited.then((how) => `etcd exited (${how})`),
    stop: () => server.stop(),
  };
}
