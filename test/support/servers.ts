import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { inject } from 'vitest';

type ServersKind = 'containers' | 'processes';

/** The way to the broker for a client that comes by a proxy, which is the test's to run. */
export interface ProxiedBroker {
  /** Of the loopback address: where the broker tells such clients to find it, so the proxy has to listen there. */
  readonly port: number;
  /** host:port that the proxy has to connect to. */
  readonly broker: string;
}

/** What a test may do to the servers of the suite. A test that breaks a server mends it before it ends. */
export interface SuiteServers {
  readonly kind: ServersKind;
  /** host:port of the one Kafka broker; the same after a restart. */
  readonly brokers: readonly string[];
  /** http://host:port of each of the three members of one etcd cluster. */
  readonly etcdEndpoints: readonly string[];
  readonly proxied: ProxiedBroker;
  /** Freezes one etcd member: its sockets stay open and nothing answers. Harmless when it is frozen already. */
  pauseEtcd(index: number): Promise<void>;
  /** Ends the freeze; harmless when there is none. */
  resumeEtcd(index: number): Promise<void>;
  /** Ends one etcd member at once, as a power cut would. */
  killEtcd(index: number): Promise<void>;
  /** Starts a killed etcd member again on its address and data, and resolves when it serves. */
  restartEtcd(index: number): Promise<void>;
  /** Ends the broker at once, as a power cut would. */
  killKafka(): Promise<void>;
  /** Stops the broker if it runs, starts it again on its old port and data, and resolves when it serves. */
  restartKafka(): Promise<void>;
}

/** Servers as the one who started them holds them. */
export interface TestServers extends SuiteServers {
  /** Ends and removes all that was started; may be called twice. */
  stop(): Promise<void>;
}

/** Plain data by which another process finds running servers. */
interface ServersAddress {
  readonly kind: ServersKind;
  readonly brokers: readonly string[];
  readonly etcdEndpoints: readonly string[];
  readonly proxied: ProxiedBroker;
  readonly controlUrl: string;
  /** Why there is no container engine; undefined when the servers are containers. */
  readonly noEngine?: string;
}

declare module 'vitest' {
  interface ProvidedContext {
    servers: ServersAddress;
  }
}

/** How many etcd members either implementation starts. */
export const ETCD_SIZE = 3;

const ACTIONS: Readonly<Record<string, (servers: SuiteServers, index: number) => Promise<void>>> = {
  pauseEtcd: (servers, index) => servers.pauseEtcd(index),
  resumeEtcd: (servers, index) => servers.resumeEtcd(index),
  killEtcd: (servers, index) => servers.killEtcd(index),
  restartEtcd: (servers, index) => servers.restartEtcd(index),
  killKafka: (servers) => servers.killKafka(),
  restartKafka: (servers) => servers.restartKafka(),
};

/**
 * Lets other processes on this machine act on the servers: vitest runs tests outside of the process that started them.
 *
 * @returns the URL for `ServersAddress`, and `close`
 */
export async function serveControl(servers: SuiteServers): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const [, name = '', index = '0'] = (request.url ?? '').split('/');
    const action = ACTIONS[name];
    const done = action === undefined ? Promise.reject(new Error(`no action ${name}`)) : action(servers, Number(index));
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

/** The servers behind an address, acted on through the process that holds them. */
function serversAt(address: ServersAddress): SuiteServers {
  const act = async (path: string): Promise<void> => {
    const response = await fetch(`${address.controlUrl}/${path}`, { method: 'POST' });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  };
  return {
    kind: address.kind,
    brokers: address.brokers,
    etcdEndpoints: address.etcdEndpoints,
    proxied: address.proxied,
    pauseEtcd: (index) => act(`pauseEtcd/${index}`),
    resumeEtcd: (index) => act(`resumeEtcd/${index}`),
    killEtcd: (index) => act(`killEtcd/${index}`),
    restartEtcd: (index) => act(`restartEtcd/${index}`),
    killKafka: () => act('killKafka'),
    restartKafka: () => act('restartKafka'),
  };
}

/** The servers of this suite run, for use in a test file of the integration project. */
export function suiteServers(): SuiteServers {
  return serversAt(inject('servers'));
}

const STATUS_TIMEOUT_MS = 1_000;
const LEADER_TRIES = 20;
const LEADER_REST_MS = 250;

/** Which etcd member leads the cluster; rejects when none does for 5 s. */
export async function etcdLeader({ etcdEndpoints }: SuiteServers): Promise<number> {
  for (let tries = 0; tries < LEADER_TRIES; tries += 1) {
    const index = (await Promise.all(etcdEndpoints.map(leads))).indexOf(true);
    if (index >= 0) return index;
    await pause(LEADER_REST_MS);
  }
  throw new Error('no etcd member leads');
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
