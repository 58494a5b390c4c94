import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Load } from './load.ts';
import { Realm, SHORT_SESSION } from './realm.ts';
import { type Followings, following, Scene } from './scene.ts';
import { suiteServers } from './servers.ts';
import type { WorkerProcess } from './worker-process.ts';

export const PARTITIONS = 6;
export const WORKERS = 3;
const ANSWERED = 300;

interface FleetOptions {
  readonly program?: readonly string[];
  readonly misroutes?: boolean;
  readonly prepare?: (realm: Realm) => Promise<void>;
}

/** Three workers that share the partitions under load, each with an index directory that outlives its process. */
export class Fleet extends Scene {
  readonly load: Load;
  readonly #dirs: string[] = [];

  private constructor(followings: Followings, misroutes: boolean) {
    super(followings);
    this.load = new Load(this.realm, { partitions: PARTITIONS, misroutes });
  }

  /**
   * `program`: what workers run that is installed elsewhere. `misroutes`: half of the load has to be forwarded.
   * `prepare` is run before the first worker starts.
   */
  static async of(
    env: Readonly<Record<string, string>> = SHORT_SESSION,
    { program, misroutes = false, prepare }: FleetOptions = {},
  ): Promise<Fleet> {
    const realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env });
    await prepare?.(realm);
    const fleet = new Fleet(await following(realm), misroutes);
    for (let i = 0; i < WORKERS; i += 1) {
      fleet.#dirs.push(mkdtempSync(join(tmpdir(), 'idalloc-fleet-')));
      fleet.replace(i, program);
    }
    await fleet.shared();
    await fleet.answered();
    return fleet;
  }

  replace(i: number, program?: readonly string[]): WorkerProcess {
    const worker = this.realm.worker({ INDEX_DIR: this.#dirs[i] ?? '' }, program);
    this.workers[i] = worker;
    return worker;
  }

  /** Resolves when each worker has its share of the partitions. */
  shared(): Promise<unknown> {
    return Promise.all(this.workers.map((worker) => worker.hasPartitions(PARTITIONS / WORKERS)));
  }

  /** Resolves when all requests sent so far, and some more, are answered. */
  answered(): Promise<unknown> {
    return this.replies.replies(this.load.requests.length + ANSWERED);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.load.stop();
    await super[Symbol.asyncDispose]();
    for (const dir of this.#dirs) rmSync(dir, { recursive: true, force: true });
  }
}
