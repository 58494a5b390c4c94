import type { Span, TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { readDeadLetterNote } from '../../codec/dead-letter.ts';
import { asSingleObject, confluentSchemaId } from '../../codec/framing.ts';
import type { IdBatch } from '../../codec/id-batch.ts';
import { decodeIdReply } from '../../codec/id-reply.ts';
import { ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../codec/id-request.ts';
import { countsAt, type DecidingEntry, decodeLedgerEntry, requestHash } from '../../codec/ledger-entry.ts';
import { type LedgerKey, readLedgerKey } from '../../codec/ledger-key.ts';
import { decidingIdOf, type FullRequest, homeKeyOf, mergeRequest, salvageAddress } from '../../codec/request.ts';
import {
  DEFAULT_HEADER_NAMES,
  type HeaderNames,
  type RecordHeaders,
  readRequestId,
} from '../../codec/request-headers.ts';
import { isAdoption, readReplay } from '../../codec/request-position.ts';
import { RENEWAL } from '../../codec/sequence-entry.ts';
import type { Layout } from '../../core/layout.ts';
import { customText, layoutFinder } from '../../core/layout-choice.ts';
import { describeError, IdallocError, unlessInvalid } from '../../errors.ts';
import { partitionFor } from '../../kafka/records/record.ts';
import {
  type BatchLocation,
  type DecidedRequest,
  type Finding,
  type FoundAnswer,
  type FoundBatch,
  type FoundLetter,
  type FoundNumbers,
  type FoundRequest,
  logOf,
} from './found.ts';
import { batchDigest, batchViolations, mergeRanges, packRanges, Terms, WitnessedCeilings } from './ids.ts';
import { Losses, NumberOrder, type SequenceAccount } from './numbers.ts';
import { type AuditLogs, decidingPartitions, LogReach, LostTails } from './reach.ts';

/*
 * Everything that an audit knows comes through here: records of the ledgers, of requests, replies, dead letters and
 * witnesses, in any order of the topics, but in log order within each partition. A record is decoded, checked for what
 * it contradicts in itself, and becomes something small that is stored until all of them can be compared.
 *
 * Two things can't wait for the comparison, since they follow from the order of the log: how far each partition reaches
 * back, and how the numbers of a sequence follow each other. And one thing must not happen: that the audit stops at a
 * record which it can't read. A record that is damaged, or that another program wrote, is a finding like any other, and
 * the audit goes on.
 */

export class ReadCounts {
  /** Records of the request topic, forwarded copies included. */
  requests = 0;
  entries = 0;
  markers = 0;
  /** Records of sequences, and replies with numbers. */
  ofSequences = 0;
  replies = 0;
  /** Error replies, by code. */
  readonly errors = new Map<string, number>();
  /** How many of them were written since a replay began. */
  readonly errorsAgain = new Map<string, number>();
  /** Batches of an unknown layout, whose IDs can't be checked. */
  unknownLayouts = 0;
  ids = 0n;
}

export interface AuditSink {
  readonly add: (found: FoundBatch | FoundAnswer | FoundRequest) => void;
  readonly addLetter?: (letter: FoundLetter) => void;
  readonly addNumbers: (numbers: FoundNumbers) => void;
  readonly find: (finding: Finding) => void;
  /** Whether a reply was written since a replay began. */
  readonly againFrom?: (record: TopicRecord) => boolean;
  /** Gets each record as well, before what was found in it. */
  readonly record?: (record: TopicRecord) => void;
}

export interface AuditReaderOptions {
  /**
   * Twice the largest difference between two brokers' clocks. A partition's leaders change, so an entry that is gone
   * may have a later time than the oldest one that is left.
   */
  readonly clockMarginMs: number;
  /** The names of the headers of requests. */
  readonly names?: HeaderNames;
  /** How many partitions of the request topic are served, and of its ledger decide. */
  readonly requestPartitions?: number;
  /** A layout to check batches against besides the presets. */
  readonly layout?: Layout;
}

/** The offset of a request that no longer shows where it is. */
const NOWHERE = -1;

/** Longer after its IDs were allocated, an entry repeats an older one: their writer gives up before. */
const MAX_APPEND_MS = 60_000;

/** Decodes records into batches, and reports each that is invalid in itself. */
export class AuditReader {
  readonly #sink: AuditSink;
  readonly #layoutOf = layoutFinder();
  /** The ledger names its layout by fingerprint alone. */
  readonly #customText: string | undefined;
  readonly clockMarginMs: number;
  readonly #names: HeaderNames;
  readonly #numberOrder: NumberOrder;
  /** What each topic is; those without an entry are reply topics. */
  readonly #takers: ReadonlyMap<string, (record: TopicRecord) => void>;
  /** How many partitions decide, in each ledger. */
  readonly #partitions: ReadonlyMap<string, number>;
  readonly logs: AuditLogs;
  readonly ledgerReach: LogReach;
  readonly requestReach: LogReach;
  readonly replyReach: LogReach;
  readonly letterReach: LogReach;
  /** Numbers that the ledgers have lost. */
  readonly losses = new Losses();
  readonly lostTails: LostTails;
  /** The ledger partitions that state up to where a replay was answered. */
  readonly replayed = new Set<string>();
  /** Where each ledger partition was last adopted: entries before that have request offsets of another topic. */
  readonly adopted = new Map<string, number>();
  get accounts(): readonly SequenceAccount[] {
    return this.#numberOrder.accounts;
  }
  readonly terms = new Terms();
  readonly witnesses = new WitnessedCeilings();
  readonly counts = new ReadCounts();

  constructor(logs: AuditLogs, sink: AuditSink, options: AuditReaderOptions) {
    const { ledger, requests = [], replies = [], letters = [], witness = [] } = logs;
    const { clockMarginMs, layout, names = DEFAULT_HEADER_NAMES } = options;
    this.#sink = sink;
    this.#names = names;
    this.#partitions = decidingPartitions(ledger, options.requestPartitions);
    this.lostTails = new LostTails(this.#partitions);
    this.clockMarginMs = clockMarginMs;
    this.#customText = layout && customText(layout);
    this.logs = logs;
    this.ledgerReach = new LogReach(ledger);
    const startOf = (log: string) => this.ledgerReach.startOf(log);
    this.#numberOrder = new NumberOrder({ find: sink.find, add: sink.addNumbers, losses: this.losses, startOf });
    this.requestReach = new LogReach(requests);
    this.replyReach = new LogReach(replies);
    this.letterReach = new LogReach(letters);
    const takers = (spans: readonly Span[], take: (record: TopicRecord) => void) =>
      spans.map(({ topic }) => [topic, take] as const);
    this.#takers = new Map([
      ...takers(ledger, (record) => this.ledgerRecord(record)),
      ...takers(requests, (record) => this.requestRecord(record)),
      ...takers(letters, (record) => this.letterRecord(record)),
      ...takers(witness, (record) => this.witnesses.take(record)),
    ]);
  }

  /**
   * The time from which the ledgers have every decision, once they were read: the margin after the latest of the times
   * of the oldest entries of all trimmed partitions. Infinity if a partition was emptied; -Infinity if none was
   * trimmed.
   */
  get ledgerReachesMs(): number {
    return this.ledgerReach.ofAll() + this.clockMarginMs;
  }

  /** Takes a record of any of the topics; those of each partition come in log order. */
  take(record: TopicRecord): void {
    this.#sink.record?.(record);
    const take = this.#takers.get(record.topic);
    if (take === undefined) this.replyRecord(record);
    else take(record);
  }

  requestRecord(record: TopicRecord): void {
    this.requestReach.see(record);
    this.counts.requests += 1;
    const [own] = this.logs.ledger;
    const partitions = this.#partitions.get(own?.topic ?? '') ?? 1;
    this.#sink.add(foundRequest(record, { names: this.#names, partitions }));
  }

  letterRecord(record: TopicRecord): void {
    this.letterReach.see(record);
    const topic = this.logs.requests?.[0]?.topic;
    if (topic === undefined) return;
    for (const letter of foundLetters(record, topic)) this.#sink.addLetter?.(letter);
  }

  ledgerRecord(record: TopicRecord): void {
    const { offset, key, value, headers, timestampMs: timeMs } = record;
    const log = logOf(record);
    this.ledgerReach.see(record);
    this.#attempt('ledger', record, () => {
      if (value === null) throw new TypeError('it has no value');
      const entry = decodeLedgerEntry(value, headers);
      if (entry.kind === 'marker') {
        this.counts.markers += 1;
        if (readReplay(record) !== undefined) this.replayed.add(log);
        if (isAdoption(record)) this.adopted.set(log, offset);
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
        if (entry.kind === 'numbers' && countsAt(entry, offset)) {
          const { count, replyTopic } = entry;
          const of = this.#requestOf(location, named, entry);
          this.#sink.add({ ...location, kind: 'answer', timeMs, sequence: named.sequence, count, replyTopic, of });
        }
        return;
      }
      this.counts.entries += 1;
      const location: BatchLocation = { ...locationOf('ledger', record), requestId: named.requestId };
      const { replyTopic, batch, end } = entry;
      const decidedMs = batch.generatedAtMs - this.clockMarginMs;
      if (end > offset) this.lostTails.hold(log, { location, end, decidedMs });
      const doubtful = entry.end < this.ledgerReach.startOf(log);
      const isRenewal = timeMs - batch.generatedAtMs > MAX_APPEND_MS + this.clockMarginMs;
      const own = this.#requestOf(location, named, entry);
      // Its writer had read a longer log: the ledger was copied to other offsets since, and the requests may be, too.
      const of = { ...own, isRenewal, offset: end > offset ? NOWHERE : own.offset };
      // An entry is appended after its IDs were allocated, whatever its broker's clock says.
      const shownMs = Math.max(timeMs, batch.generatedAtMs);
      this.#add(location, batch, { timeMs: shownMs, replyTopic, doubtful, of });
    });
  }

  /** Call it after the last record; `now`: where the partitions start by then. */
  end(now: readonly Span[] = []): void {
    for (const reach of [this.ledgerReach, this.requestReach, this.replyReach, this.letterReach])
      reach.nowStartsAt(now);
    this.#numberOrder.end();
    for (const { location, end } of this.lostTails.held()) {
      const message = `it can't be read: its writer had read to ${end}, after its own offset`;
      this.#sink.find({ code: 'UNREADABLE', message, locations: [location] });
    }
  }

  replyRecord(record: TopicRecord): void {
    const { key, value, headers, timestampMs: timeMs } = record;
    // One that was sent again has the time of its decision, or, where the topic sets times, one long after that.
    const isAgain = headers[this.#names.replayed] !== undefined;
    this.replyReach.see(record, !isAgain);
    this.#attempt('reply', record, () => {
      this.counts.replies += 1;
      if (value === null) throw new TypeError('it has no value');
      const reply = decodeIdReply(value);
      const { correlationId } = reply;
      const requestId = readRequestId(headers, this.#names) ?? correlationId;
      const location: BatchLocation = { ...locationOf('reply', record), requestId };
      if (key === null || !key.equals(correlationId)) throw new TypeError('its key is not its correlation ID');
      const again = this.#sink.againFrom?.(record) === true;
      if ('error' in reply) {
        const { code } = reply.error;
        count(this.counts.errors, code);
        if (again) count(this.counts.errorsAgain, code);
        this.#sink.add({ ...location, kind: 'answer', timeMs, code, correlationId });
      } else if ('batch' in reply) {
        // The record's own time may be when it was sent, long after the decision.
        const decidedMs = Math.min(timeMs, reply.batch.generatedAtMs);
        this.#add(location, reply.batch, { timeMs: decidedMs, again, correlationId });
      } else {
        this.counts.ofSequences += 1;
        this.#sink.addNumbers({ ...location, ...reply.numbers, timeMs, kind: isAgain ? 'again' : 'told', end: 0 });
        const { sequence, count: numbers } = reply.numbers;
        this.#sink.add({ ...location, kind: 'answer', timeMs, sequence, count: numbers, correlationId });
      }
    });
  }

  /** An entry must be where its request is decided, and must not contradict itself. */
  #requestOf(location: BatchLocation, named: LedgerKey, entry: DecidingEntry): DecidedRequest {
    const { request, violations } = decidedRequest(location, named, entry, this.#partitions.get(location.topic) ?? 1);
    for (const message of violations) this.#sink.find({ code: 'MISMATCH', message, locations: [location] });
    return request;
  }

  #add(
    location: BatchLocation,
    batch: IdBatch,
    fields: Pick<FoundBatch, 'timeMs' | 'replyTopic' | 'doubtful' | 'again' | 'of' | 'correlationId'>,
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

