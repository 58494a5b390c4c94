import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { EtcdLink } from '../support/etcd-link.ts';
import type { FakedClock } from '../support/faked-clock.ts';
import type { Scene } from '../support/scene.ts';
import { opened } from '../support/stops.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

/** A worker that reaches no broker exits at its start; it is restarted this often, as by a supervisor. */
const STARTS = 20;
const RESTART_MS = 1_000;
const LOOK_MS = 50;

/** The place of one worker: its link to etcd, its clock, its index directory, and the current process. */
export class Slot implements Disposable {
  readonly index: number;
  readonly link: EtcdLink;
  readonly clock: FakedClock;
  readonly #scene: Scene;
  readonly #env: Readonly<Record<string, string>>;
  readonly #indexDir = mkdtempSync(join(tmpdir(), 'idalloc-chaos-index-'));
  readonly #heirs: WorkerProcess[] = [];
  readonly #ended = new Set<WorkerProcess>();
  #worker: WorkerProcess;

  private constructor(scene: Scene, index: number, link: EtcdLink, clock: FakedClock) {
    this.#scene = scene;
    this.index = index;
    this.link = link;
    this.clock = clock;
    this.#env = { ...link.env, ...clock.env, INDEX_DIR: this.#indexDir };
    this.#worker = scene.start(this.#env);
  }

  static async open(scene: Scene, index: number, clock: FakedClock): Promise<Slot> {
    return new Slot(scene, index, await scene.link(), clock);
  }

  /** Removes the index directory; the process that uses it must have exited. */
  [Symbol.dispose](): void {
    rmSync(this.#indexDir, { recursive: true, force: true });
  }

  get worker(): WorkerProcess {
    return this.#worker;
  }

  /** The last worker ID of the current process, which has acquired one before. */
  workerId(): number {
    return Number(acquired(this.#worker)?.workerId);
  }

  /** Starts another process for the worker ID of this place, with a correct clock and a healthy link to etcd. */
  heir(): WorkerProcess {
    const heir = this.#scene.start({ WORKER_ID: String(this.workerId()) });
    this.#heirs.push(heir);
    return heir;
  }

  /** The number of heirs that acquired the worker ID. */
  takeovers(): number {
    return this.#heirs.filter(acquired).length;
  }

  /**
   * Ends the process by a signal, and starts another one in its place `afterMs` later, with the same index or with
   * none.
   */
  async replace(signal: 'SIGKILL' | 'SIGTERM', afterMs: number, index: 'kept' | 'emptied' = 'kept'): Promise<void> {
    await this.#expectAlive();
    this.#ended.add(this.#worker);
    if (signal === 'SIGTERM') await this.#worker.stop();
    else this.#worker.kill(signal);
    await this.#worker.ended();
    if (index === 'emptied') {
      rmSync(this.#indexDir, { recursive: true });
      mkdirSync(this.#indexDir);
    }
    await pause(afterMs);
    for (let starts = 0; starts < STARTS; starts += 1) {
      this.#worker = this.#scene.start(this.#env);
      if (await this.#started()) return;
      this.#ended.add(this.#worker);
      await pause(RESTART_MS);
    }
    throw new Error(
      `worker ${this.index} exited at each of ${STARTS} starts; the errors of the last one:\n${this.#worker.errors}`,
    );
  }

  /** Resolves when the gate is open, or after `limitMs`. */
  async settled(limitMs: number): Promise<void> {
    const untilMs = performance.now() + limitMs;
    while (this.#worker.gate() !== 'open' && performance.now() < untilMs) await pause(LOOK_MS);
  }

  /** Resolves when the gate is open; rejects if the process has exited by itself. */
  async back(): Promise<void> {
    await this.#expectAlive();
    while (this.#worker.gate() !== 'open') await opened(this.#worker, this.#worker.lines.length);
  }

  async #expectAlive(): Promise<void> {
    const alive = Symbol('alive');
    const state = await Promise.race([this.#worker.exit, pause(0, alive)]);
    if (state === alive || this.#ended.has(this.#worker)) return;
    throw new Error(
      `worker ${this.index} exited by itself, with ${JSON.stringify(state)}; its errors:\n${this.#worker.errors}`,
    );
  }

  /** Resolves to true when the worker has acquired a worker ID, and to false when it exits before that. */
  async #started(): Promise<boolean> {
    const worker = this.#worker;
    const served = worker.line(({ msg }) => msg === 'worker ID acquired').then(() => true);
    return await Promise.race([served, worker.exit.then(() => false)]).catch(() => false);
  }
}

function acquired({ lines }: WorkerProcess): LogLine | undefined {
  return lines.findLast(({ msg }) => msg === 'worker ID acquired');
}
