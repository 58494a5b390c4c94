import { hash } from 'node:crypto';
import type { IdBatch } from '../../codec/id-batch.ts';
import type { IdRange } from '../../core/generator.ts';
import { decompose, type Layout, toTicks } from '../../core/layout.ts';
import { wallMs } from '../../core/units.ts';

/** More than any batch takes: allocation gives up long before. */
const MAX_BATCH_SPAN_MS = 60_000;

/** How the IDs of a batch contradict the origin that it names; empty if they match. */
export function batchViolations(batch: IdBatch, layout: Layout): string[] {
  if (batch.step !== layout.step) return [`its step is ${batch.step}; IDs of its layout are ${layout.step} apart`];
  const violations = batch.ranges.flatMap((range) => rangeViolations(range, batch, layout));
  const falls = batch.ranges.findIndex(({ first }, i) => first <= lastOf(batch.ranges[i - 1], batch.step));
  if (falls > 0) violations.push(`its ranges do not increase: ${batch.ranges[falls]?.first} comes too late`);
  return violations;
}

function rangeViolations({ first, count }: IdRange, batch: IdBatch, layout: Layout): string[] {
  const last = first + BigInt(count - 1) * batch.step;
  const limit = BigInt(layout.endTicks) << layout.timestampShift;
  if (first < 0n || last >= limit) return [`${last} is not an ID of its layout '${layout.name}'`];
  const from = decompose(layout, first);
  const to = decompose(layout, last);
  const violations: string[] = [];
  for (const { worker, datacenter } of [from, to]) {
    if (worker !== batch.workerId)
      violations.push(`an ID is of worker ${worker}, the batch of worker ${batch.workerId}`);
    if (datacenter !== batch.datacenterId) {
      violations.push(`an ID is of datacenter ${datacenter}, the batch of datacenter ${batch.datacenterId}`);
    }
  }
  if (from.ticks !== to.ticks && !crossesTicks(layout))
    violations.push(`the range of ${count} IDs from ${first} leaves its tick`);
  const made = toTicks(layout, wallMs(batch.generatedAtMs));
  if (to.ticks > made) violations.push(`an ID has a time after generated_at ${batch.generatedAtMs}`);
  if ((made - from.ticks) * layout.tickMs > MAX_BATCH_SPAN_MS) {
    violations.push(`an ID has a time more than a minute before generated_at ${batch.generatedAtMs}`);
  }
  return [...new Set(violations)];
}

/**
 * Whether one step leads from a tick's last sequence number to the first of the next tick. A reply that lists single IDs
 * then decodes to one range over several ticks.
 */
function crossesTicks({ positions: { timestamp, sequence } }: Layout): boolean {
  return sequence.shift + sequence.bits === timestamp.shift;
}

function lastOf(range: IdRange | undefined, step: bigint): bigint {
  return range === undefined ? -1n : range.first + BigInt(range.count - 1) * step;
}

/** Merges adjacent ranges: a reply that lists single IDs decodes to other ranges than its entry has. */
export function mergeRanges(ranges: readonly IdRange[], step: bigint): readonly IdRange[] {
  if (ranges.length < 2) return ranges;
  const merged: IdRange[] = [];
  for (const range of ranges) {
    const before = merged.at(-1);
    if (before !== undefined && range.first === before.first + BigInt(before.count) * step) {
      merged[merged.length - 1] = { first: before.first, count: before.count + range.count };
    } else merged.push(range);
  }
  return merged;
}

const FIELD_BYTES = 48;
const RANGE_BYTES = 12;

/** The ranges as bytes: the step, then each range's first ID and count. */
export function packRanges(ranges: readonly IdRange[], step: bigint): Buffer {
  const bytes = Buffer.allocUnsafe(8 + ranges.length * RANGE_BYTES);
  bytes.writeBigInt64BE(step, 0);
  for (const [i, { first, count }] of ranges.entries()) {
    bytes.writeBigInt64BE(first, 8 + i * RANGE_BYTES);
    bytes.writeUInt32BE(count, 16 + i * RANGE_BYTES);
  }
  return bytes;
}

/** The reverse of packRanges. */
export function unpackRanges(bytes: Uint8Array): { readonly step: bigint; readonly ranges: readonly IdRange[] } {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const ranges: IdRange[] = [];
  for (let at = 8; at < buffer.length; at += RANGE_BYTES) {
    ranges.push({ first: buffer.readBigInt64BE(at), count: buffer.readUInt32BE(at + 8) });
  }
  return { step: buffer.readBigInt64BE(0), ranges };
}

/** How many IDs packed ranges have. */
export function idsIn(packed: Uint8Array): number {
  return unpackRanges(packed).ranges.reduce((sum, { count }) => sum + count, 0);
}

/** 16 bytes that identify a batch: all its evidence, and `packed`, the merged ranges. */
export function batchDigest(batch: IdBatch, packed: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(FIELD_BYTES + packed.length);
  bytes.writeInt32BE(batch.datacenterId, 0);
  bytes.writeInt32BE(batch.workerId, 4);
  bytes.writeBigInt64BE(batch.fence, 8);
  bytes.writeBigInt64BE(BigInt(batch.epochMs), 16);
  bytes.writeBigInt64BE(BigInt(batch.generatedAtMs), 24);
  bytes.write(batch.layoutFingerprint, 32, 'latin1');
  bytes.set(packed, FIELD_BYTES);
  return Buffer.from(hash('sha256', bytes, 'hex').slice(0, 32), 'hex');
}
