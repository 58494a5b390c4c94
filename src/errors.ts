/**
 * Every code that a user, an operator or a log reader can see. The set is closed: an error without a code is a bug.
 *
 * retryable: the same call may succeed later without any change.
 * deadLetter: the request can't be served as it stands, so its record goes to the dead-letter topic.
 */
export const ERRORS = {
  // the request
  MALFORMED_REQUEST: { retryable: false, deadLetter: true },
  UNKNOWN_SCHEMA: { retryable: false, deadLetter: true },
  INVALID_COUNT: { retryable: false, deadLetter: true },
  INVALID_CORRELATION_ID: { retryable: false, deadLetter: true },
  INVALID_REPLY_TOPIC: { retryable: false, deadLetter: true },
  SCHEMA_REGISTRY_UNAVAILABLE: { retryable: true, deadLetter: true },
  REPLY_UNDELIVERABLE: { retryable: false, deadLetter: true },
  MISROUTED: { retryable: false, deadLetter: true },
  CONFLICT: { retryable: false, deadLetter: false },
  EXPIRED: { retryable: false, deadLetter: false },
  FORGOTTEN: { retryable: false, deadLetter: false },
  ANSWERED_BEFORE: { retryable: false, deadLetter: false },
  QUOTA_EXCEEDED: { retryable: true, deadLetter: false },
  UNKNOWN_SEQUENCE: { retryable: false, deadLetter: false },
  SEQUENCE_CLOSED: { retryable: false, deadLetter: false },
  SEQUENCE_EXHAUSTED: { retryable: false, deadLetter: false },
  SEQUENCE_STOPPED: { retryable: false, deadLetter: false },
  OVERTAKEN: { retryable: true, deadLetter: false },
  // identity
  NAMESPACE_MISMATCH: { retryable: false, deadLetter: false },
  NAMESPACE_DAMAGED: { retryable: false, deadLetter: false },
  CLUSTER_CHANGED: { retryable: true, deadLetter: false },
  RESTORED: { retryable: true, deadLetter: false },
  REBUILD_REFUSED: { retryable: false, deadLetter: false },
  POOL_EXHAUSTED: { retryable: true, deadLetter: false },
  ALL_CEILINGS_AHEAD: { retryable: true, deadLetter: false },
  NO_IDENTITY: { retryable: true, deadLetter: false },
  LEASE_SUSPENDED: { retryable: true, deadLetter: false },
  LEASE_LOST: { retryable: true, deadLetter: false },
  PROCESS_PAUSED: { retryable: true, deadLetter: false },
  ETCD_UNAVAILABLE: { retryable: true, deadLetter: false },
  ETCD_REFUSED: { retryable: true, deadLetter: false },
  // clock
  CLOCK_BACKWARD: { retryable: true, deadLetter: false },
  CLOCK_FORWARD: { retryable: true, deadLetter: false },
  CLOCK_FROZEN: { retryable: true, deadLetter: false },
  CLOCK_DRIFT: { retryable: true, deadLetter: false },
  CLOCK_AHEAD: { retryable: true, deadLetter: false },
  CLOCK_BEHIND: { retryable: true, deadLetter: false },
  // allocation
  RESERVATION_EXHAUSTED: { retryable: true, deadLetter: false },
  LAYOUT_EXHAUSTED: { retryable: false, deadLetter: false },
  OVERLOADED: { retryable: true, deadLetter: false },
  // ledger
  APPEND_UNANSWERED: { retryable: true, deadLetter: false },
  LEDGER_UNANSWERED: { retryable: true, deadLetter: false },
  LEDGER_TRUNCATED: { retryable: true, deadLetter: false },
  LEDGER_COPIED: { retryable: false, deadLetter: false },
  LEDGER_UNREADABLE: { retryable: false, deadLetter: false },
  REQUESTS_RECREATED: { retryable: false, deadLetter: false },
  LEDGER_WEAK: { retryable: false, deadLetter: false },
  LEDGER_RETENTION: { retryable: false, deadLetter: false },
  INDEX_RESTORING: { retryable: true, deadLetter: false },
  INDEX_LOCKED: { retryable: false, deadLetter: false },
  INDEX_UNUSABLE: { retryable: false, deadLetter: false },
  // client
  BUFFER_EMPTY: { retryable: true, deadLetter: false },
  QUEUE_FULL: { retryable: true, deadLetter: false },
  CLIENT_CLOSED: { retryable: false, deadLetter: false },
  INVALID_ID: { retryable: false, deadLetter: false },
  HOOK_FAILED: { retryable: false, deadLetter: false },
  /** A worker's code that this version does not know. */
  REFUSED: { retryable: false, deadLetter: false },
  // process
  CONFIG_INVALID: { retryable: false, deadLetter: false },
  SCHEMA_INCOMPATIBLE: { retryable: false, deadLetter: false },
  TOPIC_INVALID: { retryable: false, deadLetter: false },
  KAFKA_UNAVAILABLE: { retryable: true, deadLetter: false },
  INSTANCE_FENCED: { retryable: false, deadLetter: false },
  NO_REPLY: { retryable: true, deadLetter: false },
  MALFORMED_REPLY: { retryable: false, deadLetter: false },
  // the command line
  NOT_CONFIRMED: { retryable: false, deadLetter: false },
  NOT_FOUND: { retryable: false, deadLetter: false },
  GROUP_ACTIVE: { retryable: true, deadLetter: false },
  REPLAY_REFUSED: { retryable: true, deadLetter: false },
  RESEND_REFUSED: { retryable: false, deadLetter: false },
  STOPPING: { retryable: true, deadLetter: false },
} as const satisfies Record<string, { retryable: boolean; deadLetter: boolean }>;

