import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { inject } from 'vitest';

type ServersKind = 'containers' | 'processes';

/**
 * Servers, and what a test may do to them. Those of the suite are shared: what breaks them must run alone and restore
 * them before it ends; other tests break servers of their own.
 */
export interface SuiteServers {
  readonly kind: ServersKind;
  /** host:port of the one Kafka broker; the same after a restart. */
  readonly brokers: readonly string[];
  /** http://host:port of each of the three members of one etcd cluster. */
  readonly etcdEndpoints: readonly string[];
  /** Freezes one etcd member: its sockets stay open and nothing answers. No effect when it is frozen already. */
  pauseEtcd(index: number): Promise<void>;
  /** Resumes a frozen etcd member; no effect when it is not frozen. */
  resumeEtcd(index: number): Promise<void>;
  /** Kills one etcd member without a shutdown, as a power cut would. */
  killEtcd(index: number): Promise<void>;
  /** Starts a killed etcd member again on its address and data, and resolves when it serves. */
  restartEtcd(index: number): Promise<void>;
  /** Kills the broker without a shutdown, as a power cut would. */
  killKafka(): Promise<void>;
  /** Stops the broker if it runs, starts it again on its old port and data, and resolves when it serves. */
  restartKafka(): Promise<void>;
}

/** The number of the suite's etcd members. */
export const ETCD_SIZE = 3;

/** Which servers to start. */
export interface ServerParts {
  readonly kafka: boolean;
  /** Members of the etcd cluster; none for no etcd. */
  readonly etcdMembers: number;
}

/** The servers of the suite. */
export const SUITE: ServerParts = { kafka: true, etcdMembers: ETCD_SIZE };

/** Servers as seen by the process that started them. What was not asked for has no addresses, and can't be broken. */
export interface TestServers extends SuiteServers {
  /** Stops and removes all servers; may be called twice. */
  stop(): Promise<void>;
}

/** The addresses of running servers, as plain data for another process. */
interface ServersAddress {
  readonly kind: ServersKind;
  readonly brokers: readonly string[];
  readonly etcdEndpoints: readonly string[];
  readonly controlUrl: string;
  /** Why containers can't be used; undefined when the servers are containers. */
  readonly noEngine?: string;
}

declare module 'vitest' {
  interface ProvidedContext {
    servers: ServersAddress;
  }
}

/**
 * The shortest session of a group member that the suite's broker accepts, so that tests need not wait for longer ones.
 */
export const LEAST_SESSION_MS = 2_000;

const ACTIONS: Readonly<Record<string, (servers: SuiteServers, index: number) => Promise<void>>> = {
  pauseEtcd: (servers, index) => servers.pauseEtcd(index),
  resumeEtcd: (servers, index) => servers.resumeEtcd(index),
  killEtcd: (servers, index) => servers.killEtcd(index),
  restartEtcd: (servers, index) => servers.restartEtcd(index),
  killKafka: (servers) => servers.killKafka(),
  restartKafka: (servers) => servers.restartKafka(),
};

/**
 * Lets other processes on this machine control the servers: vitest runs tests outside the process that started the
 * servers.
 *
 * @returns the URL for `ServersAddress`, and `close`
 */
export async function serveControl(servers: SuiteServers): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const [, name = '', index = '0'] = (request.url ?? '').split('/');
    const action = ACTIONS[name];
    const done =
      action === undefined
        ? Promise.reject(new Error(`the servers have no action '${name}'`))
        : action(servers, Number(index));
    done.then(
      () => response.writeHead(204).end(),
      (error: unknown) => response.writeHead(500).end(String(error)),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { url: `http://127.0.0.1:${port}`, close };
}

/** The servers at an address, controlled through the process that started them. */
function serversAt(address: ServersAddress): SuiteServers {
  const call = async (path: string): Promise<void> => {
    const response = await fetch(`${address.controlUrl}/${path}`, { method: 'POST' });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  };
  return {
    kind: address.kind,
    brokers: address.brokers,
    etcdEndpoints: address.etcdEndpoints,
    pauseEtcd: (index) => call(`pauseEtcd/${index}`),
    resumeEtcd: (index) => call(`resumeEtcd/${index}`),
    killEtcd: (index) => call(`killEtcd/${index}`),
    restartEtcd: (index) => call(`restartEtcd/${index}`),
    killKafka: () => call('killKafka'),
    restartKafka: () => call('restartKafka'),
  };
}

/** The servers of this run, for a test file of the integration project. */
export function suiteServers(): SuiteServers {
  return serversAt(inject('servers'));
}

const STATUS_TIMEOUT_MS = 1_000;
const LEADER_TRIES = 20;
const LEADER_REST_MS = 250;

/** The index of the etcd member that leads the cluster; rejects when none leads for 5 s. */
export async function etcdLeader({ etcdEndpoints }: SuiteServers): Promise<number> {
  for (let tries = 0; tries < LEADER_TRIES; tries += 1) {
    const index = (await Promise.all(etcdEndpoints.map(leads))).indexOf(true);
    if (index >= 0) return index;
    await pause(LEADER_REST_MS);
  }
  throw new Error('no etcd member leads after 5 s: is a majority of them running and not frozen?');
}

async function leads(endpoint: string): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(STATUS_TIMEOUT_MS);
    const answer = await fetch(`${endpoint}/v3/maintenance/status`, { method: 'POST', body: '{}', signal });
    const status = (await answer.json()) as { leader?: string; header?: { member_id?: string } };
    return status.leader !== undefined && status.leader === status.header?.member_id;
  } catch {
    return false; // frozen or dead, so it does not lead for long
  }
}
