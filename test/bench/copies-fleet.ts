import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { idFor } from '../support/home.ts';
import type { Realm } from '../support/realm.ts';
import { completeCopies, copiesOf, isJoin, type Share, shareIn, shareOf } from '../support/shares.ts';
import { unique } from '../support/unique.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

type Env = Readonly<Record<string, string>>;

/** Memory and disk of a worker whose copies are complete. */
export interface Cost {
  readonly copies: number;
  readonly rss_bytes: number;
  /** Used heap and the buffers outside it, after a garbage collection. */
  readonly held_bytes: number;
  /** Size of the index directory, the write-ahead log included. */
  readonly disk_bytes: number;
}

/**
 * A take-over of a killed worker's partitions; times in ms since the kill, the wait for its session to expire included.
 */
export interface TakenOver {
  readonly partitions: number;
  /** When another worker was first assigned one of the partitions. */
  readonly joined_ms: number;
  readonly first_answer_ms: number;
  /** When the last of the partitions had answered a request. */
  readonly last_answer_ms: number;
}

const SETTLE_TIMEOUT_MS = 1_800_000;
const POLL_MS = 100;
/** Longer than a garbage collection takes. */
const COLLECT_MS = 2_000;
const COLLECTING = { NODE_OPTIONS: `--expose-gc --import=${new URL('collect-on-signal.ts', import.meta.url)}` };

/** What one worker after another uses in a fleet: a directory that outlives the worker's process. */
interface Slot {
  readonly directory: string;
  worker: WorkerProcess;
}

/** Workers that share the partitions of a realm. */
export class CopiesFleet implements AsyncDisposable {
  readonly #realm: Realm;
  readonly #env: Env;
  readonly #slots: Slot[] = [];
  readonly #directories: string[] = [];

  constructor(realm: Realm, env: Env = {}) {
    this.#realm = realm;
    this.#env = { ...COLLECTING, ...env };
  }

  get #partitions(): number {
    return Number(this.#realm.env.REQUEST_PARTITIONS);
  }

  get workers(): readonly WorkerProcess[] {
    return this.#slots.map(({ worker }) => worker);
  }

  /** Starts more workers, each with an empty index directory. */
  start(count: number): void {
    for (let i = 0; i < count; i += 1) {
      const directory = mkdtempSync(join(tmpdir(), 'idalloc-copies-'));
      this.#directories.push(directory);
      this.#slots.push({ directory, worker: this.#spawn(directory) });
    }
  }

  async restart(at: number): Promise<void> {
    const slot = this.#slots[at] as Slot;
    await slot.worker.stop();
    slot.worker = this.#spawn(slot.directory);
  }

  /** Stops the worker that was started last. */
  async stopLast(): Promise<void> {
    await this.#slots.pop()?.worker.stop();
  }

  /** The owner of each partition, as the number of its slot. */
  owners(): ReadonlyMap<number, number> {
    return new Map(
      this.workers.flatMap((worker, at) => worker.partitions().map((partition) => [partition, at] as const)),
    );
  }

  /** Resolves when every worker has a share of the partitions, and all copies of its share are complete. */
  complete(): Promise<void> {
    return this.#until('complete copies', async () => (await this.#found()).isComplete);
  }

