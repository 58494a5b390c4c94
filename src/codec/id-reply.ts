import type { IdRange } from '../core/generator.ts';
import { type Bytes, bufferOf } from '../core/slice.ts';
import { describeError, IdallocError } from '../errors.ts';
import { decodeFramed, encodeFramed, loadSchema } from './avro.ts';
import { asSingleObject, confluentSchemaId, HEADER_BYTES } from './framing.ts';
import {
  collapseIds,
  countIds,
  type IdBatch,
  MAX_BATCH_COUNT,
  maxBatchBytes,
  plainRanges,
  type WireBatch,
  wireToBatch,
  writeEvidence,
  writeRanges,
} from './id-batch.ts';
import type { Encoding } from './id-request.ts';
import { lengthOfLongs, putLongs } from './long.ts';
import { MAX_BYTES, MessageWriter } from './message-writer.ts';
import { checkSequence } from './request-checks.ts';
import { SCHEMAS } from './schemas.ts';
import { checkNumbers, type Numbers } from './sequence-entry.ts';

/** The answer to a request: a batch, numbers of a sequence, or an error. Readers must accept unknown error codes. */
export type IdReply = { readonly correlationId: Buffer } & (
  | { readonly batch: IdBatch }
  | { readonly error: { readonly code: string; readonly message: string } }
  | { readonly numbers: Numbers & { readonly sequence: string } }
);

/** A reply with a batch, as it is written: nearly every reply is one. */
interface ReplyWithBatch {
  readonly correlationId: Bytes;
  readonly batch: IdBatch;
}

/** A reply has room for 100,000 IDs of ten bytes each. */
const MAX_REPLY_BYTES = 1024 * 1024;

const schema = loadSchema(SCHEMAS['id-reply'], MAX_REPLY_BYTES);
/** With numbers. The body of any other reply is the same in both. */
const wideSchema = loadSchema(SCHEMAS['id-reply-2'], MAX_REPLY_BYTES);
export const ID_REPLY_FINGERPRINT = schema.fingerprint;
export const WIDE_REPLY_FINGERPRINT = wideSchema.fingerprint;

/** The result union, whose branches avsc identifies by their full names. */
type WireResult =
  | { readonly 'idalloc.IdBatch': WireBatch }
  | { readonly 'idalloc.IdError': { readonly code: string; readonly message: string } }
  | { readonly 'idalloc.SequenceBatch': WireNumbers };

interface WireNumbers {
  readonly sequence: string;
  readonly first: bigint;
  readonly count: number;
  readonly step: bigint;
  readonly format: string;
}

interface WireReply {
  readonly correlation_id: Buffer;
  readonly result: WireResult;
}

/**
 * The framed value of a reply record, in the first schema unless it has numbers: a pure function of its arguments, so a
 * replayed reply has the same bytes. The encoding matters for a batch only. RangeError if batch or numbers are out of
 * range.
 */
export function encodeIdReply(reply: IdReply | ReplyWithBatch, encoding: Encoding): Buffer {
  return bufferOf(idReplyBytes(reply, encoding));
}

/** The same, but for a list of IDs: it may take a megabyte, and is written where the bytes are copied to. */
export function idReplyBytes(reply: IdReply | ReplyWithBatch, encoding: Encoding): Bytes {
  if ('batch' in reply) return batchReplyBytes(reply, encoding);
  const wire: WireReply = { correlation_id: reply.correlationId, result: toResult(reply) };
  return encodeFramed('numbers' in reply ? wideSchema : schema, wire);
}

const writer = new MessageWriter();

