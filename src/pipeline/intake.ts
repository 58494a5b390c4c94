import { asSingleObject, confluentSchemaId, type Framing } from '../codec/framing.ts';
import { apiRepliesViolation } from '../codec/http-key.ts';
import { ID_REQUEST_HEADER, MAX_REQUEST_BYTES } from '../codec/id-request.ts';
import { requestHash } from '../codec/ledger-entry.ts';
import { EntryKey, encodeNumbersKey } from '../codec/ledger-key.ts';
import { type ReplyPolicy, replyTopicViolation } from '../codec/reply-policy.ts';
import {
  decidingIdOf,
  type FullRequest,
  homeKeyOf,
  isNamedInBody,
  mergeRequest,
  type ReplyAddress,
  type RequestForm,
  salvageAddress,
} from '../codec/request.ts';
import { MAX_ID_BYTES } from '../codec/request-checks.ts';
import type { HeaderNames } from '../codec/request-headers.ts';
import { Slice } from '../core/slice.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import type { RequestRecord, SchemaIds } from './ports.ts';

/**
 * A service sends the same request again and again: as many IDs, to the same topic, in the same form. Only the
 * correlation ID differs. So a request is its ID and its form, and the form is an object that it shares with the
 * requests before it. Whether it has that form is decided by comparing bytes: a record whose value and headers are
 * those of the record before it, but for the correlation ID, asks for the same. Any other record is read in full, and
 * brings a form of its own.
 */

/** A request that can be looked up and served. */
export class Accepted {
  readonly kind = 'accepted';
  readonly record: RequestRecord;
  readonly request: RequestForm;
  /** Where the sender put the correlation ID. */
  readonly correlation: Slice;
  /** The key of its entry in the ledger. */
  readonly key: EntryKey;
  /** The partition that decides it. */
  readonly home: number;
  /** See `isLateSchema`. */
  readonly isLate: boolean;

  constructor(
    record: RequestRecord,
    request: RequestForm,
    correlation: Slice,
    key: EntryKey,
    home: number,
    isLate = false,
  ) {
    this.record = record;
    this.request = request;
    this.correlation = correlation;
    this.key = key;
    this.home = home;
    this.isLate = isLate;
  }

  /** The name of the key: equal for requests with equal keys. */
  get name(): string {
    return this.key.name;
  }

  /** Equal for requests that ask for the same. */
  get hash(): Buffer {
    return this.request.hash;
  }

  /** What names it: the request ID, or else the correlation ID. A view. */
  get id(): Buffer {
    return this.request.requestId ?? this.correlation.view();
  }

  /** What decides its home partition: the name of the sequence, since its numbers are given out in one place. */
  get homeKey(): Buffer {
    const { sequence } = this.request;
    return sequence === undefined ? this.id : Buffer.from(sequence, 'latin1');
  }

  /** Where its answer goes. */
  get address(): ReplyAddress {
    return { ...this.request, correlationId: this.correlation.view() };
  }
}

/** A record that can't be served as it stands; the address is where an error reply may go, if anywhere. */
interface Rejected {
  readonly kind: 'rejected';
  readonly record: RequestRecord;
  readonly address: ReplyAddress;
  readonly code: ErrorCode;
  readonly message: string;
  /** Who pays for it: a reply topic, BAD_RECORDS or UNKNOWN_SCHEMAS. */
  readonly payer: string;
  /** See `isLateSchema`. */
  readonly isLate: boolean;
}

/** The account of records that are no requests, in place of a reply topic. */
export const BAD_RECORDS = 'bad records';
/** That of records whose schema a worker does not know, or not yet. */
export const UNKNOWN_SCHEMAS = 'unknown schemas';

export type Intake = Accepted | Rejected;

/** Whether two requests have the same key, which is rare. */
export function hasTwins(part: readonly Accepted[]): boolean {
  const sketches = new Set<number>();
  for (const { key } of part) sketches.add(key.sketch);
  return sketches.size < part.length && new Set(part.map(({ name }) => name)).size < part.length;
}

/**
 * Twice the longest value. What has more is headers, of which a few hundred compressed bytes can be a megabyte: it is
 * not looked at, and no copy of it is made.
 */
