import type { Span } from '../../adapters/kafka/topics/offsets.ts';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import type { IdBatch } from '../../codec/id-batch.ts';
import { decodeIdReply } from '../../codec/id-reply.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { readLedgerKey } from '../../codec/ledger-key.ts';
import { DEFAULT_HEADER_NAMES, readRequestId } from '../../codec/request-headers.ts';
import { customText, layoutFinder } from '../../core/find-layout.ts';
import type { Layout } from '../../core/layout.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { Finding } from './check.ts';
import { batchDigest, batchViolations, mergeRanges, packRanges } from './evidence.ts';
import { type BatchLocation, logOf } from './location.ts';
import { Losses, LostTails } from './lost.ts';
import type { FoundNumbers } from './number-store.ts';
import { NumberOrder, type SequenceAccount } from './sequences.ts';
import type { FoundBatch } from './store.ts';
import { Terms, WitnessedCeilings } from './witnesses.ts';

export interface ReadCounts {
  entries: number;
  markers: number;
  /** Records of sequences, and replies with numbers. */
  ofSequences: number;
  replies: number;
  /** Error replies, by code. */
  readonly errors: Map<string, number>;
  /** Those of `errors` that were written since a replay began. */
  readonly errorsAgain: Map<string, number>;
  /** Batches of an unknown layout, whose IDs can't be checked. */
  unknownLayouts: number;
  ids: bigint;
}

export interface AuditSink {
  readonly add: (batch: FoundBatch) => void;
  readonly addNumbers: (numbers: FoundNumbers) => void;
  readonly find: (finding: Finding) => void;
  /** Whether a reply was written since a replay began. */
  readonly againFrom?: (record: TopicRecord) => boolean;
}

export interface AuditReaderOptions {
  /**
   * Twice the largest difference between two brokers' clocks. A partition's leaders change, so an entry that is gone may have
   * a later time than the oldest one that is left.
   */
  readonly clockMarginMs: number;
  /** A layout to check batches against besides the presets. */
  readonly layout?: Layout;
}

/** Decodes records into batches, and reports each that is invalid in itself. */
export class AuditReader {
  readonly #sink: AuditSink;
  readonly #layoutOf = layoutFinder();
  /** The ledger names its layout by fingerprint alone. */
  readonly #customText: string | undefined;
  readonly clockMarginMs: number;
  readonly #starts: ReadonlyMap<string, number>;
  readonly #oldest = new Map<string, number>();
  readonly #numberOrder: NumberOrder;
  /** Numbers that the ledgers have lost. */
  readonly losses = new Losses();
  readonly lostTails: LostTails;
  get accounts(): readonly SequenceAccount[] {
    return this.#numberOrder.accounts;
  }
  readonly terms = new Terms();
  readonly witnesses = new WitnessedCeilings();
  readonly counts: ReadCounts = {
    entries: 0,
    markers: 0,
    ofSequences: 0,
    replies: 0,
    errors: new Map(),
    errorsAgain: new Map(),
    unknownLayouts: 0,
    ids: 0n,
  };

  /** `ledger`: where the partitions of the ledgers start. */
  constructor(ledger: readonly Span[], sink: AuditSink, { clockMarginMs, layout }: AuditReaderOptions) {
    this.#sink = sink;
    this.#numberOrder = new NumberOrder({ find: sink.find, add: sink.addNumbers, losses: this.losses });
    this.lostTails = new LostTails(ledger);
    this.clockMarginMs = clockMarginMs;
    this.#customText = layout && customText(layout);
    this.#starts = new Map(ledger.map((span) => [logOf(span), span.from]));
  }

