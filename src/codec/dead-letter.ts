import type { RecordHeaders } from './request-headers.ts';

/** The headers of a dead letter that describe its record, named as in Spring Kafka. */
export const DEAD_LETTER_HEADERS = {
  topic: 'kafka_dlt-original-topic',
  partition: 'kafka_dlt-original-partition',
  offset: 'kafka_dlt-original-offset',
  timestamp: 'kafka_dlt-original-timestamp',
  code: 'kafka_dlt-exception-fqcn',
  message: 'kafka_dlt-exception-message',
} as const;
/** The letter is without its record, because the dead-letter topic rejected it. */
export const RECORD_LEFT_OUT = 'idalloc-record-left-out';
/** How often a request was sent again from the dead-letter topic: decimal digits. */
export const RESENT = 'idalloc-resent';

const MAX_TEXT_BYTES = 16 * 1024;

/** Where a dead letter's record was, and the reason. Fields that are missing or malformed are undefined. */
export interface DeadLetterNote {
  readonly topic: string | undefined;
  readonly partition: number | undefined;
  readonly offset: number | undefined;
  /** -1 if the record had no valid timestamp. */
  readonly timestampMs: number | undefined;
  readonly code: string | undefined;
  readonly message: string | undefined;
  readonly recordLeftOut: boolean;
  /** How often the request was sent again; undefined for a malformed header. */
  readonly resent: number | undefined;
  /** The record's own headers. */
  readonly headers: RecordHeaders;
}

/** Reads a dead letter's headers. Never throws. */
export function readDeadLetterNote(headers: RecordHeaders): DeadLetterNote {
  const names = new Set<string>([...Object.values(DEAD_LETTER_HEADERS), RECORD_LEFT_OUT]);
  const own: Record<string, RecordHeaders[string]> = Object.create(null);
  for (const [name, value] of Object.entries(headers)) if (!names.has(name)) own[name] = value;
  return {
    topic: text(headers, DEAD_LETTER_HEADERS.topic),
    partition: whole(single(headers, DEAD_LETTER_HEADERS.partition), 4),
    offset: whole(single(headers, DEAD_LETTER_HEADERS.offset), 8),
    timestampMs: number(single(headers, DEAD_LETTER_HEADERS.timestamp), 8),
    code: text(headers, DEAD_LETTER_HEADERS.code),
    message: text(headers, DEAD_LETTER_HEADERS.message),
    recordLeftOut: Object.hasOwn(headers, RECORD_LEFT_OUT),
    resent: resentOf(headers),
    headers: own,
  };
}

function resentOf(headers: RecordHeaders): number | undefined {
  if (!Object.hasOwn(headers, RESENT)) return 0;
  const digits = text(headers, RESENT) ?? '';
  return /^[0-9]{1,9}$/.test(digits) ? Number(digits) : undefined;
}

function text(headers: RecordHeaders, name: string): string | undefined {
  return single(headers, name)?.subarray(0, MAX_TEXT_BYTES).toString('utf8');
}

function single(headers: RecordHeaders, name: string): Buffer | undefined {
  const value = Object.hasOwn(headers, name) ? headers[name] : undefined;
  if (typeof value === 'string') return Buffer.from(value, 'utf8');
  return Buffer.isBuffer(value) ? value : undefined;
}

function whole(bytes: Buffer | undefined, length: 4 | 8): number | undefined {
  const value = number(bytes, length);
  return value !== undefined && value >= 0 ? value : undefined;
}

function number(bytes: Buffer | undefined, length: 4 | 8): number | undefined {
  if (bytes?.length !== length) return undefined;
  const value = length === 4 ? bytes.readInt32BE(0) : Number(bytes.readBigInt64BE(0));
  return Number.isSafeInteger(value) ? value : undefined;
}
