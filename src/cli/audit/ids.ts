import { hash } from 'node:crypto';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import type { IdBatch } from '../../codec/id-batch.ts';
import { readWitness, readWitnessKey } from '../../codec/witness.ts';
import type { IdRange } from '../../core/generator.ts';
import { decompose, type Layout, toTicks } from '../../core/layout.ts';
import type { LayoutReference } from '../../core/layout-choice.ts';
import { wallMs } from '../../core/units.ts';
import type { Finding, IdRun } from './found.ts';

/*
 * What do IDs prove by themselves, whatever the ledger says of them? A batch names its origin: worker, datacenter,
 * layout, the time of its allocation, and the fence of the term in which it was made. Each ID repeats most of that in
 * its bits, so that a batch that was made up, or decoded with another layout, contradicts itself. `batchViolations`
 * looks at one batch alone.
 *
 * Uniqueness needs all of them. Sorted by their first IDs, two runs share an ID if the later one begins before the
 * earlier one ends; but IDs of a layout may be a step apart, so that runs interleave without meeting. `OverlapSearch`
 * keeps, of each step and remainder, only the run that ends last, so that its memory does not grow with the number of
 * batches.
 *
 * Uniqueness is also to hold tomorrow, and that shows in the terms. A term writes its ceiling to the witness topic
 * before it uses an ID below it, and the next term of the worker ID starts at that ceiling. So an ID at the highest
 * ceiling of its term or above, or one that is higher than an ID of a later term, is one that another worker may have
 * allocated as well, even if none has. `TermSearch` finds both.
 */

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
 * Whether one step leads from a tick's last sequence number to the first of the next tick. A reply that lists single
 * IDs then decodes to one range over several ticks.
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

/** How many runs are kept before those that have ended are dropped. */
const MAX_ENDED = 10_000;

/**
 * Finds IDs that are in two batches. Runs come ordered by their first ID. Every batch that shares an ID with another is
 * in a finding, though not with each batch that it shares IDs with. Where runs of different steps meet follows from the
 * Chinese remainder theorem.
 */
export class OverlapSearch {
  readonly #find: (finding: Finding) => void;
  readonly #bySteps = new Map<bigint, Map<bigint, IdRun>>();
  #kept = 0;
  #limit = MAX_ENDED;

  constructor(find: (finding: Finding) => void) {
    this.#find = find;
  }

  /** How many runs are held. */
  get kept(): number {
    return this.#kept;
  }

  take(run: IdRun): void {
    for (const [step, open] of this.#bySteps) {
      if (step === run.step) this.#meet(open.get(run.first % step), run);
      else this.#meetAll(open, run);
    }
    let open = this.#bySteps.get(run.step);
    if (open === undefined) {
      open = new Map();
      this.#bySteps.set(run.step, open);
    }
    const remainder = run.first % run.step;
    const before = open.get(remainder);
    if (before === undefined) this.#kept += 1;
    if (before === undefined || before.last < run.last) open.set(remainder, run);
    if (this.#kept >= this.#limit) this.#dropEnded(run.first);
  }

  /** Compares a run with those of another step, and drops those that have ended. */
  #meetAll(open: Map<bigint, IdRun>, run: IdRun): void {
    for (const [remainder, other] of open) {
      if (other.last < run.first) {
        open.delete(remainder);
        this.#kept -= 1;
      } else if (sharesId(other, run)) this.#meet(other, run);
    }
  }

  #meet(other: IdRun | undefined, run: IdRun): void {
    if (other === undefined || other.unit === run.unit || other.last < run.first) return;
    const message = `two batches share IDs: ${other.first} to ${other.last} and ${run.first} to ${run.last}`;
    this.#find({ code: 'OVERLAP', message, locations: [other, run] });
  }

  #dropEnded(first: bigint): void {
    this.#kept = 0;
    for (const [step, open] of this.#bySteps) {
      for (const [remainder, { last }] of open) if (last < first) open.delete(remainder);
      if (open.size === 0) this.#bySteps.delete(step);
      this.#kept += open.size;
    }
    this.#limit = Math.max(MAX_ENDED, 2 * this.#kept);
  }
}

