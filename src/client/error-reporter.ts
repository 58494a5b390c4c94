import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';

const REPORT_EVERY_MS = 10_000;
/** Causes are few; only a faulty peer could invent more. */
const MAX_CAUSES = 100;

/** Reports each cause at most once in 10 s: with thousands of requests in progress, an outage causes thousands of errors. */
export class ErrorReporter {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #pass: (error: Error) => void;
  readonly #reportedMs = new Map<string, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, pass: (error: Error) => void) {
    this.#runtime = runtime;
    this.#pass = pass;
  }

  report(error: Error): void {
    const cause = causeOf(error);
    const nowMs = this.#runtime.monotonicMs();
    const lastMs = this.#reportedMs.get(cause);
    if (lastMs !== undefined && nowMs - lastMs < REPORT_EVERY_MS) return;
    if (this.#reportedMs.size >= MAX_CAUSES) this.#reportedMs.clear();
    this.#reportedMs.set(cause, nowMs);
    this.#pass(error);
  }
}

function causeOf(error: Error): string {
  const code = error instanceof IdallocError ? error.code : error.name;
  return `${code} ${kafkaErrorCode(error) ?? ''}`;
}