export const MAX_RECORD_BYTES = 2 * MAX_REQUEST_BYTES;
const TOO_LONG = `the record has more than ${MAX_RECORD_BYTES} bytes, headers included`;

/** Whether a record is too long to be a request, whatever it has. */
export function isTooLong({ fields }: RequestRecord): boolean {
  return fields !== undefined && fields.bytes > MAX_RECORD_BYTES;
}

export interface IntakeOptions {
  readonly names: HeaderNames;
  readonly replyPolicy: ReplyPolicy;
  readonly schemas?: SchemaIds | undefined;
  /** The home partition of what `homeKeyOf` returns. */
  readonly homeOf: (homeKey: Slice) => number;
}

/** Reads the records of the request topic, for all partitions of a worker. */
export class RequestReader {
  readonly #options: IntakeOptions;
  /** The last request whose form the next one may share. */
  #last: Accepted | undefined;

  constructor(options: IntakeOptions) {
    this.#options = options;
  }

  /**
   * Reads one record. Total: any bytes yield a request or a rejection, so that no input ends the process or blocks its
   * partition.
   */
  read(record: RequestRecord): Intake {
    const known = this.#likeLast(record);
    if (known !== undefined) return known;
    if (isTooLong(record)) return reject(record, {}, 'MALFORMED_REQUEST', TOO_LONG);
    // Nobody reads where a rejection was thrown, and finding that out is three quarters of its cost.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    try {
      return this.#readWhole(record);
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
  }

  #likeLast(record: RequestRecord): Accepted | undefined {
    const { names, homeOf } = this.#options;
    const { fields } = record;
    const last = this.#last;
    if (fields === undefined || last?.record.fields === undefined) return undefined;
    if (!fields.isLike(last.record.fields, names.correlationId)) return undefined;
    const id = fields.headerAt(names.correlationId);
    if (id === undefined || id.length < 1 || id.length > MAX_ID_BYTES) return undefined;
    this.#last = new Accepted(record, last.request, id, EntryKey.ofIds(id), homeOf(id));
    return this.#last;
  }

  #readWhole(record: RequestRecord): Intake {
    const { names, replyPolicy: policy, schemas, homeOf } = this.#options;
    const { headers } = record;
    let { value } = record;
    let framing: Framing = 'SINGLE_OBJECT';
    try {
      const unwrapped = fromConfluent(schemas, value);
      if (unwrapped !== undefined) {
        framing = 'CONFLUENT';
        value = unwrapped;
      }
      const request = { ...mergeRequest(value, headers, names), framing };
      const refusal = replyTopicViolation(request.replyTopic, policy) ?? apiRepliesViolation(request, policy);
      if (refusal !== undefined) return reject(record, {}, 'INVALID_REPLY_TOPIC', refusal, request.replyTopic);
      if (request.sequence !== undefined && framing === 'CONFLUENT' && schemas?.numbersReplyId() === undefined)
        return reject(record, request, 'UNKNOWN_SCHEMA', NO_REPLY_SCHEMA);
      const home = homeOf(Slice.of(homeKeyOf(request)));
      const { correlationId, ...form } = request;
      const shared = { ...form, hash: requestHash(form.count, form.replyTopic) };
      const isLate = isLateSchema(record.value);
      const accepted = new Accepted(record, shared, Slice.of(correlationId), keyOf(request), home, isLate);
      // What follows from a schema registry, or from more than the correlation ID, is read each time.
      const isPlain = request.requestId === undefined && request.sequence === undefined && !isLate;
      const isInHeader = record.fields?.headerAt(names.correlationId) !== undefined;
      if (isPlain && isInHeader && !isNamedInBody(value)) this.#last = accepted;
      return accepted;
    } catch (error) {
      const { code, message } = rejectionOf(error);
      // The request may be served when it is sent again, so it must not get an error reply now.
      if (code === 'SCHEMA_REGISTRY_UNAVAILABLE') return reject(record, {}, code, message);
      const address = { ...salvageAddress(value, headers, names), framing };
      const isReplyAllowed =
        address.replyTopic !== undefined && replyTopicViolation(address.replyTopic, policy) === undefined;
      return reject(record, isReplyAllowed ? address : {}, code, message);
    }
  }
}

