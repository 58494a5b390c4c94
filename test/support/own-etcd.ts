import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { etcdTools } from '../../ops/dev/etcd-install.ts';
import { type EtcdProcess, startEtcd } from '../../ops/dev/etcd-process.ts';
import { cacheDir } from '../../ops/dev/paths.ts';
import { which } from '../../ops/dev/toolchain.ts';

const MEMBER = 'etcd1';

/** False on a machine that has neither an etcd nor what builds it. */
export function canRunEtcd(): boolean {
  return etcdTools(cacheDir(process.env), process.env).every((tool) => which(tool, process.env) !== undefined);
}

/** An etcd of one member that belongs to one test, which may take its data away. It keeps address and cluster token. */
export class OwnEtcd implements AsyncDisposable {
  readonly #dir: string;
  readonly endpoints: readonly string[];
  #server: EtcdProcess;

  private constructor(dir: string, server: EtcdProcess) {
    this.#dir = dir;
    this.#server = server;
    this.endpoints = server.endpoints;
  }

  static async start(): Promise<OwnEtcd> {
    const dir = await mkdtemp(join(tmpdir(), 'idalloc-etcd-'));
    return new OwnEtcd(dir, await startEtcd({ dir: join(dir, 'etcd') }));
  }

  /** Copies the data while the server is down for a moment. */
  async backUp(): Promise<void> {
    await this.#whileDown(() => cp(join(this.#dir, 'etcd', MEMBER), join(this.#dir, 'backup'), { recursive: true }));
  }

  /** The server comes back with the data of the backup. */
  async restore(): Promise<void> {
    await this.#whileDown(async () => {
      await rm(join(this.#dir, 'etcd', MEMBER), { recursive: true });
      await cp(join(this.#dir, 'backup'), join(this.#dir, 'etcd', MEMBER), { recursive: true });
    });
  }

  /** The server comes back without data. */
  async wipe(): Promise<void> {
    await this.#whileDown(() => rm(join(this.#dir, 'etcd', MEMBER), { recursive: true }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #whileDown(change: () => Promise<void>): Promise<void> {
    await this.#server.stop();
    await change();
    this.#server = await startEtcd({ dir: join(this.#dir, 'etcd') });
    if (this.#server.endpoints[0] !== this.endpoints[0]) throw new Error('another process has taken the port of etcd');
  }
}
