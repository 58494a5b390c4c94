import { setTimeout as pause } from 'node:timers/promises';
import type { EtcdLink } from '../support/etcd-link.ts';
import type { Scene } from '../support/scene.ts';
import { opened } from '../support/stops.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

/** A worker that finds no broker ends at its start, as its supervisor would see; it is started again this often. */
const STARTS = 20;
const RESTART_MS = 1_000;

/** One worker's place in the chaos: its way to etcd, and the process that is there now. */
export class Slot {
  readonly index: number;
  readonly link: EtcdLink;
  readonly #scene: Scene;
  readonly #ended = new Set<WorkerProcess>();
  #worker: WorkerProcess;

  private constructor(scene: Scene, index: number, link: EtcdLink) {
    this.#scene = scene;
    this.index = index;
    this.link = link;
    this.#worker = scene.worker(link.env);
  }

  static async open(scene: Scene, index: number): Promise<Slot> {
    return new Slot(scene, index, await scene.link());
  }

  get worker(): WorkerProcess {
    return this.#worker;
  }

  /** Ends the process, at once or in good order, and starts another one in its place `afterMs` later. */
  async replace(signal: 'SIGKILL' | 'SIGTERM', afterMs: number): Promise<void> {
    this.#ended.add(this.#worker);
    if (signal === 'SIGTERM') await this.#worker.stop();
    else this.#worker.kill(signal);
    await this.#worker.ended();
    await pause(afterMs);
    for (let starts = 0; starts < STARTS; starts += 1) {
      this.#worker = this.#scene.worker(this.link.env);
      if (await this.#started()) return;
      this.#ended.add(this.#worker);
      await pause(RESTART_MS);
    }
    throw new Error(`worker ${this.index} did not start in ${STARTS} attempts:\n${this.#worker.errors}`);
  }

  /** Resolves when the worker serves, or has served and comes back; it must be the process that was there before. */
  async back(): Promise<void> {
    while (this.#worker.gate() !== 'open') await opened(this.#worker, this.#worker.lines.length);
  }

  /** Whether the present process has ended without being told to. */
  async endedByItself(): Promise<boolean> {
    const alive = Symbol('alive');
    const state = await Promise.race([this.#worker.exit, pause(0, alive)]);
    return state !== alive && !this.#ended.has(this.#worker);
  }

  /** False when it ended before it had anything to do with Kafka and etcd. */
  async #started(): Promise<boolean> {
    const worker = this.#worker;
    const served = worker.line(({ msg }) => msg === 'worker ID acquired').then(() => true);
    return await Promise.race([served, worker.exit.then(() => false)]).catch(() => false);
  }
}