function reject(
  record: RequestRecord,
  address: ReplyAddress,
  code: ErrorCode,
  message: string,
  payer = BAD_RECORDS,
): Rejected {
  const isUnknown = code === 'UNKNOWN_SCHEMA' || code === 'SCHEMA_REGISTRY_UNAVAILABLE';
  const isLate = isLateSchema(record.value);
  return { kind: 'rejected', record, address, code, message, payer: isUnknown ? UNKNOWN_SCHEMAS : payer, isLate };
}

/**
 * Whether a value is of another schema than the first one. One worker may know that while another one, or the same at
 * another time, does not: a registry has it, or a release that added it.
 */
function isLateSchema(value: Buffer | null): boolean {
  return value !== null && value.length > 0 && !ID_REQUEST_HEADER.equals(value.subarray(0, ID_REQUEST_HEADER.length));
}

function keyOf(request: FullRequest): EntryKey {
  const { sequence } = request;
  const id = decidingIdOf(request);
  return sequence === undefined ? EntryKey.ofIds(Slice.of(id)) : EntryKey.of(encodeNumbersKey(sequence, id));
}

const NO_REPLY_SCHEMA =
  'the registry has no schema for replies with numbers of a sequence: run `idalloc topics init` of this version, then send the request again';

/** Decoding is pure, so any error is caused by the record and would recur. */
function rejectionOf(error: unknown): { code: ErrorCode; message: string } {
  if (error instanceof IdallocError) return { code: error.code, message: error.message };
  return { code: 'MALFORMED_REQUEST', message: error instanceof Error ? error.message : String(error) };
}

/**
 * Looks up the schema IDs of these records of a partition in the registry. Returns the records that can be read now, in
 * order: all of them, or those before the first whose schema is still unknown, with the error that keeps the others
 * waiting.
 */
export async function withSchemas(
  schemas: SchemaIds | undefined,
  records: readonly RequestRecord[],
  partition: number,
): Promise<{ readonly ready: readonly RequestRecord[]; readonly error?: unknown }> {
  if (schemas === undefined) return { ready: records };
  const ids = records.map(({ value }) => (value === null ? undefined : confluentSchemaId(value)));
  const schemaIds = new Set(ids.filter((id) => id !== undefined));
  if (schemaIds.size === 0) return { ready: records };
  try {
    await schemas.learn(schemaIds, partition);
    return { ready: records };
  } catch (error) {
    const waiting = ids.findIndex((id) => id !== undefined && !isLearned(schemas, id));
    return waiting < 0 ? { ready: records } : { ready: records.slice(0, waiting), error };
  }
}

/**
 * Converts a value in Confluent framing to single-object framing. Undefined for any other value, and without a
 * registry. Throws IdallocError UNKNOWN_SCHEMA, and SCHEMA_REGISTRY_UNAVAILABLE after the registry has been silent for
 * too long.
 */
function fromConfluent(schemas: SchemaIds | undefined, value: Buffer | null): Buffer | undefined {
  const id = schemas === undefined || value === null ? undefined : confluentSchemaId(value);
  if (schemas === undefined || value === null || id === undefined) return undefined;
  const header = schemas.requestHeader(id);
  if (header === 'none') {
    throw new IdallocError(
      'UNKNOWN_SCHEMA',
      `schema ${id} of the registry is not an IdRequest schema that this worker knows: use the one that \`idalloc topics init\` registers`,
    );
  }
  if (header !== undefined && isLearned(schemas, id)) return asSingleObject(header, value);
  throw new IdallocError(
    'SCHEMA_REGISTRY_UNAVAILABLE',
    `the schema registry did not return schema ${id} in time, or the partition named too many unknown schemas: register it for the request topic, and send the request again once the registry answers`,
  );
}

function isLearned(schemas: SchemaIds, id: number): boolean {
  const header = schemas.requestHeader(id);
  return header === 'none' || (header !== undefined && schemas.replyId() !== undefined);
}
