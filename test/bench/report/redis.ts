import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, type RedisClientType } from 'redis';
import { which } from '../../../ops/bare/toolchain.ts';
import { type Child, logHolds, startChild, untilReady } from '../../../ops/dev/child.ts';

const READY_MS = 60_000;

/** A server of its own on a new directory that is removed with it, and a connection to it. */
export class Redis implements AsyncDisposable {
  readonly #dir: string;
  readonly #command: string;
  readonly #settings: readonly string[];
  #child: Child | undefined;
  #client: RedisClientType | undefined;

  private constructor(command: string, settings: readonly string[]) {
    this.#command = command;
    this.#settings = settings;
    this.#dir = mkdtempSync(join(tmpdir(), 'idalloc-redis-'));
  }

  /**
   * Undefined if Redis is not installed. `settings` are options of its command line; without any it has its defaults,
   * which are Debian's.
   */
  static async start(settings: readonly string[]): Promise<Redis | undefined> {
    const command = which('redis-server', process.env);
    if (command === undefined) return undefined;
    const redis = new Redis(command, settings);
    try {
      await redis.#launch();
      return redis;
    } catch (error) {
      await redis[Symbol.asyncDispose]();
      throw error;
    }
  }

  get client(): RedisClientType {
    if (this.#client === undefined) throw new Error('Redis is not running');
    return this.#client;
  }

  async version(): Promise<string> {
    return /^redis_version:(\S+)/m.exec(await this.client.info('server'))?.[1] ?? '';
  }

  /** Kills the server as a crash would, and starts it again on its data. */
  async crash(): Promise<void> {
    this.#client?.destroy();
    await this.#child?.kill();
    await this.#launch();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#client?.isOpen) await this.#client.close();
    await this.#child?.stop();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  async #launch(): Promise<void> {
    const [socket, logFile] = [join(this.#dir, 'redis.sock'), join(this.#dir, 'redis.log')];
    // A socket in the directory needs no free port.
    const args = ['--port', '0', '--unixsocket', socket, '--dir', this.#dir, ...this.#settings];
    const child = await startChild({ name: 'Redis', command: this.#command, args, cwd: this.#dir, logFile });
    this.#child = child;
    await untilReady(child, () => logHolds(logFile, 'ready to accept connections at'), { timeoutMs: READY_MS });
    const client: RedisClientType = createClient({ socket: { path: socket, tls: false } });
    client.on('error', () => undefined); // a call that fails says so itself
    this.#client = client;
    await client.connect();
  }
}
