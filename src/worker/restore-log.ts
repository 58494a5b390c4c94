import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import type { CopyProgress } from '../ledger/ledger-ports.ts';
import type { Log } from '../log.ts';

/** A copy that this worker keeps, with its partition. */
export type KeptCopy = CopyProgress & { readonly partition: number };

const INTERVAL_MS = 10_000;

/** Logs the progress of long restores: a line for each partition every 10 s. */
export function logRestores(
  runtime: Pick<Runtime, 'schedule'>,
  log: Pick<Log, 'info'>,
  copies: () => readonly KeptCopy[],
): Disposable {
  /** The end of each restoring copy at the last look. */
  let seen = new Map<number, number>();
  return every(runtime, INTERVAL_MS, () => {
    const before = seen;
    // A complete copy that waits to be compared with the log restores nothing.
    const restoring = copies().filter(({ state, end, logEnd }) => state === 'restoring' && end < logEnd);
    seen = new Map(restoring.map(({ partition, end }) => [partition, end]));
    for (const { partition, end, logEnd } of restoring) {
      const from = before.get(partition);
      if (from === undefined) continue;
      const entriesPerSecond = Math.round(((end - from) / INTERVAL_MS) * 1_000);
      log.info({ partition, end, logEnd, entriesPerSecond }, 'restoring a copy of a ledger partition');
    }
  });
}
