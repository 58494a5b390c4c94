import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { ROOT } from '../../ops/dev/paths.ts';
import { patch } from '../sim/mutant.ts';
import { SEED_VARIABLE } from '../support/seeded.ts';
import type { Order, Outcome } from './driver.ts';
import type { Play, Played } from './sim-thread.ts';
import { isSimulated, type Sources, testsOf } from './sources.ts';

/** A file of tests that takes longer hangs; so does a seed. */
const TESTS_LIMIT_MS = 90_000;
const SEED_LIMIT_MS = 60_000;
const DRIVER = fileURLToPath(new URL('./driver.ts', import.meta.url));

/** Who has noticed a mutation, if anybody, and what has run. */
export interface Verdict {
  readonly by: 'unit' | 'simulator' | undefined;
  /** The test, or the check with its seed; of a survivor, what has passed. */
  readonly what: string;
}

/**
 * Judges mutations, one after the other: by the unit tests that cover the file, nearest first, and if all pass by the
 * simulator, where it loads the file. What hangs counts as noticed.
 */
export class Judge implements AsyncDisposable {
  readonly #sources: Sources;
  readonly #onUnsound: (what: string) => void;
  readonly #seed: number;
  readonly #seeds: number;
  /** Whether files of tests pass without a mutation. */
  readonly #sound = new Map<string, boolean>();
  /** For the driver, which can't remove its files when it is killed. */
  readonly #temporary = mkdtempSync(join(tmpdir(), 'idalloc-mutate-'));
  #driver: ChildProcess | undefined;

  /**
   * `seed`: of random values of the unit tests. `seeds`: how many the simulator plays. `onUnsound` is called with a
   * sentence for each file of tests that fails by itself.
   */
  constructor(
    sources: Sources,
    options: { readonly seed: number; readonly seeds: number },
    onUnsound: (what: string) => void,
  ) {
    this.#sources = sources;
    this.#onUnsound = onUnsound;
    this.#seed = options.seed;
    this.#seeds = options.seeds;
  }

  /** Judges one file with another text. A file of tests that fails without the mutation, too, is left out. */
  async judge(file: string, text: string): Promise<Verdict> {
    let passes = 0;
    for (const test of testsOf(file, this.#sources)) {
      if (this.#sound.get(test) === false) continue;
      const failure = await this.#failureOf(test, { file, text });
      if (failure !== undefined && (await this.#isSound(test))) return { by: 'unit', what: `${test} ${failure}` };
      if (failure === undefined) passes += 1;
    }
    const passed = `${passes} files of tests`;
    if (this.#seeds === 0 || !isSimulated(file, this.#sources)) return { by: undefined, what: `${passed}, no seed` };
    const failed = await this.#simulate(file, text);
    return failed === undefined
      ? { by: undefined, what: `${passed} and ${this.#seeds} seeds` }
      : { by: 'simulator', what: failed };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const driver = this.#driver;
    if (driver?.connected) {
      const ended = once(driver, 'exit');
      driver.disconnect();
      await ended;
    }
    rmSync(this.#temporary, { recursive: true, force: true });
  }

  async #isSound(test: string): Promise<boolean> {
    const known = this.#sound.get(test);
    if (known !== undefined) return known;
    const failure = await this.#failureOf(test, undefined);
    if (failure !== undefined) this.#onUnsound(`${test} fails without a mistake, so it is left out: ${failure}`);
    this.#sound.set(test, failure === undefined);
    return failure === undefined;
  }

  /** The first failure of a file of tests; undefined if it passes. */
  async #failureOf(test: string, replaced: { file: string; text: string } | undefined): Promise<string | undefined> {
    this.#driver ??= await this.#start();
    const order: Order = {
      test: join(ROOT, test),
      replaced: replaced && { file: join(ROOT, replaced.file), text: replaced.text },
    };
    this.#driver.send(order);
    const answer = await answerOf<Outcome>(this.#driver, TESTS_LIMIT_MS);
    if (answer !== undefined) return answer.failure;
    await this.#kill();
    return `does not end within ${TESTS_LIMIT_MS / 1_000} s`;
  }

  async #start(): Promise<ChildProcess> {
    const driver = fork(DRIVER, {
      detached: true,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: { ...process.env, [SEED_VARIABLE]: String(this.#seed), TMPDIR: this.#temporary },
    });
    if ((await answerOf(driver, TESTS_LIMIT_MS)) !== 'ready') throw new Error('the runner of tests does not start');
    return driver;
  }

  /** Ends the driver with its workers, one of which hangs. */
  async #kill(): Promise<void> {
    const driver = this.#driver;
    this.#driver = undefined;
    if (driver?.pid === undefined || driver.exitCode !== null || driver.signalCode !== null) return;
    const ended = once(driver, 'exit');
    process.kill(-driver.pid, 'SIGKILL');
    await ended;
  }

  /** The check that failed first, with its seed; undefined if all passed. */
  async #simulate(file: string, text: string): Promise<string | undefined> {
    const from = this.#sources.texts.get(file) ?? '';
    const play: Play = { mutant: { name: file, patches: [patch(file, from, text)] }, seeds: this.#seeds };
    const thread = new Worker(new URL('./sim-thread.ts', import.meta.url), { workerData: play });
    const { promise, resolve } = Promise.withResolvers<string | undefined>();
    let seed = 1;
    const timer = setTimeout(
      () => resolve(`seed ${seed} does not end within ${SEED_LIMIT_MS / 1_000} s`),
      SEED_LIMIT_MS,
    );
    thread.on('message', ({ failed }: Played) => {
      if (failed !== undefined) resolve(`seed ${seed}, "${failed}"`);
      else if (seed === this.#seeds) resolve(undefined);
      seed += 1;
      timer.refresh();
    });
    thread.on('error', (error) => resolve(`seed ${seed} throws: ${error instanceof Error ? error.message : error}`));
    thread.on('exit', (code) => resolve(`seed ${seed} ends the thread with code ${code}`));
    return await promise.finally(async () => {
      clearTimeout(timer);
      await thread.terminate();
    });
  }
}

/** The next message of the driver; undefined if none has come in time. Throws if it ends first. */
async function answerOf<T>(driver: ChildProcess, limitMs: number): Promise<T | undefined> {
  const over = new AbortController();
  const { signal } = over;
  const message = once(driver, 'message', { signal });
  const exit = once(driver, 'exit', { signal }).then(([code]) => {
    throw new Error(`the runner of tests ended with code ${code}`);
  });
  const late = sleep(limitMs, [undefined], { signal });
  try {
    const [answer] = await Promise.race([message, exit, late]);
    return answer as T | undefined;
  } finally {
    over.abort();
    await Promise.allSettled([message, exit, late]);
  }
}
