import type { Runtime, Timer } from '../async/runtime.ts';
import type { Log } from '../log.ts';
import type { KeptCopy } from '../pipeline/partition-state.ts';

export interface RestoreLogOptions {
  readonly runtime: Pick<Runtime, 'schedule' | 'monotonicMs'>;
  readonly log: Log;
  readonly copies: () => readonly KeptCopy[];
}

const INTERVAL_MS = 10_000;

/** Logs the progress of long restores: a line for each partition every 10 s. */
export class RestoreLog implements Disposable {
  readonly #options: RestoreLogOptions;
  /** The end of each restoring copy at the last check. */
  #seen = new Map<number, number>();
  #timer: Timer | undefined;

  constructor(options: RestoreLogOptions) {
    this.#options = options;
    this.#schedule();
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }

  #schedule(): void {
    this.#timer = this.#options.runtime.schedule(INTERVAL_MS, () => {
      this.#look();
      this.#schedule();
    });
  }

  #look(): void {
    const { copies, log } = this.#options;
    const seen = new Map<number, number>();
    for (const { partition, state, end, logEnd } of copies()) {
      // A complete copy that waits to be compared with the log restores nothing.
      if (state !== 'restoring' || end >= logEnd) continue;
      seen.set(partition, end);
      const before = this.#seen.get(partition);
      if (before === undefined) continue;
      const entriesPerSecond = Math.round(((end - before) / INTERVAL_MS) * 1_000);
      log.info({ partition, end, logEnd, entriesPerSecond }, 'restoring a copy of a ledger partition');
    }
    this.#seen = seen;
  }
}
