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
/** The headers of a letter for several records of a partition, which contains none of them. */
export const RANGE_HEADERS = {
  /** Their offsets as rising runs: `17-40,43`. */
  offsets: 'idalloc-range-offsets',
  /** How many there are: decimal digits. */
  count: 'idalloc-range-count',
} as const;
/** The letter is without its record, because that is too long, or the dead-letter topic rejected it. */
export const RECORD_LEFT_OUT = 'idalloc-record-left-out';
/** How often a request was sent again from the dead-letter topic: decimal digits. */
export const RESENT = 'idalloc-resent';

const MAX_TEXT_BYTES = 16 * 1024;
/** Workers write ranges of at most 500. */
const MAX_RANGE = 10_000;

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
  /** The letter stands for several records and contains none. */
  readonly isRange: boolean;
  /** The offsets of all records that it stands for, rising. */
  readonly offsets: readonly number[] | undefined;
  /** How often the request was sent again; undefined for a malformed header. */
  readonly resent: number | undefined;
  /** The record's own headers. */
  readonly headers: RecordHeaders;
}

/** Reads a dead letter's headers. Never throws. */
export function readDeadLetterNote(headers: RecordHeaders): DeadLetterNote {
  const names = new Set<string>([
    ...Object.values(DEAD_LETTER_HEADERS),
    ...Object.values(RANGE_HEADERS),
    RECORD_LEFT_OUT,
  ]);
  const own: Record<string, RecordHeaders[string]> = Object.create(null);
  for (const [name, value] of Object.entries(headers)) if (!names.has(name)) own[name] = value;
  const offset = whole(single(headers, DEAD_LETTER_HEADERS.offset), 8);
  const isRange = Object.hasOwn(headers, RANGE_HEADERS.offsets);
  return {
    topic: text(headers, DEAD_LETTER_HEADERS.topic),
    partition: whole(single(headers, DEAD_LETTER_HEADERS.partition), 4),
    offset,
    timestampMs: number(single(headers, DEAD_LETTER_HEADERS.timestamp), 8),
    code: text(headers, DEAD_LETTER_HEADERS.code),
    message: text(headers, DEAD_LETTER_HEADERS.message),
    recordLeftOut: Object.hasOwn(headers, RECORD_LEFT_OUT),
    isRange,
    offsets: isRange ? rangeOf(headers, offset) : offset === undefined ? undefined : [offset],
    resent: resentOf(headers),
    headers: own,
  };
}

/** Rising offsets as runs: `17-40,43`. */
export function runsText(offsets: readonly number[]): string {
  const runs: { first: number; last: number }[] = [];
  for (const offset of offsets) {
    const run = runs.at(-1);
    if (run !== undefined && run.last + 1 === offset) run.last = offset;
    else runs.push({ first: offset, last: offset });
  }
  return runs.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}

/** The offsets of a range letter; undefined unless they rise from that of its record, and are as many as it says. */
function rangeOf(headers: RecordHeaders, from: number | undefined): number[] | undefined {
  const offsets: number[] = [];
  for (const run of (text(headers, RANGE_HEADERS.offsets) ?? '').split(',')) {
    const [, first, last = first] = /^([0-9]{1,16})(?:-([0-9]{1,16}))?$/.exec(run) ?? [];
    const [low, high] = [Number(first), Number(last)];
    const isRising = low > (offsets.at(-1) ?? -1) && high >= low && high <= Number.MAX_SAFE_INTEGER;
    if (!isRising || offsets.length + high - low >= MAX_RANGE) return undefined;
    for (let offset = low; offset <= high; offset += 1) offsets.push(offset);
  }
  const isWhole = offsets[0] === from && text(headers, RANGE_HEADERS.count) === String(offsets.length);
  return isWhole ? offsets : undefined;
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
