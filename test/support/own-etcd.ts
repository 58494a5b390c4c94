import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { etcdTools } from '../../ops/dev/etcd-install.ts';
import { type EtcdProcess, startEtcd } from '../../ops/dev/etcd-process.ts';
import { cacheDir } from '../../ops/dev/paths.ts';
import { which } from '../../ops/dev/toolchain.ts';

const MEMBER = 'etcd1';

/** Whether this machine has etcd or the tools that build it. */
export function canRunEtcd(): boolean {
  return etcdTools(cacheDir(process.env), process.env).every((tool) => which(tool, process.env) !== undefined);
}

/** An etcd of one member for one test, which may restore or wipe its data. It keeps its address and cluster token. */
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

  async #whileDown(change: () => Promise<void>): Promise<void> {
    await this.#server.stop();
    await change();
    this.#server = await startEtcd({ dir: join(this.#dir, 'etcd') });
    if (this.#server.endpoints[0] !== this.endpoints[0]) throw new Error('another process has taken the port of etcd');
  }
}
