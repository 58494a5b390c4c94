import { Mutex } from '../async/mutex.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';
import type { LedgerCopies } from '../ledger/ledger-ports.ts';

export interface CopiesOptions {
  readonly index: Pick<LedgerCopies, 'held' | 'load' | 'drop'>;
  readonly runtime: Pick<Runtime, 'schedule' | 'nextTurn'>;
  /** How long an unwanted copy is kept, so that a partition that comes back soon need not be restored. */
  readonly lingerMs: number;
  /** The copy is open: reading may continue. */
  readonly onOpened: (partition: number) => void;
  /** The copy is about to be deleted and must not be queried any more. */
  readonly onDropped: (partition: number) => void;
  /** The disk failed. */
  readonly onError: (error: unknown) => void;
}

/**
 * The copies of ledger partitions that this worker keeps.
 *
 *   absent  ──wanted──▶ opening ──loaded──▶ open ──not wanted for lingerMs──▶ dropping ──▶ absent
 *   dropping ──wanted──▶ opening, once it is deleted completely
 *
 * Opening and dropping run in small steps, one partition at a time, so that other work gets its turn.
 */
export class KeptCopies implements Disposable {
  readonly #options: CopiesOptions;
  /** Each copy has a timer while it is not wanted. */
  readonly #copies = new Map<number, Timer | undefined>();
  readonly #mutex = new Mutex();
  #isOver = false;

  constructor(options: CopiesOptions) {
    this.#options = options;
  }

  /** Opens all copies on disk, and keeps them until `want` is called. Resolves when all are open. */
  async openHeld(): Promise<void> {
    for (const partition of this.#options.index.held()) this.#open(partition);
    await this.#mutex.settled;
  }

  /** Keeps copies of these partitions, and drops the others after lingerMs. */
  want(partitions: readonly number[]): void {
    const wanted = new Set(partitions);
    for (const partition of wanted) this.#open(partition);
    const { runtime, lingerMs } = this.#options;
    for (const [partition, lingering] of this.#copies) {
      if (wanted.has(partition)) this.#keep(partition);
      else this.#copies.set(partition, lingering ?? runtime.schedule(lingerMs, () => this.#drop(partition)));
    }
  }

  /** Keeps all current copies: they were reported to the group, which assigns partitions by them. */
  keepAll(): void {
    for (const partition of this.#copies.keys()) this.#keep(partition);
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const lingering of this.#copies.values()) lingering?.cancel();
  }

  #keep(partition: number): void {
    this.#copies.get(partition)?.cancel();
    this.#copies.set(partition, undefined);
  }

  #open(partition: number): void {
    if (this.#copies.has(partition)) return;
    this.#copies.set(partition, undefined);
    this.#enqueue(async () => {
      await this.#stepwise(() => this.#options.index.load(partition));
      if (!this.#isOver) this.#options.onOpened(partition);
    });
  }

  #drop(partition: number): void {
    this.#copies.delete(partition);
    this.#enqueue(async () => {
      if (!this.#isOver) this.#options.onDropped(partition);
      await this.#stepwise(() => this.#options.index.drop(partition));
    });
  }

  #enqueue(work: () => Promise<void>): void {
    this.#mutex.run(work).catch((error: unknown) => this.#options.onError(error));
  }

  async #stepwise(step: () => boolean): Promise<void> {
    while (!this.#isOver && this.#hasMore(step)) await this.#options.runtime.nextTurn();
  }

  /** A failed store is replaced by an empty one, where the work starts again; that does not fail the same way. */
  #hasMore(step: () => boolean): boolean {
    try {
      return step();
    } catch (error) {
      if (error instanceof IdallocError && error.code === 'INDEX_RESTORING') return true;
      throw error;
    }
  }
}