export type ErrorCode = keyof typeof ERRORS;

/** What an error is about. */
export interface ErrorDetails {
  /** Of the request that failed, as its caller gave it. A retry with the same one never yields a second batch. */
  readonly correlationId?: string | Uint8Array | undefined;
  /** The number of IDs or numbers that were asked for. */
  readonly count?: number | undefined;
  /** When a retry may succeed, if whoever refused knows that. */
  readonly retryAfterMs?: number | undefined;
}

/** An error with a code of the closed set; the message names the cause and, if there is one, the remedy. */
export class IdallocError extends Error {
  readonly code: ErrorCode;
  // Without an initial value, so that an error has only the fields that are known.
  declare readonly correlationId?: string | Uint8Array;
  declare readonly count?: number;
  declare readonly retryAfterMs?: number;

  constructor(code: ErrorCode, message: string, options: { readonly cause?: unknown } & ErrorDetails = {}) {
    super(message, options);
    this.name = 'IdallocError';
    this.code = code;
    addDetails(this, options);
  }

  get retryable(): boolean {
    return ERRORS[this.code].retryable;
  }

  /**
   * For JSON and logs. A correlation ID that is not printable text is `0x` and its bytes, as in the workers' messages.
   */
  toJSON(): Record<string, unknown> {
    const { name, code, message, retryable, correlationId } = this;
    const own = { ...(this as object) }; // the fields that are known
    const text = typeof correlationId === 'object' ? { correlationId: textOfBytes(correlationId) } : {};
    return { name, code, message, retryable, ...own, ...text };
  }
}

/** Adds what an error is about, as far as it does not have it yet. */
export function addDetails(error: IdallocError, details: ErrorDetails): void {
  for (const name of ['correlationId', 'count', 'retryAfterMs'] as const) {
    const detail = details[name];
    if (detail !== undefined && error[name] === undefined) Object.assign(error, { [name]: detail });
  }
}

/** Without Buffer, for browsers. */
function textOfBytes(bytes: Uint8Array): string {
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
  if (/^[\x21-\x7e]+$/.test(text)) return text;
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

/** What OpenSSL and gRPC have at the end of their texts: a line break, and a note even if it is empty. */
const NOTHING = /(\. Resolution note:)?\s*$/;

/** The message of anything thrown, with its code if it has one. */
export function describeError(error: unknown): string {
  if (error instanceof IdallocError) return `${error.code}: ${error.message}`;
  return textOf(error).trim().replace(NOTHING, '');
}

/** Anything may be thrown, even what can't be written as text. */
function textOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return 'an error without a text';
  }
}

/** What `read` returns; undefined if it throws an IdallocError, as decoders do for bytes that are not valid. */
export function unlessInvalid<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof IdallocError) return undefined;
    throw error;
  }
}
