import { expect } from 'vitest';
import { Load, type LoadOptions } from './load.ts';
import type { Realm } from './realm.ts';
import { type Followings, following, Scene } from './scene.ts';
import { checkStops } from './stops.ts';
import type { History } from './whole-history.ts';
import type { WorkerProcess } from './worker-process.ts';

/** Unanswered requests that show that the worker has stopped serving. */
const UNANSWERED = 20;
const POLL = { timeout: 120_000, interval: 200 };
const PACE = { burst: 2, paceMs: 100 };

export interface Readiness {
  readonly status: number;
  readonly reason?: string;
  readonly detail?: string;
}

/** The response of the worker's /readyz. */
export async function readiness(worker: WorkerProcess): Promise<Readiness> {
  const response = await worker.ops('/readyz');
  return { ...((await response.json()) as object), status: response.status };
}

/** A worker of a realm under a load that runs until `check`; disposing it also disposes the realm. */
export class LoadedWorker extends Scene {
  readonly worker: WorkerProcess;
  readonly load: Load;

  private constructor(followings: Followings, worker: WorkerProcess, load: Load) {
    super(followings);
    this.workers.push(worker);
    this.worker = worker;
    this.load = load;
  }

  /** Resolves when the first requests are answered. */
  static async under(
    realm: Realm,
    env: Readonly<Record<string, string>>,
    load: Pick<LoadOptions, 'misroutes'> = {},
  ): Promise<LoadedWorker> {
    const worker = realm.worker(env);
    await worker.ready();
    const partitions = Number(realm.env.REQUEST_PARTITIONS);
    const paced = new Load(realm, { partitions, ...PACE, ...load });
    const loaded = new LoadedWorker(await following(realm), worker, paced);
    await loaded.answered(10);
    return loaded;
  }

  /** The number of requests answered so far. */
  get answers(): number {
    return new Set(this.replies.seen.map(({ message }) => String(message.key))).size;
  }

  /** Waits until `more` further requests are answered. */
  async answered(more: number): Promise<void> {
    await this.replies.replies(this.answers + more);
  }

  /** Waits until the worker is unready for this reason and requests pile up; returns the detail from /readyz. */
  async stopped(reason: string): Promise<string> {
    await this.unready(reason);
    await expect.poll(() => this.load.requests.length - this.answers, POLL).toBeGreaterThan(UNANSWERED);
    return (await this.unready(reason)).detail ?? '';
  }

  /** On a busy machine it may have another reason for a moment: the process was paused. */
  async unready(reason: string): Promise<Readiness> {
    let found: Readiness = { status: 200 };
    const shown = async () => {
      found = await readiness(this.worker);
      return found.reason;
    };
    await expect.poll(shown, POLL).toBe(reason);
    expect(found.status).toBe(503);
    return found;
  }

  async ready(): Promise<void> {
    await expect.poll(() => readiness(this.worker), POLL).toMatchObject({ status: 200 });
  }

  /**
   * Ends the load. Expects one batch for every request, none allocated while the worker was stopped, and no ID twice.
   */
  async check(): Promise<History> {
    const requests = await this.load.stop();
    const history = await this.history(requests);
    checkStops(this.workers, this.replies, requests);
    return history;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.load.stop().catch(() => undefined); // the error of the failed test is more useful
    await super[Symbol.asyncDispose]();
  }
}