/** Whether two runs, of which `b` begins no earlier, have an ID in common. */
export function sharesId(
  a: Pick<IdRun, 'first' | 'last' | 'step'>,
  b: Pick<IdRun, 'first' | 'last' | 'step'>,
): boolean {
  // x = b.first + b.step·k must be a.first modulo a.step; the least such k >= 0 gives the first ID in common.
  const [divisor, inverse] = extendedGcd(b.step % a.step, a.step);
  const gap = modulo(a.first - b.first, a.step);
  if (gap % divisor !== 0n) return false;
  const k = modulo((gap / divisor) * inverse, a.step / divisor);
  const shared = b.first + k * b.step;
  return shared <= a.last && shared <= b.last;
}

/** The greatest common divisor of `value` and `modulus`, and what `value` times it is the divisor modulo `modulus`. */
function extendedGcd(value: bigint, modulus: bigint): readonly [bigint, bigint] {
  let [a, b, x, y] = [value, modulus, 1n, 0n];
  while (b !== 0n) {
    const quotient = a / b;
    [a, b, x, y] = [b, a - quotient * b, y, x - quotient * y];
  }
  return [a, x];
}

function modulo(value: bigint, modulus: bigint): bigint {
  return ((value % modulus) + modulus) % modulus;
}

/** Who allocated a batch, as its evidence says: the holder of a worker ID, under the fence of its term. */
export type TermName = Pick<IdBatch, 'datacenterId' | 'workerId' | 'fence'>;

interface AuditedTerm extends TermName {
  readonly layout: Layout;
}

/** The highest ceiling that was witnessed, in ticks of its layout. */
interface Witnessed {
  readonly ticks: number;
  /** The layout of the ceiling; undefined if an earlier release wrote it. */
  readonly layout?: LayoutReference | undefined;
}

/**
 * The ceilings that the witness topic shows. A term witnesses each reservation before it uses it, and compaction keeps
 * the last record of each name. So a term whose records are all there has no ID at its highest ceiling or above.
 *
 * A successor removes the records of earlier terms. Ceilings only rise, so what is left of the worker ID bounds those
 * terms, too, though not as closely. Memory holds one ceiling for each term that the topic shows.
 */
export class WitnessedCeilings {
  readonly #terms = new Map<string, Witnessed>();
  readonly #workers = new Map<string, Witnessed>();
  /** Terms of which a record was removed. */
  readonly #removed = new Set<string>();
  readonly #rebuiltMs = new Map<string, number>();

