import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tryLock } from './lock.mjs';

const HOST = '127.0.0.1';
/** Every address that `localhost` may mean. */
const LOOPBACK = [HOST, '::1'];
/**
 * Below the ports that systems give to outgoing connections (Linux from 32,768, macOS and Windows from 49,152): a
 * server that restarts must find its port free.
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

function isTaken(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EADDRINUSE' || code === 'EACCES';
}

function close(server: Server): Promise<void> {
  return new Promise((resolve, reject) => server.close((error) => (error ? reject(error) : resolve())));
}

/** A file for each port that a process has reserved, which is stale once that process has ended. */
const RESERVATIONS = join(tmpdir(), `idalloc-ports-${process.getuid?.() ?? 'all'}`);
/** The ports of this process, and what ends each reservation. */
const reserved = new Map<number, () => void>();
/** Processes begin at different places, so that they rarely ask for the same port. */
let next = (process.pid * 61) % (PORTS.to - PORTS.from + 1);

/** Reserves the port until this process ends. False if another process, or an earlier call, has reserved it. */
function reserve(port: number): boolean {
  if (reserved.has(port)) return false;
  const file = join(RESERVATIONS, String(port));
  const lock = tryLock(file) ?? tryLock(file); // the first may only remove a stale reservation
  if (!lock?.acquired) return false;
  if (reserved.size === 0) process.once('exit', endReservations);
  reserved.set(port, lock.release);
  return true;
}

/** Leaves no files behind; those of a process that is killed are stale. */
function endReservations(): void {
  for (const end of reserved.values()) end();
}

/**
 * Different ports of the loopback address on which nobody listens. They are reserved until this process ends: a server
 * binds its port only later, and until then, or while it restarts, no other caller gets it.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let tried = 0; ports.length < count; tried += 1) {
    if (tried > PORTS.to - PORTS.from) throw new Error(`no port from ${PORTS.from} to ${PORTS.to} is free`);
    const port = PORTS.from + next;
    next = (next + 1) % (PORTS.to - PORTS.from + 1);
    if (reserve(port) && (await allFree([port]))) ports.push(port);
  }
  return ports;
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
 * The ports that a server used last time, if they are free, so that its address stays the same. The first ones are
 * those of `preferred` instead, each of which is free. All are reserved until this process ends.
 */
export async function portsOf(dir: string, count: number, preferred: readonly number[] = []): Promise<number[]> {
  const file = join(dir, 'ports.json');
  const remembered = existsSync(file) ? parsePorts(readFileSync(file, 'utf8')) : undefined;
  const isKept = remembered?.length === count && remembered.every(isOurs) && (await allFree(remembered));
  const ports = isKept ? remembered : await freePorts(count);
  for (const [i, port] of preferred.entries()) if (isOurs(port) && (await isFreeEverywhere(port))) ports[i] = port;
  mkdirSync(dir, { recursive: true });
  writeFileSync(file, JSON.stringify(ports));
  return ports;
}

/** Whether this process has the port reserved, now or before. */
function isOurs(port: number): boolean {
  return reserved.has(port) || reserve(port);
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
