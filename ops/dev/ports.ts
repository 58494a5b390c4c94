import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';

const HOST = '127.0.0.1';

function listen(port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(port, HOST, () => resolve(server));
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve, reject) => server.close((error) => (error ? reject(error) : resolve())));
}

/** Free ports of the loopback address, all different: they are held together before any is given up. */
export async function freePorts(count: number): Promise<number[]> {
  const servers: Server[] = [];
  try {
    for (let i = 0; i < count; i++) servers.push(await listen(0));
    return servers.map((server) => {
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('a TCP server without a port');
      return address.port;
    });
  } finally {
    await Promise.all(servers.map(close));
  }
}

/** True when every one of the ports can be listened on. */
export async function allFree(ports: readonly number[]): Promise<boolean> {
  for (const port of ports) {
    try {
      await close(await listen(port));
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === 'EADDRINUSE' || code === 'EACCES') return false;
      throw error;
    }
  }
  return true;
}

/** The ports that a server used the last time, if they are free, so that whoever knows its address finds it again. */
export async function portsOf(dir: string, count: number): Promise<number[]> {
  const file = join(dir, 'ports.json');
  const remembered = existsSync(file) ? parsePorts(readFileSync(file, 'utf8')) : undefined;
  const ports = remembered?.length === count && (await allFree(remembered)) ? remembered : await freePorts(count);
  mkdirSync(dir, { recursive: true });
  writeFileSync(file, JSON.stringify(ports));
  return ports;
}

/** A list of port numbers; undefined when the text is something else, such as a file cut short by a full disk. */
export function parsePorts(text: string): number[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isPort = (port: unknown) => Number.isInteger(port) && Number(port) > 0 && Number(port) < 65_536;
    return Array.isArray(value) && value.every(isPort) ? value : undefined;
  } catch {
    return undefined;
  }
}
