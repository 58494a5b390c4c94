import type { Runtime } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import { describeError } from '../errors.ts';
import type { EndEvents, Loss } from '../ledger/ends.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';

export interface EndReportsOptions {
  readonly runtime: Pick<Runtime, 'monotonicMs'>;
  readonly log: Log;
  readonly lines: ThrottledLog;
  readonly metrics: Pick<Metrics, 'addLedgerLoss' | 'addError'>;
}

const LOG_EVERY_MS = 60_000;

/** Reports what becomes of the heads of ledger partitions in etcd. */
export class EndReports implements EndEvents {
  readonly #options: EndReportsOptions;
  #failingSinceMs: number | undefined;

  constructor(options: EndReportsOptions) {
    this.#options = options;
  }

  /** For how long etcd has confirmed none of the raises that were due; 0 if the last one was confirmed. */
  get failingMs(): number {
    return this.#failingSinceMs === undefined ? 0 : this.#options.runtime.monotonicMs() - this.#failingSinceMs;
  }

  raised(outcome: 'done' | 'refused' | 'failed', error?: unknown): void {
    const { runtime, lines } = this.#options;
    if (outcome !== 'failed') this.#failingSinceMs = undefined;
    else {
      this.#failingSinceMs ??= runtime.monotonicMs();
      const fields = { error: describeError(error) };
      const what = 'etcd does not confirm how far the ledger partitions have gone';
      lines('warn', fields, what, { everyMs: LOG_EVERY_MS });
    }
  }

  lost(partition: number, { end, through }: Loss): void {
    const { log, metrics } = this.#options;
    metrics.addLedgerLoss();
    metrics.addError('LEDGER_TRUNCATED');
    const fields = { partition, code: 'LEDGER_TRUNCATED', end, through };
    log.error(fields, 'a ledger partition has lost its tail: unknown requests from before get FORGOTTEN');
  }
}
