import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, type RedisClientType } from 'redis';
import { logHolds, startChild, untilReady } from '../../../ops/dev/child.ts';
import { which } from '../../../ops/dev/toolchain.ts';

const READY_MS = 60_000;

/** A server, and a connection to it. */
export interface Redis extends AsyncDisposable {
  readonly version: string;
  readonly client: RedisClientType;
}

/**
 * A server of its own on a new directory that is removed with it; undefined if Redis is not installed. `settings` are options of
 * its command line; without any it has its defaults, which are Debian's.
 */
export async function startRedis(settings: readonly string[] = []): Promise<Redis | undefined> {
  const command = which('redis-server', process.env);
  if (command === undefined) return undefined;
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-redis-'));
  const [socket, logFile] = [join(dir, 'redis.sock'), join(dir, 'redis.log')];
  // A socket in the directory needs no free port.
  const args = ['--port', '0', '--unixsocket', socket, '--dir', dir, ...settings];
  const child = await startChild({ name: 'Redis', command, args, cwd: dir, logFile });
  const client: RedisClientType = createClient({ socket: { path: socket, tls: false } });
  const stop = async () => {
    if (client.isOpen) await client.close();
    await child.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    await untilReady(child, () => logHolds(logFile, 'ready to accept connections at'), { timeoutMs: READY_MS });
    await client.connect();
    const [, version = ''] = /^redis_version:(\S+)/m.exec(await client.info('server')) ?? [];
    return { version, client, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
