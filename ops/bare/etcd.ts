import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, logHolds, startChild, untilReady } from '../dev/child.ts';
import { type Container, endContainer, startContainer } from '../dev/container-process.ts';
import { cacheDir } from '../dev/paths.ts';
import { portsOf } from '../dev/ports.ts';
import type { BuildOptions } from './cache.ts';
import { buildGoProgram, type GoProgram, pinnedGoProgram } from './go-program.ts';
import { isAtLeast, requireTools, type ToolName, versionOf, which } from './toolchain.ts';

const ETCD: GoProgram = {
  name: 'etcd',
  folder: 'etcd',
  module: 'go.etcd.io/etcd/server/v3',
  main: 'go.etcd.io/etcd/server/v3',
};
const OLDEST_ON_PATH = [3, 5] as const;

/**
 * The path where the program is, or will be. The pinned version, once built, is preferred, so that an older one never
 * opens its data; a recent etcd on the PATH saves the build.
 */
function plan(cache: string, env: NodeJS.ProcessEnv) {
  const { version, cacheName } = pinnedGoProgram(ETCD);
  const built = join(cache, cacheName, 'etcd');
  if (existsSync(built)) return { path: built, version, ready: true };
  const onPath = which('etcd', env);
  const found = onPath && versionOf(onPath, ['--version']);
  if (onPath && found && isAtLeast(found, OLDEST_ON_PATH)) return { path: onPath, version, ready: true };
  return { path: built, version, ready: false };
}

/** The tools that etcd needs on this machine: none once it is built, or when one on the PATH is used. */
export function etcdTools(cache: string, env: NodeJS.ProcessEnv): ToolName[] {
  return plan(cache, env).ready ? [] : ['go'];
}

/** Where etcd comes from, for people. */
export function etcdOrigin(cache: string, env: NodeJS.ProcessEnv): string {
  const { path, version, ready } = plan(cache, env);
  return ready ? `etcd from ${path}` : `etcd ${version} built by Go`;
}

/** The path of an etcd program, which is built from its Go module if it is missing. */
export async function installEtcd(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  const { path, ready } = plan(options.cache, env);
  return ready ? path : await buildEtcd(env, options);
}

/** The path of etcd as built from its Go module, statically linked. */
export function buildEtcd(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  return buildGoProgram(ETCD, env, options);
}

/** For a hang only: a member that exits is noticed at once. */
const READY_TIMEOUT_MS = 120_000;
const HEALTH_TIMEOUT_MS = 2_000;
/** Between choosing a free port and listening on it another process may take it. */
const ATTEMPTS = 3;
/** What etcd and the container engine print then. */
const TAKEN = ['address already in use', 'port is already allocated'];
/** The program's path in etcd's image. */
const IMAGE_PROGRAM = '/usr/local/bin/etcd';
/** Ports of each member: for clients, for the other members, and for health checks. */
const PORTS_EACH = 3;

