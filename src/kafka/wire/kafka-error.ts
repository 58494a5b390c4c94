import type { KnownErrorCode } from './error-codes.ts';

/** Why a call failed: a code of the table, or Kafka's name of another error as kafkajs spells it. */
export type KafkaErrorCode = KnownErrorCode | (string & {});

/** A call to Kafka that failed. */
export class KafkaError extends Error {
  readonly errorCode: KafkaErrorCode;
  /** The node ID of the broker that answered with it, where the caller needs that. */
  declare readonly node?: number;

  constructor(errorCode: KafkaErrorCode, message: string, options: ErrorOptions & { readonly node?: number } = {}) {
    super(message, options);
    this.name = 'KafkaError';
    this.errorCode = errorCode;
    if (options.node !== undefined) this.node = options.node;
  }
}

const MAX_DEPTH = 5;

/** The code of a KafkaError, searched along the error's causes; undefined for any other error. */
export function kafkaErrorCode(error: unknown): KafkaErrorCode | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    if (at instanceof KafkaError) return at.errorCode;
  }
  return undefined;
}