/** Field by field, since nearly every reply has a batch: avsc takes an object, and several times as long. */
function batchReplyBytes({ correlationId, batch }: ReplyWithBatch, encoding: Encoding): Bytes {
  countIds(batch.ranges);
  const isListed = encoding === 'IDS';
  const maxBytes = HEADER_BYTES + 3 * MAX_BYTES.long + correlationId.length + maxBatchBytes(batch);
  writer.begin(maxBytes);
  writer.raw(schema.header);
  writer.sized(correlationId);
  writer.long(0); // the branch of the union
  writeRanges(writer, isListed ? [] : batch.ranges);
  const before = isListed ? writer.end() : undefined;
  if (isListed) writer.begin(maxBytes);
  writer.long(0); // the end of the IDs
  writeEvidence(writer, batch);
  const behind = writer.end();
  return before === undefined ? behind : new Listing(before, batch, behind);
}

/** Bytes with a list of IDs between them. */
class Listing implements Bytes {
  readonly length: number;
  readonly #before: Buffer;
  readonly #batch: IdBatch;
  readonly #behind: Buffer;

  constructor(before: Buffer, batch: IdBatch, behind: Buffer) {
    this.#before = before;
    this.#batch = batch;
    this.#behind = behind;
    this.length = before.length + lengthOfLongs(batch.ranges, batch.step) + behind.length;
  }

  copy(target: Uint8Array, at: number): void {
    target.set(this.#before, at);
    const end = putLongs(target, at + this.#before.length, this.#batch.ranges, this.#batch.step);
    target.set(this.#behind, end); // after the IDs, since they overwrite what is behind them
  }
}

/**
 * Decodes a reply; `encoding` is how it lists its IDs (RANGES for all but a batch). Single IDs are returned as the
 * fewest ranges. In Confluent framing the schema id is not looked up: the whole body must match the schema with
 * numbers. Throws IdallocError MALFORMED_REPLY for bytes that are not a reply.
 */
export function decodeIdReply(bytes: Buffer): IdReply & { readonly encoding: Encoding } {
  try {
    const single = confluentSchemaId(bytes) === undefined ? bytes : asSingleObject(wideSchema.header, bytes);
    const wire = decodeFramed(schema, single) ?? decodeFramed(wideSchema, single);
    if (wire === undefined) throw new Error('it has another framing or schema');
    return fromWire(wire as WireReply);
  } catch (error) {
    throw new IdallocError('MALFORMED_REPLY', `the value is not an IdReply: ${describeError(error)}`, { cause: error });
  }
}

function toResult(reply: Exclude<IdReply, { readonly batch: IdBatch }>): WireResult {
  if ('error' in reply) return { 'idalloc.IdError': reply.error };
  const { sequence, first, count, step, format } = reply.numbers;
  checkNumbers(first, count, step, format);
  return { 'idalloc.SequenceBatch': { sequence, first: BigInt(first), count, step: BigInt(step), format } };
}

function fromWire({ correlation_id: correlationId, result }: WireReply): IdReply & { encoding: Encoding } {
  if ('idalloc.IdError' in result) {
    const { code, message } = result['idalloc.IdError'];
    return { correlationId, error: { code, message }, encoding: 'RANGES' };
  }
  if ('idalloc.SequenceBatch' in result) {
    const { sequence, first, count, step, format } = result['idalloc.SequenceBatch'];
    const numbers = { sequence: checkSequence(sequence), ...checkNumbers(first, count, step, format) };
    return { correlationId, numbers, encoding: 'RANGES' };
  }
  const wire = result['idalloc.IdBatch'];
  const listed = wire.ids.length > 0;
  if (listed === wire.ranges.length > 0) throw new RangeError('exactly one of ranges and ids must be filled');
  if (wire.ids.length > MAX_BATCH_COUNT)
    throw new RangeError(`${wire.ids.length} IDs are more than ${MAX_BATCH_COUNT}`);
  const ranges: readonly IdRange[] = listed ? collapseIds(wire.ids, wire.step) : plainRanges(wire.ranges, wire.step);
  countIds(ranges);
  return { correlationId, batch: wireToBatch(wire, ranges), encoding: listed ? 'IDS' : 'RANGES' };
}