/** How workers read requests. */
interface RequestReading {
  readonly names: HeaderNames;
  /** How many partitions the ledger has: they decide. */
  readonly partitions: number;
}

const NONE = Buffer.alloc(0);

/** A record of the request topic; what can't be read as a request is one that workers reject. */
function foundRequest(record: TopicRecord, { names, partitions }: RequestReading): FoundRequest {
  const { topic, partition, offset, timestampMs: timeMs, value } = record;
  const headers = record.headers as RecordHeaders;
  const place = { kind: 'request', source: 'request', topic, partition, offset, timeMs } as const;
  try {
    const request = readRequest(value, headers, names);
    const { count, replyTopic, correlationId, replyPartition, sequence, route } = request;
    return {
      ...place,
      requestId: decidingIdOf(request),
      correlationId,
      replyTopic,
      replyPartition,
      count,
      hash: requestHash(count, replyTopic),
      sequence,
      home: partitionFor(homeKeyOf(request), partitions, () => 0),
      origin: route.hops > 0 ? route.origin : undefined,
      isResent: route.firstSentMs !== undefined,
    };
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    const { requestId, correlationId = NONE, replyTopic = '' } = salvageAddress(value, headers, names);
    const own = { requestId: requestId ?? correlationId, correlationId, replyTopic, count: 0, hash: NONE };
    return { ...place, ...own, home: partition, isResent: false, rejected: error.code };
  }
}