export interface EtcdOptions {
  /** Holds the data and log of each member, and the ports; existing data is used again. */
  readonly dir: string;
  /** Members, 1 by default. A cluster of more that has data starts again only while its ports are free. */
  readonly size?: number;
  /** The port of the first member for clients, if it is free. */
  readonly preferredPort?: number;
  /** TLS files of a member, the first of which is 0; clients then need a certificate of its CA. Without it, no TLS. */
  readonly tls?: (member: number) => EtcdTlsFiles;
  /** Command-line arguments after the default ones. */
  readonly args?: readonly string[];
  /** Runs the only member in a container of this image; without it, members are processes of this machine. */
  readonly container?: Container | undefined;
  readonly log?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

/** PEM files. A member reads certificate and key again for each connection, and the CA at its start. */
interface EtcdTlsFiles {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** A running member. SIGSTOP and SIGCONT to its `pid` freeze and thaw it. */
export interface EtcdNode extends Child {
  readonly endpoint: string;
  /** Starts it again after it ended, on its ports and data; the result replaces this node. */
  restart(): Promise<EtcdNode>;
}

/** A running cluster; its members can also be stopped and killed one by one. */
export interface EtcdProcess {
  readonly endpoints: readonly string[];
  readonly nodes: readonly EtcdNode[];
  /** The pid of the first member. */
  readonly pid: number;
  readonly exited: Promise<string>;
  stop(graceMs?: number): Promise<void>;
  kill(): Promise<void>;
}

/**
 * Starts an etcd cluster on the loopback address and waits until each member serves linearizable reads. It ends with
 * this process at the latest. Throws when a tool is missing, the build fails, or it is not ready in time.
 */
export async function startEtcd(options: EtcdOptions): Promise<EtcdProcess> {
  const env = options.env ?? process.env;
  const cache = cacheDir(env);
  const size = options.size ?? 1;
  const install = { cache, log: options.log ?? (() => undefined), signal: options.signal };
  if (!options.container) requireTools(etcdTools(cache, env), env);
  const program = options.container ? IMAGE_PROGRAM : await installEtcd(env, install);
  mkdirSync(options.dir, { recursive: true, mode: 0o700 });
  const logs = memberNames(size).map((name) => logOf(options.dir, name));
  for (const log of logs) await endContainer(log);
  const preferred = options.preferredPort === undefined ? [] : [options.preferredPort];
  for (let attempt = 1; ; attempt++) {
    const ports = await portsOf(options.dir, PORTS_EACH * size, preferred);
    try {
      return cluster(await startMembers(program, ports, options, env));
    } catch (error) {
      const collided = logs.some((log) => TAKEN.some((text) => logHolds(log, text)));
      if (!collided || attempt === ATTEMPTS || options.signal?.aborted) throw error;
    }
  }
}

function memberNames(size: number): string[] {
  return Array.from({ length: size }, (_, i) => `etcd${i + 1}`);
}

function logOf(dir: string, name: string): string {
  return join(dir, `${name}.log`);
}

/** Members become ready together: the first ones wait for a quorum. */
async function startMembers(
  program: string,
  ports: readonly number[],
  options: EtcdOptions,
  env: NodeJS.ProcessEnv,
): Promise<EtcdNode[]> {
  const names = memberNames(ports.length / PORTS_EACH);
  const peers = names.map((name, i) => `${name}=http://127.0.0.1:${ports[PORTS_EACH * i + 1]}`).join(',');
  const started = await Promise.allSettled(
    names.map(async (name, i): Promise<EtcdNode> => {
      const [client, peer, health] = ports.slice(PORTS_EACH * i).map((port) => `127.0.0.1:${port}`);
      const endpoint = `${options.tls === undefined ? 'http' : 'https'}://${client}`;
      const healthUrl = `http://${health}`;
      // A container publishes a port only for a listener on all of its own addresses.
      const listen = (url: string) => (options.container ? url.replace('127.0.0.1', '0.0.0.0') : url);
      const args = [
        ...memberArgs(name, join(options.dir, name), `http://${peer}`),
        ...['--listen-client-urls', listen(endpoint), '--advertise-client-urls', endpoint],
        ...['--initial-cluster', peers, '--initial-cluster-state', 'new', '--listen-metrics-urls', listen(healthUrl)],
        ...(options.tls === undefined ? [] : tlsArgs(options.tls(i))),
        ...(options.args ?? []),
      ];
      const start = async (): Promise<EtcdNode> => {
        const what = { name, logFile: logOf(options.dir, name) };
        const { container, dir } = options;
        const published = [PORTS_EACH * i, PORTS_EACH * i + 2].map((port) => ports[port] ?? 0);
        const child = container
          ? await startContainer(what, container, { command: program, args, dir, ports: published })
          : await startChild({ ...what, command: program, args, env });
        await untilReady(child, () => isHealthy(healthUrl), { timeoutMs: READY_TIMEOUT_MS, signal: options.signal });
        return { ...child, endpoint, restart: start };
      };
      return await start();
    }),
  );
  const nodes = started.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const failure = started.find((result) => result.status === 'rejected');
  if (!failure) return nodes;
  await Promise.all(nodes.map((node) => node.kill()));
  throw failure.reason;
}

/** Elections in half a second instead of one, since everything is on one machine. */
function memberArgs(name: string, dataDir: string, peer: string): string[] {
  return [
    ...['--name', name, '--data-dir', dataDir],
    ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
    ...['--heartbeat-interval', '50', '--election-timeout', '500'],
    ...['--auto-compaction-mode', 'periodic', '--auto-compaction-retention', '5m'],
    ...['--log-level', 'warn'],
  ];
}

function tlsArgs({ ca, cert, key }: EtcdTlsFiles): string[] {
  return ['--cert-file', cert, '--key-file', key, '--trusted-ca-file', ca, '--client-cert-auth'];
}

/** etcd is healthy once it has a leader and a linearizable read succeeds. */
async function isHealthy(url: string): Promise<boolean> {
  try {
    const answer = await fetch(`${url}/health`, { signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS) });
    const body = (await answer.json()) as { health?: string };
    return body.health === 'true';
  } catch {
    return false; // not listening yet
  }
}

function cluster(nodes: readonly EtcdNode[]): EtcdProcess {
  const [first] = nodes;
  if (!first) throw new Error('an etcd cluster needs at least one member');
  return {
    endpoints: nodes.map((node) => node.endpoint),
    nodes,
    pid: first.pid,
    exited: Promise.race(nodes.map((node) => node.exited.then((how) => `${node.name}: ${how}`))),
    // Members that stop together wait for each other in vain. A kill loses nothing, since all data is synced to disk.
    stop: async (graceMs = nodes.length > 1 ? 500 : 10_000) => {
      await Promise.all(nodes.map((node) => node.stop(graceMs)));
    },
    kill: async () => {
      await Promise.all(nodes.map((node) => node.kill()));
    },
  };
}
