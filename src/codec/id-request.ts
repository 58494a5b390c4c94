import { describeError, IdallocError } from '../errors.ts';
import { decodeStrict, encodeFramed, loadSchema } from './avro.ts';
import { framingOf, HEADER_BYTES, isFramed } from './framing.ts';
import { type Long, toSafeNumber } from './long.ts';
import { checkCorrelationId, checkCount, checkReplyTopic, checkRequestId, checkSequence } from './request-checks.ts';
import { SCHEMAS } from './schemas.ts';

/** How a reply lists its IDs: as ranges, or one by one. */
export type Encoding = 'RANGES' | 'IDS';

/** The body of a request; each field except the count may be given by a record header instead. */
export interface IdRequest {
  /** 1..MAX_REQUEST_COUNT; the pipeline checks the layout's limit. */
  readonly count: number;
  /** Opaque, 1..256 bytes. */
  readonly correlationId?: Buffer | undefined;
  readonly replyTopic?: string | undefined;
  /** Wall milliseconds. */
  readonly expiresAtMs?: number | undefined;
  readonly encoding?: Encoding | undefined;
  /** Opaque, 1..256 bytes. */
  readonly requestId?: Buffer | undefined;
  /** The name of a sequence, 1..64 characters; undefined for IDs. */
  readonly sequence?: string | undefined;
}

/** The longest allowed value of a request record. */
export const MAX_REQUEST_BYTES = 16 * 1024;
/** The latest time that a Date can represent. */
const MAX_TIME_MS = 8_640_000_000_000_000;

const schema = loadSchema(SCHEMAS['id-request'], MAX_REQUEST_BYTES - HEADER_BYTES);
/** With a request ID and a sequence, which workers of earlier releases refuse. */
const wideSchema = loadSchema(SCHEMAS['id-request-2'], MAX_REQUEST_BYTES - HEADER_BYTES);
export const ID_REQUEST_HEADER: Buffer = schema.header;
export const WIDE_REQUEST_HEADER: Buffer = wideSchema.header;

/** The body as the schema has it. */
interface WireRequest {
  readonly count: Long;
  readonly correlation_id: Buffer | null;
  readonly reply_topic: string | null;
  readonly expires_at: Long | null;
  readonly encoding: Encoding | null;
  /** From here on in the second schema only. */
  readonly request_id?: Buffer | null;
  readonly sequence?: string | null;
}

/**
 * The framed value of a request record, in the first schema unless the request has a field that only the second one
 * has. RangeError if a number is not an integer.
 */
export function encodeIdRequest(request: IdRequest): Buffer {
  const { correlationId, replyTopic, expiresAtMs, encoding, requestId, sequence } = request;
  const wire: WireRequest = {
    count: request.count,
    correlation_id: correlationId ?? null,
    reply_topic: replyTopic ?? null,
    expires_at: expiresAtMs ?? null,
    encoding: encoding ?? null,
  };
  if (requestId === undefined && sequence === undefined) return encodeFramed(schema, wire);
  const wide: WireRequest = { ...wire, request_id: requestId ?? null, sequence: sequence ?? null };
  return encodeFramed(wideSchema, wide);
}

/** The bytes before each value of the request schema with this fingerprint (little endian); undefined for any other. */
export function requestHeaderOf(fingerprint: Buffer): Buffer | undefined {
  return [schema, wideSchema].find((known) => known.fingerprint.equals(fingerprint))?.header;
}

/**
 * Decodes the value of a request record. Byte fields are views of the value.
 * Throws IdallocError: UNKNOWN_SCHEMA for a frame with an unknown schema, MALFORMED_REQUEST for bytes that are not a
 * request, and for a request ID or a sequence out of range; INVALID_COUNT, INVALID_CORRELATION_ID and
 * INVALID_REPLY_TOPIC for other values out of range.
 */
export function decodeIdRequest(value: Buffer): IdRequest {
  if (lastValue?.value.equals(value) === true) return lastValue.request;
  const request = readRequest(decodeWire(value));
  const hasViews = request.correlationId !== undefined || request.requestId !== undefined;
  if (!hasViews) lastValue = { value: Buffer.from(value), request };
  return request;
}

/** Where the headers name what differs, requests that follow each other mostly have the same value. */
let lastValue: { readonly value: Buffer; readonly request: IdRequest } | undefined;

function readRequest(wire: WireRequest): IdRequest {
  return {
    count: checkCount(wire.count),
    correlationId: wire.correlation_id === null ? undefined : checkCorrelationId(wire.correlation_id),
    replyTopic: wire.reply_topic === null ? undefined : checkReplyTopic(wire.reply_topic),
    expiresAtMs: wire.expires_at === null ? undefined : checkExpiry(wire.expires_at),
    encoding: wire.encoding ?? undefined,
    requestId: wire.request_id == null ? undefined : checkRequestId(wire.request_id),
    sequence: wire.sequence == null ? undefined : checkSequence(wire.sequence),
  };
}

/**
 * Correlation ID, request ID and reply topic in the body, unchecked; also when the count is out of range. Throws as
 * decodeIdRequest does for a body that is not a request.
 */
export function readBodyAddress(value: Buffer): {
  correlationId: Buffer | null;
  requestId: Buffer | null;
  replyTopic: string | null;
} {
  const wire = decodeWire(value);
  return { correlationId: wire.correlation_id, requestId: wire.request_id ?? null, replyTopic: wire.reply_topic };
}

function decodeWire(value: Buffer): WireRequest {
  const known = isFramed(schema.header, value) ? schema : wideSchema;
  if (known === wideSchema && !isFramed(wideSchema.header, value)) throw unknownFrame(value);
  try {
    return decodeStrict(known, value, HEADER_BYTES) as WireRequest;
  } catch (error) {
    throw new IdallocError('MALFORMED_REQUEST', `the value is not an IdRequest: ${describeError(error)}`, {
      cause: error,
    });
  }
}

function unknownFrame(value: Buffer): IdallocError {
  switch (framingOf(value)) {
    case 'SINGLE_OBJECT': {
      const print = value.toString('hex', 2, 10);
      const known = [schema, wideSchema].map(({ fingerprint }) => fingerprint.toString('hex')).join(' and ');
      return new IdallocError(
        'UNKNOWN_SCHEMA',
        `unknown schema with fingerprint ${print} (little endian): send IdRequest, whose fingerprints are ${known}`,
      );
    }
    case 'CONFLUENT':
      return new IdallocError(
        'UNKNOWN_SCHEMA',
        'the value has Confluent framing and this worker has no schema registry: send Avro single-object framing (C3 01)',
      );
    default:
      return new IdallocError(
        'MALFORMED_REQUEST',
        'the value is not framed: it must start with C3 01 and a fingerprint',
      );
  }
}

function checkExpiry(expiresAt: Long): number {
  try {
    return toSafeNumber(expiresAt, 'expires_at', 0, MAX_TIME_MS);
  } catch (error) {
    throw new IdallocError('MALFORMED_REQUEST', describeError(error), { cause: error });
  }
}
