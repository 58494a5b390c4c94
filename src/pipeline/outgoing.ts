import { DEAD_LETTER_HEADERS, RANGE_HEADERS, RECORD_LEFT_OUT, runsText } from '../codec/dead-letter.ts';
import { asConfluent, type Framing } from '../codec/framing.ts';
import { idReplyBytes } from '../codec/id-reply.ts';
import type { DecidingEntry } from '../codec/ledger-entry.ts';
import { nestReplyTopic } from '../codec/reply-policy.ts';
import type { ReplyAddress } from '../codec/request.ts';
import { type HeaderNames, type RecordHeaders, replyHeaders, routeHeaders } from '../codec/request-headers.ts';
import { type Bytes, bufferOf } from '../core/slice.ts';
import type { ErrorCode } from '../errors.ts';
import type { Refused } from './decision.ts';
import { type Accepted, isTooLong } from './intake.ts';
import type { JunkLimits } from './junk-limits.ts';
import type { OutgoingRecord, RequestRecord, SchemaIds } from './ports.ts';

/** The settings that all outgoing records of one worker share. */
export interface OutgoingContext {
  readonly names: HeaderNames;
  readonly requestTopic: string;
  readonly deadLetterTopic: string;
  /** Undefined where no registry is configured. */
  readonly schemas?: SchemaIds | undefined;
  /** The layout of this namespace, for replies to describe it; undefined where its name is known to every reader. */
  readonly customLayout?: { readonly fingerprint: string; readonly text: string } | undefined;
}

/**
 * The reply to a request: a pure function of its ledger entry and the request's encoding and framing, so that a replay
 * has the same key and value. The record's timestamp is the entry's append time.
 */
export function batchReply(
  accepted: Accepted,
  entry: DecidingEntry,
  settled: { readonly appendedAtMs: number; readonly replayed: boolean },
  context: OutgoingContext,
): OutgoingRecord {
  const { request } = accepted;
  const { correlation } = accepted;
  const { customLayout, schemas } = context;
  const schemaId = entry.kind === 'batch' ? schemas?.replyId() : schemas?.numbersReplyId();
  const value = inFraming(request.framing, encodeReply(accepted, entry), schemaId);
  const headers = replyHeaders({
    names: context.names,
    correlationId: correlation,
    requestId: request.requestId,
    replayed: settled.replayed,
    layout: isOf(customLayout, entry) ? customLayout?.text : undefined,
    trace: request.trace,
    nest: request.replyTopic === nestReplyTopic(context.requestTopic),
  });
  const { replyTopic: topic, replyPartition } = request;
  const record = { topic, key: correlation, value, headers, timestampMs: settled.appendedAtMs };
  return replyPartition === undefined ? record : { ...record, partition: replyPartition };
}

function encodeReply({ correlation, request }: Accepted, entry: DecidingEntry): Bytes {
  const { encoding, sequence } = request;
  if (entry.kind === 'batch') return idReplyBytes({ correlationId: correlation, batch: entry.batch }, encoding);
  if (sequence === undefined) throw new RangeError('numbers decide a request for IDs');
  const { first, count, step, format } = entry;
  const numbers = { sequence, first, count, step, format };
  return idReplyBytes({ correlationId: correlation.view(), numbers }, encoding);
}

function isOf(layout: OutgoingContext['customLayout'], entry: DecidingEntry): boolean {
  return entry.kind === 'batch' && layout?.fingerprint === entry.batch.layoutFingerprint;
}

/**
 * Upper bounds, in bytes: the parts of a reply whose size does not depend on the request, an ID, a range and numbers in
 * Avro.
 */
const REPLY_BYTES = { fixed: 200, id: 10, range: 13, numbers: 160 } as const;

