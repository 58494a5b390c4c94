import { expect } from 'vitest';
import { NOTIFIED } from './hasty-rules.ts';
import { Load } from './load.ts';
import type { Prometheus, Sample } from './prometheus.ts';
import { Realm } from './realm.ts';
import { suiteServers } from './servers.ts';
import type { WorkerProcess } from './worker-process.ts';

const JOB = 'idalloc-calm';
const PARTITIONS = 3;
const PACE_MS = 500;
/** Alerts of this job, and those that are of no job. */
const FIRING = `alertstate="firing",job=~"${JOB}|"`;

/** Two workers that serve a steady load, with standbys and one bad request, while Prometheus looks. */
export class CalmWorkers implements AsyncDisposable {
  readonly job = JOB;
  readonly #prometheus: Prometheus;
  readonly #realm: Realm;
  readonly #workers: readonly WorkerProcess[];
  readonly #load: Load;
  readonly #beganMs = performance.now();
  /** How often the rules had been evaluated when it began. */
  readonly #before: number;

  private constructor(prometheus: Prometheus, realm: Realm, workers: readonly WorkerProcess[], before: number) {
    [this.#prometheus, this.#realm, this.#workers, this.#before] = [prometheus, realm, workers, before];
    this.#load = new Load(realm, { partitions: PARTITIONS, paceMs: PACE_MS });
  }

  /** Resolves when both serve, and the rules show nothing of their start any more. */
  static async start(prometheus: Prometheus): Promise<CalmWorkers> {
    await using starting = new AsyncDisposableStack();
    const realm = starting.use(await Realm.create(suiteServers(), { partitions: PARTITIONS }));
    const workers = [realm.worker(), realm.worker()];
    await Promise.all(workers.map((worker) => worker.ready()));
    await prometheus.scrape(JOB, workers);
    const following = `sum(idalloc_partition_state{job="${JOB}",state="following"})`;
    await expect.poll(() => prometheus.query(following)).toMatchObject([{ value: PARTITIONS }]);
    await expect.poll(() => prometheus.query(`ALERTS{${FIRING}}`)).toEqual([]);
    const before = await prometheus.evaluations();
    await realm.sendRaw([{ value: 'junk' }]);
    starting.move();
    return new CalmWorkers(prometheus, realm, workers, before);
  }

  /**
   * Waits until each rule was evaluated so often since the start, and returns what fired and a person would be
   * notified of, and how many IDs were allocated.
   */
  async served(evaluations: number): Promise<{ readonly fired: readonly Sample[]; readonly ids: number }> {
    const seen = async () => (await this.#prometheus.evaluations()) - this.#before;
    await expect.poll(seen, { timeout: 2_000 * evaluations, interval: 1_000 }).toBeGreaterThanOrEqual(evaluations);
    const seconds = Math.floor((performance.now() - this.#beganMs) / 1_000);
    const [fired, ids] = await Promise.all([
      this.#prometheus.query(`max_over_time(ALERTS{${FIRING},${NOTIFIED}}[${seconds}s])`),
      this.#prometheus.query(`sum(increase(idalloc_ids_total{job="${JOB}"}[${seconds}s]))`),
    ]);
    return { fired, ids: ids[0]?.value ?? 0 };
  }

  /** Ends the load. */
  async rest(): Promise<void> {
    await this.#load.stop();
  }

  /** Kills a worker. */
  kill(which: 0 | 1): void {
    this.#workers[which]?.kill('SIGKILL');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#load.stop();
    await this.#realm[Symbol.asyncDispose]();
  }
}