  /**
   * The time from which the ledgers have every decision, once they were read: the margin after the latest of the times of
   * the oldest entries of all trimmed partitions. Infinity if a partition was emptied; -Infinity if none was trimmed.
   */
  get ledgerReachesMs(): number {
    const trimmed = [...this.#starts].filter(([, start]) => start > 0);
    const reaches = trimmed.map(([log]) => this.#oldest.get(log) ?? Number.POSITIVE_INFINITY);
    return Math.max(Number.NEGATIVE_INFINITY, ...reaches) + this.clockMarginMs;
  }

  ledgerRecord(record: TopicRecord): void {
    const { offset, key, value, headers, timestampMs: timeMs } = record;
    const log = logOf(record);
    if (!this.#oldest.has(log)) this.#oldest.set(log, timeMs);
    this.#attempt('ledger', record, () => {
      if (value === null) throw new TypeError('it has no value');
      const entry = decodeLedgerEntry(value, headers);
      if (entry.kind === 'marker') {
        this.counts.markers += 1;
        if (entry.end > offset) this.lostTails.add(log, timeMs);
        return;
      }
      if (key === null) throw new TypeError('an entry has no key');
      const named = readLedgerKey(key);
      if (named.kind !== entry.kind)
        throw new TypeError(`an entry of kind ${entry.kind} has a key of kind ${named.kind}`);
      if (entry.kind !== 'batch' || named.kind !== 'batch') {
        this.counts.ofSequences += 1;
        if (entry.kind === 'batch' || named.kind === 'batch') return;
        const requestId = named.kind === 'numbers' ? named.requestId : Buffer.alloc(0);
        const location = { ...locationOf('ledger', record), requestId };
        this.#numberOrder.take(log, named.sequence, entry, location, timeMs);
        return;
      }
      this.counts.entries += 1;
      const location: BatchLocation = { ...locationOf('ledger', record), requestId: named.requestId };
      if (entry.end > offset) this.lostTails.hold(log, { location, end: entry.end });
      const doubtful = entry.end < (this.#starts.get(log) ?? 0);
      this.#add(location, entry.batch, { timeMs, replyTopic: entry.replyTopic, doubtful });
    });
  }

  /** Takes the records of the witness topic, in log order. */
  witnessRecord(record: TopicRecord): void {
    this.witnesses.take(record);
  }

  /** Call it after the last record. */
  end(): void {
    this.#numberOrder.end();
    for (const { location, end } of this.lostTails.held()) {
      const message = `it can't be read: its writer had read to ${end}, after its own offset`;
      this.#sink.find({ code: 'UNREADABLE', message, locations: [location] });
    }
  }

  replyRecord(record: TopicRecord): void {
    const { key, value, timestampMs: timeMs } = record;
    this.#attempt('reply', record, () => {
      this.counts.replies += 1;
      if (value === null) throw new TypeError('it has no value');
      const reply = decodeIdReply(value);
      const requestId = readRequestId(record.headers, DEFAULT_HEADER_NAMES) ?? reply.correlationId;
      const location: BatchLocation = { ...locationOf('reply', record), requestId };
      if (key === null || !key.equals(reply.correlationId)) throw new TypeError('its key is not its correlation ID');
      const again = this.#sink.againFrom?.(record) === true;
      if ('error' in reply) {
        const { code } = reply.error;
        count(this.counts.errors, code);
        if (again) count(this.counts.errorsAgain, code);
      } else if ('batch' in reply) {
        // The record's own time may be when it was sent, long after the decision.
        this.#add(location, reply.batch, { timeMs: Math.min(timeMs, reply.batch.generatedAtMs), again });
      } else {
        this.counts.ofSequences += 1;
        this.#sink.addNumbers({ ...location, ...reply.numbers, timeMs, isRenewal: false, isVoid: false });
      }
    });
  }

  #add(
    location: BatchLocation,
    batch: IdBatch,
    fields: Pick<FoundBatch, 'timeMs' | 'replyTopic' | 'doubtful' | 'again'>,
  ): void {
    const layout = this.#layoutOf(batch, this.#customText);
    if (layout === undefined) this.counts.unknownLayouts += 1;
    else {
      for (const message of batchViolations(batch, layout)) {
        this.#sink.find({ code: 'OUTSIDE_EVIDENCE', message, locations: [location] });
      }
    }
    if (location.source === 'ledger') {
      this.counts.ids += BigInt(batch.ranges.reduce((sum, range) => sum + range.count, 0));
    }
    const ranges = packRanges(mergeRanges(batch.ranges, batch.step), batch.step);
    const term = layout && this.terms.numberOf(batch, layout);
    this.#sink.add({ ...location, ...fields, digest: batchDigest(batch, ranges), ranges, term });
  }

  /** A record that can't be read is a finding. */
  #attempt(source: BatchLocation['source'], record: TopicRecord, read: () => void): void {
    try {
      read();
    } catch (error) {
      if (!(error instanceof IdallocError || error instanceof TypeError || error instanceof RangeError)) throw error;
      const message = `it can't be read: ${describeError(error)}`;
      this.#sink.find({ code: 'UNREADABLE', message, locations: [locationOf(source, record)] });
    }
  }
}

function locationOf(source: BatchLocation['source'], { topic, partition, offset, key }: TopicRecord): BatchLocation {
  const requestId = source === 'ledger' ? (key ?? Buffer.alloc(0)).subarray(1) : (key ?? Buffer.alloc(0));
  return { source, topic, partition, offset, requestId };
}

function count(counts: Map<string, number>, code: string): void {
  const name = counts.size < 100 || counts.has(code) ? code : 'others'; // error codes are not limited to ours
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