/** About the size of the reply with a batch of so many ranges, in bytes; known before it is encoded. */
export function estimatedReplyBytes(
  { request: { count, requestId, encoding, trace, sequence }, correlation }: Accepted,
  ranges: number,
  { customLayout }: Pick<OutgoingContext, 'customLayout'>,
): number {
  const ids = encoding === 'IDS' ? count * REPLY_BYTES.id : ranges * REPLY_BYTES.range;
  const listed = sequence === undefined ? ids : REPLY_BYTES.numbers;
  const copied = [requestId, trace.traceparent, trace.tracestate].reduce(
    (sum, header) => sum + (header?.length ?? 0),
    0,
  );
  // The correlation ID is the key, a header and a field of the value.
  return REPLY_BYTES.fixed + 3 * correlation.length + copied + (customLayout?.text.length ?? 0) + listed;
}

/** The reply that reports an error; undefined when the sender can't be reached. */
export function errorReply(
  address: ReplyAddress,
  { code, message, retryAfterMs }: Pick<Refused, 'code' | 'message' | 'retryAfterMs'>,
  context: OutgoingContext,
): OutgoingRecord | undefined {
  const { correlationId, requestId, replyTopic } = address;
  if (correlationId === undefined || replyTopic === undefined) return undefined;
  const nest = replyTopic === nestReplyTopic(context.requestTopic);
  const headers = replyHeaders({
    names: context.names,
    correlationId,
    requestId,
    replayed: false,
    retryAfterMs,
    trace: address.trace ?? {},
    nest,
    ...(nest ? { nestError: `${code}: ${message}` } : {}),
  });
  const reply = idReplyBytes({ correlationId, error: { code, message } }, 'RANGES');
  const value = inFraming(address.framing, reply, context.schemas?.replyId());
  return { ...addressed({ ...address, replyTopic }), key: correlationId, value, headers };
}

/** The reply in the framing of its request. */
function inFraming(framing: Framing | undefined, reply: Bytes, schemaId: number | undefined): Bytes {
  return framing === 'CONFLUENT' && schemaId !== undefined ? asConfluent(schemaId, bufferOf(reply)) : reply;
}

/** The record as it came, addressed to its home partition, with the headers of its origin. */
export function forwarded(
  accepted: Accepted,
  to: { readonly from: number; readonly home: number; readonly wasAnswered: boolean },
  { requestTopic: topic }: OutgoingContext,
): OutgoingRecord {
  const { record, request } = accepted;
  const { origin, hops } = request.route;
  const own = { partition: to.from, offset: record.offset, appendedAtMs: record.timestampMs };
  const headers = Object.assign(headersOf(record), routeHeaders(origin ?? own, hops + 1, to));
  return { topic, partition: to.home, key: accepted.homeKey, value: record.value, headers };
}

/** A copy of the record as it came, with the reason in its headers; of one that is too long the reason alone. */
export function deadLetter(
  record: RequestRecord,
  partition: number,
  error: { readonly code: ErrorCode; readonly message: string },
  context: OutgoingContext,
): OutgoingRecord {
  const reason = letterHeaders(record, partition, error, context);
  const topic = context.deadLetterTopic;
  if (isTooLong(record)) return { topic, key: null, value: null, headers: { ...reason, [RECORD_LEFT_OUT]: '1' } };
  return { topic, key: record.key, value: record.value, headers: Object.assign(headersOf(record), reason) };
}

/**
 * One dead letter for several records of a partition that were rejected with the same code. It has the place and the
 * message of the first, and the offsets of all; the records themselves are in the request topic, for as long as that
 * keeps them.
 */
export function rangeLetter(
  rejections: readonly { readonly record: RequestRecord; readonly code: ErrorCode; readonly message: string }[],
  partition: number,
  context: OutgoingContext,
): OutgoingRecord {
  const inOrder = rejections.toSorted((one, other) => one.record.offset - other.record.offset);
  const [first] = inOrder;
  if (first === undefined) throw new RangeError('a letter without a record');
  const headers = {
    ...letterHeaders(first.record, partition, first, context),
    [RANGE_HEADERS.count]: String(inOrder.length),
    [RANGE_HEADERS.offsets]: runsText(inOrder.map(({ record }) => record.offset)),
  };
  return { topic: context.deadLetterTopic, key: null, value: null, headers };
}

