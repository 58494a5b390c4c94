import type { Runtime } from '../async/runtime.ts';
import { Throttle } from '../async/throttle.ts';
import { IdallocError } from '../errors.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';

const REPORT_EVERY_MS = 10_000;

/** Reports each cause at most once in 10 s: with thousands of requests in progress, an outage causes thousands of errors. */
export class ErrorReporter {
  readonly #pass: (error: Error) => void;
  readonly #throttle: Throttle;

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, pass: (error: Error) => void) {
    this.#pass = pass;
    this.#throttle = new Throttle(runtime, REPORT_EVERY_MS);
  }

  report(error: Error): void {
    if (this.#throttle.passes(causeOf(error))) this.#pass(error);
  }
}

function causeOf(error: Error): string {
  const code = error instanceof IdallocError ? error.code : error.name;
  return `${code} ${kafkaErrorCode(error) ?? ''}`;
}