  /**
   * Takes the records of the witness topic, in log order. Workers refuse to start on an unreadable one, so it is left
   * out here.
   */
  take({ key, value, headers, timestampMs }: TopicRecord): void {
    const name = key?.toString('latin1') ?? '';
    const term = readWitnessKey(name);
    if (term === undefined) {
      if (value !== null && /^[0-9]+$/.test(name)) this.#rebuiltMs.set(name, timestampMs);
      return;
    }
    if (value === null) {
      this.#removed.add(termText(term));
      return;
    }
    const witness = readWitness(name, value.toString('latin1'), headers);
    if (witness === undefined) return;
    raise(this.#terms, termText(term), witness);
    raise(this.#workers, workerText(term), witness);
  }

  /**
   * All IDs of a term are below this tick; undefined if the topic no longer shows any ceiling of its worker ID in this
   * layout.
   */
  ceilingOf(term: TermName, layout: LayoutReference): number | undefined {
    const name = termText(term);
    const own = this.#removed.has(name) ? undefined : this.#terms.get(name);
    const witnessed = own ?? this.#workers.get(workerText(term));
    if (witnessed?.layout === undefined) return witnessed?.ticks;
    const { layoutFingerprint, epochMs } = witnessed.layout;
    return layoutFingerprint === layout.layoutFingerprint && epochMs === layout.epochMs ? witnessed.ticks : undefined;
  }

  /**
   * When the namespace of a datacenter was last rebuilt, by the broker's clock. The new etcd may have repeated fences
   * since.
   */
  rebuiltMs(datacenterId: number): number {
    return this.#rebuiltMs.get(String(datacenterId)) ?? Number.NEGATIVE_INFINITY;
  }
}

function raise(ceilings: Map<string, Witnessed>, name: string, { ticks, layout }: Witnessed): void {
  if ((ceilings.get(name)?.ticks ?? -1) < ticks) ceilings.set(name, { ticks, layout });
}

function termText(term: TermName): string {
  return `${workerText(term)}/${term.fence}`;
}

function workerText({ datacenterId, workerId }: Omit<TermName, 'fence'>): string {
  return `${datacenterId}/${workerId}`;
}

/** Terms that are known by number. A forged ledger may name more; their batches are not compared. */
const MAX_TERMS = 1_000_000;

/** Numbers the terms that batches name, so that each batch is stored with a small number. */
export class Terms {
  readonly #numbers = new Map<string, number>();
  readonly #terms: AuditedTerm[] = [];

  /** The number of a term; undefined for a new one beyond the bound. */
  numberOf({ datacenterId, workerId, fence }: TermName, layout: Layout): number | undefined {
    const name = `${termText({ datacenterId, workerId, fence })} ${layoutText(layout)}`;
    const known = this.#numbers.get(name);
    if (known !== undefined || this.#terms.length >= MAX_TERMS) return known;
    this.#numbers.set(name, this.#terms.length);
    return this.#terms.push({ datacenterId, workerId, fence, layout }) - 1;
  }

  at(number: number): AuditedTerm | undefined {
    return this.#terms[number];
  }
}

function layoutText({ fingerprint, epochMs }: Layout): string {
  return `${fingerprint}/${epochMs}`;
}

export interface TermSearchOptions {
  readonly terms: Terms;
  readonly witnesses: WitnessedCeilings;
  /** Twice the largest difference between the clocks of brokers, or of a worker and a broker. */
  readonly clockMarginMs: number;
  readonly find: (finding: Finding) => void;
}

/**
 * Checks each run of IDs against the term that its batch names. Runs come ordered by their first ID. Only a rebuild of
 * the namespace lets fences fall. The topic shows when the last one was; what was allocated before it is compared with
 * nothing after it. Memory holds one run of each worker ID.
 */
export class TermSearch {
  readonly #options: TermSearchOptions;
  readonly #last = new Map<string, { readonly run: IdRun; readonly term: AuditedTerm }>();

  constructor(options: TermSearchOptions) {
    this.#options = options;
  }

  take(run: IdRun): void {
    const term = run.term === undefined ? undefined : this.#options.terms.at(run.term);
    if (term === undefined) return;
    this.#compareCeiling(run, term);
    this.#compareFence(run, term);
  }

  #compareCeiling(run: IdRun, term: AuditedTerm): void {
    const { workerId, fence, layout } = term;
    const { epochMs, fingerprint: layoutFingerprint } = layout;
    const ceiling = this.#options.witnesses.ceilingOf(term, { epochMs, layoutFingerprint });
    if (ceiling === undefined || decompose(layout, run.last).ticks < ceiling) return;
    const message = `${run.last} is not below the ceiling that worker ID ${workerId} witnessed under fence ${fence}`;
    this.#options.find({ code: 'ABOVE_CEILING', message, locations: [run] });
  }

  #compareFence(run: IdRun, term: AuditedTerm): void {
    const name = `${workerText(term)} ${layoutText(term.layout)}`;
    const before = this.#last.get(name);
    this.#last.set(name, { run, term });
    if (before === undefined || before.term.fence <= term.fence || this.#isRebuilt(before.run, term)) return;
    const message =
      `worker ID ${term.workerId} has ${run.first} under fence ${term.fence}, ` +
      `though the lower ID ${before.run.last} is of fence ${before.term.fence}`;
    this.#options.find({ code: 'FENCE', message, locations: [before.run, run] });
  }

  /** Whether the namespace was rebuilt after a run was allocated: no ID has a time after its allocation. */
  #isRebuilt(before: IdRun, { datacenterId, layout }: AuditedTerm): boolean {
    const rebuiltMs = this.#options.witnesses.rebuiltMs(datacenterId) + this.#options.clockMarginMs;
    if (rebuiltMs === Number.NEGATIVE_INFINITY) return false;
    return decompose(layout, before.last).ticks <= toTicks(layout, wallMs(rebuiltMs));
  }
}