/** The place of the record, and the reason. */
function letterHeaders(
  { offset, timestampMs }: RequestRecord,
  partition: number,
  { code, message }: { readonly code: ErrorCode; readonly message: string },
  { requestTopic }: OutgoingContext,
): Record<string, RecordHeaders[string]> {
  const original = Buffer.alloc(20);
  original.writeInt32BE(partition, 0);
  original.writeBigInt64BE(BigInt(offset), 4);
  original.writeBigInt64BE(wholeTimestamp(timestampMs), 12);
  return {
    [DEAD_LETTER_HEADERS.topic]: requestTopic,
    [DEAD_LETTER_HEADERS.partition]: original.subarray(0, 4),
    [DEAD_LETTER_HEADERS.offset]: original.subarray(4, 12),
    [DEAD_LETTER_HEADERS.timestamp]: original.subarray(12, 20),
    [DEAD_LETTER_HEADERS.code]: code,
    [DEAD_LETTER_HEADERS.message]: message,
  };
}

/**
 * A dead letter without its record, for one that the dead-letter topic rejects: a header name that is not UTF-8 grows
 * when it is written again. The record stays at its offset for as long as the request topic keeps it.
 */
export function bareLetter({ topic, headers }: OutgoingRecord): OutgoingRecord {
  const names = [...Object.values(DEAD_LETTER_HEADERS), ...Object.values(RANGE_HEADERS)];
  const kept = names.flatMap((name) => (Object.hasOwn(headers, name) ? [[name, headers[name]] as const] : []));
  return { topic, key: null, value: null, headers: { ...Object.fromEntries(kept), [RECORD_LEFT_OUT]: '1' } };
}

/** A copy to add to. It has no prototype, so a header may have any name. */
function headersOf(record: RequestRecord): Record<string, RecordHeaders[string]> {
  return Object.assign(Object.create(null), record.headers);
}

/** A sender may set any 64-bit timestamp; one beyond 2^53 is written as Kafka's -1, which means none. */
function wholeTimestamp(timestampMs: number): bigint {
  return Number.isSafeInteger(timestampMs) ? BigInt(timestampMs) : -1n;
}

function addressed({ replyTopic, replyPartition }: ReplyAddress & { readonly replyTopic: string }) {
  return { topic: replyTopic, partition: replyPartition };
}

/** A record that can't be served as it stands. */
export interface Rejection {
  readonly record: RequestRecord;
  readonly address: ReplyAddress;
  readonly code: ErrorCode;
  readonly message: string;
}

/** A dead letter, and how many records it stands for. */
export interface OutgoingLetter {
  readonly outgoing: OutgoingRecord;
  readonly code: ErrorCode;
  readonly records: number;
  /** The first of them. */
  readonly first: Rejection;
}

export interface LetterContext extends OutgoingContext {
  readonly junk: JunkLimits;
}

/**
 * The dead letters for the rejected records of a part, each of which is in exactly one: in its own while its code is
 * below the rate, else with the others of its code. So a range never reaches beyond its part, and is acknowledged with
 * it.
 */
export function lettersFor(
  context: LetterContext,
  partition: number,
  rejections: readonly Rejection[],
): OutgoingLetter[] {
  const shared = new Map<ErrorCode, Rejection[]>();
  const letters: OutgoingLetter[] = [];
  const addOwn = (rejection: Rejection) => {
    const outgoing = deadLetter(rejection.record, partition, rejection, context);
    letters.push({ outgoing, code: rejection.code, records: 1, first: rejection });
  };
  for (const rejection of rejections) {
    const { code } = rejection;
    const others = shared.get(code);
    if (others !== undefined) others.push(rejection);
    else if (context.junk.takeLetter(partition, code)) addOwn(rejection);
    else shared.set(code, [rejection]);
  }
  for (const [code, same] of shared) {
    const [first, ...others] = same;
    if (first === undefined || others.length === 0) same.forEach(addOwn);
    else letters.push({ outgoing: rangeLetter(same, partition, context), code, records: same.length, first });
  }
  return letters;
}
