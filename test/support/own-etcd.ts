import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AlarmAction, AlarmType, Etcd3 } from 'etcd3';
import type { TestContext } from 'vitest';
import { type EtcdProcess, etcdTools, startEtcd } from '../../ops/bare/etcd.ts';
import { which } from '../../ops/bare/toolchain.ts';
import { cacheDir } from '../../ops/dev/paths.ts';

const MEMBER = 'etcd1';
const FILLING_BYTES = 256 * 1024;
/** etcd counts what it has committed to its file, and commits many writes together. */
const MOST_QUOTAS = 20;

/** So small that a test fills it, and large enough for an etcd without data. */
export const SMALL_QUOTA_BYTES = 4 * 2 ** 20;

/**
 * Makes sure that this machine has etcd or the tools that build it. Else the test is skipped, or fails if CI is set.
 */
export function requireOwnEtcd({ skip }: Pick<TestContext, 'skip'>): void {
  const missing = etcdTools(cacheDir(process.env), process.env).filter(
    (tool) => which(tool, process.env) === undefined,
  );
  if (missing.length === 0) return;
  const why = `needs an etcd of its own: there is none on the PATH, and no ${missing.join(' and ')} to build it`;
  if (process.env.CI) throw new Error(`CI is set, so a damaged etcd must be tested: ${why}`);
  skip(why);
}

/** An etcd of one member for one test, which may restore or wipe its data. It keeps its address and cluster token. */
export class OwnEtcd implements AsyncDisposable {
  readonly #dir: string;
  readonly #args: readonly string[];
  readonly endpoints: readonly string[];
  #server: EtcdProcess;

  private constructor(dir: string, args: readonly string[], server: EtcdProcess) {
    this.#dir = dir;
    this.#args = args;
    this.#server = server;
    this.endpoints = server.endpoints;
  }

  static async start(args: readonly string[] = []): Promise<OwnEtcd> {
    const dir = await mkdtemp(join(tmpdir(), 'idalloc-etcd-'));
    return new OwnEtcd(dir, args, await startEtcd({ dir: join(dir, 'etcd'), args }));
  }

  /** One whose database has no space after a few writes of `fill`. */
  static small(): Promise<OwnEtcd> {
    return OwnEtcd.start(['--quota-backend-bytes', String(SMALL_QUOTA_BYTES)]);
  }

  /** Writes until etcd refuses that, and has raised the alarm NOSPACE. */
  async fill(): Promise<void> {
    await this.#use(async (client) => {
      const value = Buffer.alloc(FILLING_BYTES);
      for (let written = 0; written < MOST_QUOTAS * SMALL_QUOTA_BYTES; written += FILLING_BYTES) {
        try {
          await client.put('/filling').value(value);
        } catch (error) {
          if (error instanceof Error && error.message.includes('database space exceeded')) return;
          throw error;
        }
      }
      throw new Error(`etcd took ${MOST_QUOTAS} times its quota`);
    });
  }

  /** Gives it space, as the runbook says: compacts and defragments it, and disarms the alarm. */
  async free(): Promise<void> {
    await this.#use(async (client) => {
      const { header } = await client.kv.range({ key: Buffer.from('/filling'), keys_only: true });
      await client.kv.compact({ revision: header.revision, physical: true });
      await client.maintenance.defragment();
      const { alarms } = await client.maintenance.alarm({ action: AlarmAction.Get });
      for (const { memberID } of alarms) {
        await client.maintenance.alarm({ action: AlarmAction.Deactivate, memberID, alarm: AlarmType.Nospace });
      }
    });
  }

  /** Copies the data, with a short stop of the server. */
  async backUp(): Promise<void> {
    await this.#whileDown(() => cp(join(this.#dir, 'etcd', MEMBER), join(this.#dir, 'backup'), { recursive: true }));
  }

  /** Restarts the server with the data of the backup. */
  async restore(): Promise<void> {
    await this.#whileDown(async () => {
      await rm(join(this.#dir, 'etcd', MEMBER), { recursive: true });
      await cp(join(this.#dir, 'backup'), join(this.#dir, 'etcd', MEMBER), { recursive: true });
    });
  }

  /** Restarts the server without data. */
  async wipe(): Promise<void> {
    await this.#whileDown(() => rm(join(this.#dir, 'etcd', MEMBER), { recursive: true }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #use(work: (client: Etcd3) => Promise<void>): Promise<void> {
    const client = new Etcd3({ hosts: [...this.endpoints] });
    try {
      await work(client);
    } finally {
      client.close();
    }
  }

  async #whileDown(change: () => Promise<void>): Promise<void> {
    await this.#server.stop();
    await change();
    this.#server = await startEtcd({ dir: join(this.#dir, 'etcd'), args: this.#args });
    if (this.#server.endpoints[0] !== this.endpoints[0]) throw new Error('another process has taken the port of etcd');
  }
}
