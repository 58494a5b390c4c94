import type { IdRange } from '../core/generator.ts';
import { memoize } from '../core/memoize.ts';
import { fingerprintBytes, fingerprintHex } from './avro.ts';
import { FINGERPRINT_BYTES } from './framing.ts';
import { toSafeNumber } from './long.ts';
import { MAX_BYTES, MessageWriter } from './message-writer.ts';

/** Allocated IDs with the evidence of which worker allocated them, as replies and the ledger carry them. */
export interface IdBatch {
  /** In rising order. */
  readonly ranges: readonly IdRange[];
  /** Distance between neighbouring IDs of a range; at least 1. */
  readonly step: bigint;
  readonly datacenterId: number;
  readonly workerId: number;
  /** Create revision of the worker's owner key. */
  readonly fence: bigint;
  /** Wall milliseconds at which the layout's ticks begin. */
  readonly epochMs: number;
  /** 16 lowercase hex digits. */
  readonly layoutFingerprint: string;
  /** Wall milliseconds of the allocation. */
  readonly generatedAtMs: number;
}

/** No layout allocates more IDs at once. It bounds the memory of a reader. */
export const MAX_BATCH_COUNT = 100_000;

const MAX_ID = 2n ** 63n - 1n;

/** The fields that reply and ledger entry have in common, as their schemas name them and avsc reads them. */
export interface WireBatch {
  readonly ranges: readonly IdRange[];
  /** Only the schema of replies has them. */
  readonly ids: readonly bigint[];
  readonly step: bigint;
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly fence: bigint;
  readonly epoch: bigint;
  readonly layout_fingerprint: Buffer;
  readonly generated_at: bigint;
}

/** The bytes are cached, since batches have few different layouts. */
const layoutFingerprints = memoize(fingerprintBytes, 100);

const MAX_EVIDENCE_BYTES = 4 * MAX_BYTES.long + 2 * MAX_BYTES.int + FINGERPRINT_BYTES;

/** An upper bound of the bytes that `writeRanges` and `writeEvidence` write for a batch. */
export function maxBatchBytes({ ranges }: IdBatch): number {
  return 2 * MAX_BYTES.long + ranges.length * (MAX_BYTES.long + MAX_BYTES.int) + MAX_EVIDENCE_BYTES;
}

/** Writes ranges as both schemas have them. */
export function writeRanges(to: MessageWriter, ranges: readonly IdRange[]): void {
  if (ranges.length > 0) to.long(ranges.length);
  for (const { first, count } of ranges) {
    to.long(first);
    to.int(count);
  }
  to.long(0);
}

/** Writes what both schemas have from the step on. RangeError if wireToBatch would reject it. */
export function writeEvidence(to: MessageWriter, batch: IdBatch): void {
  if (lastEvidence === undefined || !isSameEvidence(lastEvidence.of, batch))
    lastEvidence = { of: batch, bytes: evidenceBytes(batch) };
  to.raw(lastEvidence.bytes);
}

/** Batches that were allocated together differ in their ranges alone. */
let lastEvidence: { readonly of: IdBatch; readonly bytes: Buffer } | undefined;

function isSameEvidence(one: IdBatch, other: IdBatch): boolean {
  return (
    one.generatedAtMs === other.generatedAtMs &&
    one.fence === other.fence &&
    one.workerId === other.workerId &&
    one.datacenterId === other.datacenterId &&
    one.step === other.step &&
    one.epochMs === other.epochMs &&
    one.layoutFingerprint === other.layoutFingerprint
  );
}

function evidenceBytes(batch: IdBatch): Buffer {
  const to = new MessageWriter(MAX_EVIDENCE_BYTES);
  to.begin(MAX_EVIDENCE_BYTES);
  to.long(batch.step);
  to.int(batch.datacenterId);
  to.int(batch.workerId);
  to.long(batch.fence);
  to.long(batch.epochMs);
  to.raw(layoutFingerprints(batch.layoutFingerprint));
  to.long(batch.generatedAtMs);
  return to.end();
}

/** The batch from its decoded fields and ranges. RangeError if a value is out of range. */
export function wireToBatch(wire: Omit<WireBatch, 'ids'>, ranges: readonly IdRange[]): IdBatch {
  if (wire.step < 1n) throw new RangeError(`step ${wire.step} is below 1`);
  return {
    ranges,
    step: wire.step,
    datacenterId: wire.datacenter_id,
    workerId: wire.worker_id,
    fence: wire.fence,
    epochMs: toSafeNumber(wire.epoch, 'epoch', Number.MIN_SAFE_INTEGER),
    layoutFingerprint: fingerprintHex(wire.layout_fingerprint),
    generatedAtMs: toSafeNumber(wire.generated_at, 'generated_at', 0),
  };
}

/** Copies of decoded ranges as plain objects. RangeError if one goes beyond 2^63. */
export function plainRanges(ranges: readonly IdRange[], step: bigint): IdRange[] {
  requireBelowEnd(ranges, step);
  return ranges.map(({ first, count }) => ({ first, count }));
}

/** Throws RangeError if a range goes beyond 2^63. */
export function requireBelowEnd(ranges: readonly IdRange[], step: bigint): void {
  const beyond = ranges.find(({ first, count }) => first + BigInt(count - 1) * step > MAX_ID);
  if (beyond !== undefined) throw new RangeError(`range of ${beyond.count} IDs from ${beyond.first} ends above 2^63`);
}

/** The number of IDs in the ranges. RangeError for an empty range, a negative ID, or more than MAX_BATCH_COUNT. */
export function countIds(ranges: readonly IdRange[]): number {
  let total = 0;
  for (const { first, count } of ranges) {
    if (!(count >= 1) || first < 0n) throw new RangeError(`invalid range of ${count} IDs from ${first}`);
    total += count;
  }
  if (total > MAX_BATCH_COUNT) throw new RangeError(`${total} IDs; a batch has at most ${MAX_BATCH_COUNT}`);
  return total;
}

/**
 * Every ID of the batch, in order.
 *
 * @throws RangeError above MAX_BATCH_COUNT.
 */
export function expandIds(batch: Pick<IdBatch, 'ranges' | 'step'>): bigint[] {
  const ids = new Array<bigint>(countIds(batch.ranges));
  let next = 0;
  for (const { first, count } of batch.ranges) {
    let id = first;
    for (let k = 0; k < count; k++) {
      ids[next++] = id;
      id += batch.step;
    }
  }
  return ids;
}

/** The fewest ranges that hold the IDs: the reverse of expandIds. */
export function collapseIds(ids: readonly bigint[], step: bigint): IdRange[] {
  const ranges: { first: bigint; count: number }[] = [];
  let last: { first: bigint; count: number } | undefined;
  let expected = 0n;
  for (const id of ids) {
    if (last === undefined || id !== expected) {
      last = { first: id, count: 0 };
      ranges.push(last);
    }
    last.count += 1;
    expected = id + step;
  }
  return ranges;
}