/**
 * A schema ID of a registry is not looked up: a body in either schema of requests is one. Where workers knew neither,
 * there is a dead letter, which is an answer, too.
 */
function readRequest(value: Buffer | null, headers: RecordHeaders, names: HeaderNames): FullRequest {
  if (value === null || confluentSchemaId(value) === undefined) return mergeRequest(value, headers, names);
  const wide = unlessInvalid(() => mergeRequest(asSingleObject(WIDE_REQUEST_HEADER, value), headers, names));
  return wide ?? mergeRequest(asSingleObject(ID_REQUEST_HEADER, value), headers, names);
}

/**
 * The records of a request topic that a dead letter stands for; none if it is about another topic, or not a worker's.
 */
function foundLetters({ headers }: TopicRecord, requestTopic: string): FoundLetter[] {
  const { topic, partition, offsets, timestampMs, isRange } = readDeadLetterNote(headers as RecordHeaders);
  if (topic !== requestTopic || partition === undefined || offsets === undefined) return [];
  // A letter for several has the time of the first.
  const recordMs = isRange || timestampMs === -1 ? undefined : timestampMs;
  return offsets.map((offset) => ({ partition, offset, recordMs }));
}

/**
 * What an entry says of its request, and how it contradicts itself, or the place where it is: the partition of its
 * request's home, of so many.
 */
function decidedRequest(
  { partition }: BatchLocation,
  named: LedgerKey,
  entry: DecidingEntry,
  partitions: number,
): { readonly request: DecidedRequest; readonly violations: readonly string[] } {
  const { count, replyTopic, requestHash: hash, requestOffset: offset } = entry;
  const homeKey = named.kind === 'batch' ? named.requestId : Buffer.from(named.sequence, 'latin1');
  const home = partitionFor(homeKey, partitions, () => 0);
  return {
    request: { offset, hash, isRenewal: entry.kind === 'numbers' && entry.at === RENEWAL },
    violations: [
      ...(home === partition
        ? []
        : [`an entry is in partition ${partition}, but partition ${home} decides its request`]),
      ...(requestHash(count, replyTopic).equals(hash)
        ? []
        : [`an entry has another request hash than that of ${count} on ${replyTopic}`]),
    ],
  };
}
