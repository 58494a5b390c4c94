import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import type { UnreadyReason } from '../core/gate.ts';
import type { Log } from '../log.ts';

export interface ReadinessLogOptions {
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly log: Pick<Log, 'info'>;
  /** Why the worker is not ready, for programs and for people; no reason while it is. */
  readonly readiness: () => { readonly reason: UnreadyReason | undefined; readonly detail: string | undefined };
}

const LOOK_MS = 1_000;

/**
 * Logs that a worker which was ready is not any more, and that it is again: the gate alone does not show that, since
 * brokers may be silent while it is open. The first time is logged where the worker begins to serve.
 */
export class ReadinessLog implements Disposable {
  readonly #options: ReadinessLogOptions;
  readonly #looking: Disposable;
  #wasReady = false;
  /** The reason that was logged, and since when the worker has not been ready. */
  #unready: { readonly reason: UnreadyReason; readonly sinceMs: number } | undefined;

  constructor(options: ReadinessLogOptions) {
    this.#options = options;
    this.#looking = every(options.runtime, LOOK_MS, () => this.#look());
  }

  [Symbol.dispose](): void {
    this.#looking[Symbol.dispose]();
  }

  #look(): void {
    const { runtime, log, readiness } = this.#options;
    const { reason, detail } = readiness();
    const nowMs = runtime.monotonicMs();
    if (reason === undefined) {
      if (this.#unready !== undefined) log.info({ afterMs: Math.round(nowMs - this.#unready.sinceMs) }, 'ready again');
      this.#unready = undefined;
      this.#wasReady = true;
    } else if (this.#wasReady && reason !== this.#unready?.reason && reason !== 'STOPPING') {
      log.info({ reason, error: detail }, 'not ready');
      this.#unready = { reason, sinceMs: this.#unready?.sinceMs ?? nowMs };
    }
  }
}
