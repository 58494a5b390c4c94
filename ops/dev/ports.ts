import { randomInt } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';

const HOST = '127.0.0.1';
/** Every address that `localhost` may mean. */
const LOOPBACK = [HOST, '::1'];
/**
 * Below the ports that systems give to outgoing connections (Linux from 32,768, macOS and Windows from 49,152): a server that
 * restarts must find its port free.
 */
const PORTS = { from: 20_000, to: 32_767 };
/** Where users and pages expect each server. */
export const USUAL_PORTS = { kafka: 9092, etcd: 2379, api: 8080, ops: 9464 } as const;

function listen(port: number, host = HOST): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(port, host, () => resolve(server));
  });
}

/** Listens on a random port that nobody listens on. */
async function listenAnywhere(): Promise<Server> {
  for (;;) {
    try {
      return await listen(randomInt(PORTS.from, PORTS.to + 1));
    } catch (error) {
      if (!isTaken(error)) throw error;
    }
  }
}

function isTaken(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EADDRINUSE' || code === 'EACCES';
}

function close(server: Server): Promise<void> {
  return new Promise((resolve, reject) => server.close((error) => (error ? reject(error) : resolve())));
}

/** Different free ports of the loopback address: all are bound before any is released. */
export async function freePorts(count: number): Promise<number[]> {
  const servers: Server[] = [];
  try {
    for (let i = 0; i < count; i++) servers.push(await listenAnywhere());
    return servers.map((server) => {
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('a TCP server without a port');
      return address.port;
    });
  } finally {
    await Promise.all(servers.map(close));
  }
}

/** True if this process can listen on each of the ports. */
export async function allFree(ports: readonly number[]): Promise<boolean> {
  for (const port of ports) {
    try {
      await close(await listen(port));
    } catch (error) {
      if (isTaken(error)) return false;
      throw error;
    }
  }
  return true;
}

/** True if nobody listens on the port at any loopback address. An address that this machine lacks does not count. */
async function isFreeEverywhere(port: number): Promise<boolean> {
  for (const host of LOOPBACK) {
    try {
      await close(await listen(port, host));
    } catch (error) {
      if (isTaken(error)) return false;
      if (host === HOST) throw error;
    }
  }
  return true;
}

/**
 * The ports that a server used last time, if they are free, so that its address stays the same. The first ones are those of
 * `preferred` instead, each of which is free.
 */
export async function portsOf(dir: string, count: number, preferred: readonly number[] = []): Promise<number[]> {
  const file = join(dir, 'ports.json');
  const remembered = existsSync(file) ? parsePorts(readFileSync(file, 'utf8')) : undefined;
  const ports = remembered?.length === count && (await allFree(remembered)) ? remembered : await freePorts(count);
  for (const [i, port] of preferred.entries()) if (await isFreeEverywhere(port)) ports[i] = port;
  mkdirSync(dir, { recursive: true });
  writeFileSync(file, JSON.stringify(ports));
  return ports;
}

/** A list of port numbers; undefined for other text, such as a file that a full disk truncated. */
export function parsePorts(text: string): number[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isPort = (port: unknown) => Number.isInteger(port) && Number(port) > 0 && Number(port) < 65_536;
    return Array.isArray(value) && value.every(isPort) ? value : undefined;
  } catch {
    return undefined;
  }
}