  /** Resolves when the copies are complete, the shares balanced and no warm-up is left. */
  settled(): Promise<void> {
    return this.#until('balanced shares with complete copies', async () => {
      const { isComplete, shares } = await this.#found();
      const counts = shares.map(({ partitions }) => partitions.length);
      const isBalanced = Math.max(...counts) - Math.min(...counts) <= 1;
      return isComplete && isBalanced && shares.every(({ warmups }) => warmups.length === 0);
    });
  }

  async #found(): Promise<{ readonly isComplete: boolean; readonly shares: readonly Share[] }> {
    const shares = this.workers.map(shareOf);
    const dealt = shares.reduce((sum, { partitions }) => sum + partitions.length, 0);
    if (dealt !== this.#partitions || !this.workers.every(({ lines }) => lines.some(isJoin))) {
      return { isComplete: false, shares };
    }
    const copies = await Promise.all(this.workers.map(copiesOf));
    const isComplete = shares.every((share, at) => {
      return [...completeCopies(share)].every(([partition, copy]) =>
        isDeepStrictEqual(copies[at]?.get(partition), copy),
      );
    });
    return { isComplete, shares };
  }

  async #until(what: string, isDone: () => Promise<boolean>): Promise<void> {
    const deadlineMs = performance.now() + SETTLE_TIMEOUT_MS;
    while (!(await isDone())) {
      if (performance.now() > deadlineMs)
        throw new Error(`the workers did not reach ${what} within ${SETTLE_TIMEOUT_MS / 60_000} minutes`);
      await pause(POLL_MS);
    }
  }

  /** The cost of each worker after a garbage collection, once it holds the copies of its share and no others. */
  async costs(): Promise<readonly Cost[]> {
    await this.#until('the copies of their shares and no others', async () => {
      const copies = await Promise.all(this.workers.map(copiesOf));
      return copies.every(({ size }, at) => size === completeCopies(shareOf(this.workers[at] as WorkerProcess)).size);
    });
    for (const worker of this.workers) worker.kill('SIGUSR2');
    await pause(COLLECT_MS);
    return Promise.all(
      this.#slots.map(async ({ worker, directory }) => {
        const [copies, rss, heap, external] = await Promise.all([
          copiesOf(worker),
          worker.metric('process_resident_memory_bytes'),
          worker.metric('nodejs_heap_size_used_bytes'),
          worker.metric('nodejs_external_memory_bytes'),
        ]);
        return { copies: copies.size, rss_bytes: rss, held_bytes: heap + external, disk_bytes: sizeOf(directory) };
      }),
    );
  }

  /**
   * Kills the first worker with SIGKILL, and waits until the others have answered a request on each of its partitions.
   */
  async takeOver(): Promise<TakenOver> {
    const [{ worker: dead }, ...others] = this.#slots.splice(0) as [Slot, ...Slot[]];
    this.#slots.push(...others);
    const lost = dead.partitions();
    const replies = await this.#realm.follow();
    const from = others.map(({ worker }) => worker.lines.length);
    dead.kill('SIGKILL');
    const killedMs = performance.now();
    const requests = lost.map((partition) => idFor(`taken-${unique()}`, partition, this.#partitions));
    await this.#realm.send(requests.map((correlationId) => ({ correlationId, count: 1 })));
    const answeredMs = new Map<string, number>();
    let seenTo = 0;
    await replies.until(
      "answers for the killed worker's partitions",
      (seen) => {
        for (; seenTo < seen.length; seenTo += 1)
          answeredMs.set(String(seen[seenTo]?.message.key), seen[seenTo]?.atMs ?? 0);
        return requests.every((id) => answeredMs.has(id));
      },
      SETTLE_TIMEOUT_MS,
    );
    const times = requests.map((id) => (answeredMs.get(id) as number) - killedMs);
    const takes = (line: LogLine) => isJoin(line) && shareIn(line).partitions.some((one) => lost.includes(one));
    const joins = others.flatMap(({ worker }, i) => worker.lines.slice(from[i]).filter(takes).slice(0, 1));
    const joinedMs = Math.min(...joins.map(({ seenMs }) => seenMs)) - killedMs;
    return {
      partitions: lost.length,
      joined_ms: Math.round(joinedMs),
      first_answer_ms: Math.round(Math.min(...times)),
      last_answer_ms: Math.round(Math.max(...times)),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.stop()));
    for (const directory of this.#directories) rmSync(directory, { recursive: true, force: true });
  }

  #spawn(directory: string): WorkerProcess {
    return this.#realm.worker({ ...this.#env, INDEX_DIR: directory });
  }
}

function sizeOf(directory: string): number {
  const files = readdirSync(directory).map((name) => statSync(join(directory, name)).size);
  return files.reduce((sum, size) => sum + size, 0);
}
