import { join } from 'node:path';
import { etcdTools } from './etcd-install.ts';
import { startEtcd } from './etcd-process.ts';
import { kafkaTools } from './kafka-install.ts';
import { startKafka } from './kafka-process.ts';
import { cacheDir } from './paths.ts';
import { requireTools } from './toolchain.ts';

export interface ServersOptions {
  /** Where data, logs and locks of this checkout are. */
  readonly stateDir: string;
  readonly env: NodeJS.ProcessEnv;
  readonly log: (line: string) => void;
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

/**
 * Starts Kafka and etcd, in parallel and with persistent data, unless the environment names them. If one can't be
 * started, the other is stopped. All missing tools are reported in one error.
 */
export async function startOwnServers(options: ServersOptions): Promise<OwnServers> {
  const { env, log } = options;
  const cache = cacheDir(env);
  const needsKafka = !env.KAFKA_BROKERS;
  const needsEtcd = !env.ETCD_ENDPOINTS;
  requireTools([...(needsKafka ? kafkaTools(cache, env) : []), ...(needsEtcd ? etcdTools(cache, env) : [])], env);
  const giveUp = new AbortController();
  const common = { env, log, signal: AbortSignal.any([options.signal, giveUp.signal]) };
  log(`starting ${[needsKafka ? 'Kafka' : '', needsEtcd ? 'etcd' : ''].filter(Boolean).join(' and ')}`);
  const starts: Promise<Running>[] = [
    ...(needsKafka ? [kafka({ ...common, dir: join(options.stateDir, 'kafka') })] : []),
    ...(needsEtcd ? [etcd({ ...common, dir: join(options.stateDir, 'etcd') })] : []),
  ];
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
  options.log?.(`Kafka serves at ${brokers}`);
  return {
    address: { brokers },
    ended: server.exited.then((how) => `Kafka exited (${how}); log: ${server.logFile}`),
    stop: () => server.stop(),
  };
}

async function etcd(options: Parameters<typeof startEtcd>[0]): Promise<Running> {
  const server = await startEtcd(options);
  const endpoints = server.endpoints.join(',');
  options.log?.(`etcd serves at ${endpoints}`);
  return {
    address: { endpoints },
    ended: server.exited.then((how) => `etcd exited (${how})`),
    stop: () => server.stop(),
  };
}
