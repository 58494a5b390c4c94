import { readDeadLetterNote } from '../../src/codec/dead-letter.ts';
import { decodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { decodeLedgerKey, readLedgerKey } from '../../src/codec/ledger-key.ts';
import { DEFAULT_HEADER_NAMES, FIRST_SENT, type Origin, readRoute } from '../../src/codec/request-headers.ts';
import { decodePosition, isAdoption, readReplay } from '../../src/codec/request-position.ts';
import { DENSE, isDense } from '../../src/kafka/records/record.ts';
import type { OffsetCommitRequest } from '../../src/kafka/wire/group-apis.ts';
import type { ListOffsetsRequest } from '../../src/kafka/wire/record-apis.ts';
import { headOf, isCommitMarker, type PlainRecord, recordsOf } from '../support/fake-kafka/batches.ts';
import type { CallObserver } from '../support/fake-kafka/network.ts';
import type { Partition, PartitionObserver } from '../support/fake-kafka/partition.ts';
import { EqualRequests, isLost, mayBePassedOver, placeName } from './decisions.ts';
import type { Append, History, RequestPlace, SentRequest } from './history.ts';
import { type Pair, pairOf } from './pairs.ts';
import { isReplyTopic, START_MS, TAG, WITNESS } from './setting.ts';
import { CompactedWitness } from './term-checks.ts';
import type { World } from './world.ts';

/** What a record without a value is rejected with. */
const JUNK_CODE = 'MALFORMED_REQUEST';

export type Draft = Omit<
  SentRequest,
  'order' | 'tag' | 'timestampMs' | 'partition' | 'offset' | 'life' | 'origin' | 'sender'
>;

interface Sent {
  readonly sent: number;
  /** The process of the worker; empty for other senders. */
  readonly process: string;
}

/** Observes the brokers, and adds records to the history once readers may see them. */
export class Recorder implements PartitionObserver {
  readonly #world: World;
  readonly #history: History;
  /** When each batch or commit was sent, and by which process. */
  readonly #sentAt = new WeakMap<object, Sent>();
  /** By topic, partition and offset: when the batch there was sent. */
  readonly #stored = new Map<string, Sent>();
  readonly #firstSends = new FirstSends();
  readonly #witness = new CompactedWitness();
  readonly #drafts = new Map<string, Draft>();
  /** Where records were that are not requests, by partition and offset. */
  readonly #junk = new Set<string>();
  /** The records with a tag: the one that was sent, and its forwarded copies. */
  readonly #places = new Map<string, SentRequest[]>();
  /** Requests of open transactions, by producer. */
  readonly #undecided = new Map<bigint, SentRequest[]>();
  /** Requests that were answered, by reply or dead letter. */
  readonly #answered = new Set<string>();
  readonly #equals = new EqualRequests();
  /** The highest offset that was ever committed, by partition. */
  readonly #furthest = new Map<number, number>();

  /** The partitions that the coordinator has assigned to a member. */
  assignedTo: (pair: Pair, memberId: string) => readonly number[] = () => [];

  /** Called for each accepted commit. */
  onCommit: (process: string, partition: number, offset: number) => void = () => {};

  constructor(world: World, history: History) {
    this.#world = world;
    this.#history = history;
  }

  /**
   * The tags of requests in partitions that were added: their copies at home are in the history, they themselves are
   * not.
   */
  readonly #strays: string[] = [];

  /** A request was sent to a partition that was added. */
  strayed(tag: string): void {
    this.#strays.push(tag);
  }

  /** Announces a request with this tag, with its content. */
  announce(tag: string, draft: Draft): void {
    this.#drafts.set(tag, draft);
  }

  /** The content of the request with this tag. */
  draftOf(tag: string): Draft | undefined {
    return this.#drafts.get(tag);
  }

  /** The requests that are not answered or not committed. */
  missing(): { readonly partition: number; readonly what: string }[] {
    const strays = this.#strays.filter((tag) => !this.#places.has(tag));
    const unread = strays.map((tag) => ({ partition: 0, what: `${tag} of an added partition was not forwarded` }));
    const missing = this.#history.requests.flatMap((request) => {
      const { partition, offset } = request;
      if (offset < this.#low(partition) || isLost(this.#history, request)) return [];
      if (mayBePassedOver(this.#history, request)) return [];
      const name = placeName(request);
      const isAnswered = this.#answered.has(name) || this.#equals.answers(request);
      if (!isAnswered) return [{ partition, what: `${name} has no answer` }];
      return offset < (this.#furthest.get(partition) ?? 0) ? [] : [{ partition, what: `${name} is not committed` }];
    });
    return [...unread, ...missing];
  }

  /**
   * A request partition has lost its tail: what was committed beyond its end says nothing about the requests to come.
   */
  lost(partition: number, from: number): void {
    this.#furthest.set(partition, Math.min(from, this.#furthest.get(partition) ?? 0));
  }

  /** The current start of a request partition. */
  #low(partition: number): number {
    const trims = this.#history.requestTrims.filter((trim) => trim.partition === partition);
    return Math.max(0, ...trims.map(({ low }) => low));
  }

  /** Observes the calls of one process to the brokers. */
  observer(process: string): CallObserver {
    const appends = new Map<object, Append>();
    const started = this.#world.tick();
    this.#history.started.set(process, started);
    /**
     * When the end of each request partition was first asked for since the last marker: later a reader may have asked.
     */
    const asked = new Map<number, number>();
    return {
      sent: (call, request) => {
        const sent = this.#world.tick();
        if ('batch' in request) {
          this.#sentAt.set(request.batch, { sent, process });
          if (isReplyTopic(request.topic)) this.#firstSends.add(process, request.batch, sent);
          const pair = pairOf('ledger', request.topic);
          const kind = pair === undefined ? 'clock marker' : kindOf(request.batch);
          if (pair === undefined || kind === 'clock marker') return;
          const begun = {
            sent,
            ended: Number.POSITIVE_INFINITY,
            answered: false,
            marks: kind === 'marker',
            decides: kind === 'decisions',
          };
          const partition = pair.first + request.partition;
          const claim = begun.marks
            ? { through: throughOf(request.batch), asked: asked.get(partition) ?? 0 }
            : undefined;
          if (begun.marks) asked.delete(partition);
          const own = { process, started, partition, ...begun, claim };
          this.#history.appends.push(own);
          appends.set(request, own);
        } else this.#sentAt.set(request, { sent, process });
        if (call !== 'listOffsets') return;
        for (const { topic, partition } of (request as ListOffsetsRequest).partitions) {
          const pair = pairOf('requests', topic);
          if (pair === undefined) continue;
          const known = pair.first + partition;
          asked.set(known, asked.get(known) ?? sent);
        }
      },
      ended: (_call, request, isAnswered) => {
        const own = appends.get(request);
        if (own === undefined) return;
        own.ended = this.#world.tick();
        own.answered = isAnswered;
      },
    };
  }

  stored({ topic, number }: Partition, baseOffset: number, sent: Buffer): void {
    this.#stored.set(`${topic}/${number}/${baseOffset}`, this.#sentAt.get(sent) ?? this.#unknown());
  }

  durable({ topic, number, log }: Partition, from: number, below: number): void {
    if (topic === WITNESS) {
      for (const batch of log.batches(from, below)) {
        const order = this.#world.tick();
        for (const change of this.#witness.apply(batch)) this.#history.witnessed.push({ order, ...change });
      }
      return;
    }
    const [pair, deciding] = [pairOf('requests', topic), pairOf('ledger', topic)];
    const dropping = pairOf('deadLetters', topic);
    if (pair !== undefined) {
      this.#history.requestEnds.push({ order: this.#world.tick(), partition: pair.first + number, end: below });
    }
    for (const batch of log.batches(from, below)) {
      const { baseOffset } = headOf(batch);
      const sent = this.#stored.get(`${topic}/${number}/${baseOffset}`) ?? this.#unknown();
      if (pair !== undefined) this.#onRequests(pair, pair.first + number, batch, sent.process);
      else if (deciding !== undefined)
        for (const record of recordsOf(batch)) this.#decided(deciding.first + number, record, sent);
      else if (dropping !== undefined)
        for (const record of recordsOf(batch)) this.#dropped(dropping.first, record, sent);
      else for (const record of recordsOf(batch)) this.#onReply(topic, record, sent);
    }
  }

  #unknown(): Sent {
    return { sent: this.#world.tick(), process: '' };
  }

  committed(request: OffsetCommitRequest): void {
    const pair = pairOf('group', request.groupId);
    if (pair === undefined) return;
    const accepted = this.#world.tick();
    const { sent, process } = this.#sentAt.get(request) ?? { sent: accepted, process: '' };
    if (request.memberId === '') {
      this.#replayed(pair, process, accepted, request.partitions);
      return;
    }
    const own = this.assignedTo(pair, request.memberId);
    for (const { partition: number, offset, metadata } of request.partitions) {
      const partition = pair.first + number;
      // A partition that was added goes with the one of the same remainder.
      if (!own.includes(pair.first + (number % pair.partitions))) {
        this.#history.foreignCommits.push(
          `${request.memberId} committed ${offset} of partition ${partition}, but is assigned ${own}`,
        );
      }
      if (number >= pair.partitions) continue;
      if (this.#isOfLostLog(partition, offset, metadata)) {
        this.#world.note(() => `requests ${partition}: ${offset} committed, of a log that has lost what was read`);
        continue;
      }
      this.#history.commits.push({ sent, accepted, partition, offset });
      this.onCommit(process, partition, offset);
      for (const loss of this.#history.requestLosses) {
        // A commit from before the loss that arrives late, after the lower one: the next owner can't know.
        if (loss.partition === partition && offset > loss.from && sent < (loss.seen ?? 0)) loss.seen = undefined;
      }
      this.#furthest.set(partition, Math.max(offset, this.#furthest.get(partition) ?? 0));
      this.#world.note(() => `requests ${partition}: ${offset} committed`);
    }
  }

  /**
   * A commit names the last record that was read. If the log has another one there by now, the next reader notices: so
   * it says nothing about the requests that are there.
   */
  #isOfLostLog(partition: number, offset: number, metadata: string | null | undefined): boolean {
    const last = decodePosition(offset, metadata ?? '')?.last;
    if (last === undefined) return false;
    const there = this.#history.requests.findLast((one) => one.partition === partition && one.offset === last.offset);
    return there !== undefined && there.timestampMs !== last.timestampMs;
  }

  /** An operator has moved the offsets of these partitions. */
  #replayed(pair: Pair, process: string, accepted: number, partitions: OffsetCommitRequest['partitions']): void {
    for (const { partition: number, offset: to } of partitions) {
      const partition = pair.first + number;
      this.#history.replays.push({ process, accepted, partition, to });
      this.#world.note(() => `requests ${partition}: moved to ${to} by ${process}`);
    }
  }

  /** Adds the requests of a batch; those of a transaction once it is committed. */
  #onRequests({ first }: Pair, partition: number, batch: Buffer, sender: string): void {
    const { isTransactional, isControl, producerId } = headOf(batch);
    if (isControl) {
      const pending = this.#undecided.get(producerId) ?? [];
      this.#undecided.delete(producerId);
      // A copy of the log has its own records of the transaction.
      const kept = pending.filter((one) => !isLost(this.#history, one));
      if (isCommitMarker(batch)) for (const one of kept) this.#addRequest(one);
      return;
    }
    const records = recordsOf(batch);
    const lane = { isDense: isDense(records.length, batch.length) };
    const sent = records.flatMap(({ offset, headers, timestampMs }): SentRequest[] => {
      const tag = String(headers?.[TAG]);
      const draft = this.#drafts.get(tag);
      if (draft === undefined) {
        this.#junk.add(`${partition}/${offset}`);
        return [];
      }
      const route = readRoute(headers ?? {});
      const origin = route.origin && { ...route.origin, partition: first + route.origin.partition };
      if (route.hops > 0 && origin !== undefined) this.#forwarded(this.#latest(tag, origin));
      const order = this.#world.tick();
      const life = this.#history.requestLosses.filter((loss) => loss.partition === partition).length || undefined;
      const one = { order, tag, timestampMs, partition, offset, life, ...draft, ...lane, origin, sender };
      this.#places.set(tag, [...(this.#places.get(tag) ?? []), one]);
      return [one];
    });
    if (isTransactional) this.#undecided.set(producerId, [...(this.#undecided.get(producerId) ?? []), ...sent]);
    else for (const one of sent) this.#addRequest(one);
    if (records.length > DENSE.records) this.#history.denseBatches += 1;
  }

  #addRequest(request: SentRequest): void {
    const { requests, firstSent } = this.#history;
    requests.push(request);
    if (!firstSent.has(request.correlationId)) firstSent.set(request.correlationId, request.order);
    const { count, correlationId, replyTopic } = request;
    this.#world.note(() => `request ${placeName(request)}: ${count} for ${correlationId} to ${replyTopic}`);
  }

  /** The last request with the tag at this place. */
  #latest(tag: string, { partition, offset }: Origin): RequestPlace {
    const places = this.#places.get(tag) ?? [];
    return places.findLast((one) => one.partition === partition && one.offset === offset) ?? { partition, offset };
  }

  #forwarded({ partition, offset, life }: RequestPlace): void {
    this.#history.forwards.push({ landed: this.#world.tick(), partition, offset, life });
    const name = placeName({ partition, offset, life });
    this.#answered.add(name);
    this.#world.note(() => `request ${name} is forwarded`);
  }

  #decided(partition: number, record: ReturnType<typeof recordsOf>[number], sent: Sent): void {
    const { offset, key, value, headers, timestampMs } = record;
    const entry = decodeLedgerEntry(value as Buffer, headers);
    const { end, through } = entry;
    const mark = { order: this.#world.tick(), partition, offset, end, through, appendedAtMs: timestampMs };
    this.#history.marks.push(mark);
    this.#world.note(() => `ledger ${partition}/${offset}: ${entry.kind}, end ${end}, through ${through}`);
    const place = { offset, key: key ?? null, headers: headers ?? {} };
    if (isAdoption(place)) this.#history.adoptionMarks.push(mark);
    const below = readReplay(place);
    if (below !== undefined) {
      const { order } = mark;
      this.#history.answeredStated.push({ order, partition, offset, below, process: sent.process });
      this.#world.note(() => `ledger ${partition}/${offset}: requests below ${below} were answered`);
    }
    if (entry.kind === 'numbers' || entry.kind === 'statement') {
      const read = readLedgerKey(key as Buffer);
      if (read.kind === 'batch') throw new RangeError('a record of a sequence under the key of IDs');
      const { sequence } = read;
      if (entry.kind === 'statement') this.#history.statements.push({ ...entry, ...mark, sequence });
      if (entry.kind !== 'numbers' || read.kind !== 'numbers') return;
      const correlationId = read.requestId.toString('latin1');
      this.#history.numbers.push({ ...entry, ...mark, ...sent, sequence, correlationId });
    }
    if (entry.kind !== 'batch') return;
    const { count, replyTopic, batch, requestOffset } = entry;
    const correlationId = decodeLedgerKey(key as Buffer).toString('latin1');
    this.#history.entries.push({ ...mark, ...sent, requestOffset, correlationId, count, replyTopic, batch });
  }

  #onReply(topic: string, record: PlainRecord, sent: Sent): void {
    const { key, value, headers } = record;
    const { partition, offset, life } = this.#placeOf(headers?.[TAG]);
    const own = headers?.[DEFAULT_HEADER_NAMES.requestId];
    const named = { key: String(key), requestId: own === undefined ? undefined : String(own) };
    const what = { topic, ...named, value: value as Buffer, reply: decodeIdReply(value as Buffer) };
    const atMs = START_MS + this.#world.nowMs;
    const firstSent = this.#firstSends.of(sent.process, record) ?? sent.sent;
    const landed = this.#world.tick();
    const reply = { ...sent, firstSent, landed, atMs, partition, offset, life, ...what };
    this.#history.replies.push(reply);
    const name = placeName({ partition, offset, life });
    this.#answered.add(name);
    const draft = this.#drafts.get(String(headers?.[TAG]));
    if (draft !== undefined) this.#equals.replied(draft, reply);
    this.#world.note(() => `${topic}: reply to ${name}, ${outcomeOf(what.reply)}`);
  }

  /**
   * A range letter names the places of its requests; one for a single request is a copy of it. Those of junk are left
   * out.
   */
  #dropped(firstPartition: number, { headers }: PlainRecord, { sent }: Sent): void {
    const { isRange, partition: number = -1, offsets = [], code = '' } = readDeadLetterNote(headers ?? {});
    const isOfJunk = (offset: number) => code === JUNK_CODE && this.#junk.has(`${firstPartition + number}/${offset}`);
    if (!isRange && offsets.some(isOfJunk)) return;
    const due = offsets.filter((offset) => !isOfJunk(offset));
    const range = due.map((offset) => this.#lastAt(firstPartition + number, offset));
    const landed = this.#world.tick();
    for (const { partition, offset, life } of isRange ? range : [this.#placeOf(headers?.[TAG])]) {
      const letter = { sent, landed, partition, offset, life, code, isRange };
      this.#history.letters.push(letter);
      const request = this.#history.requests.findLast((one) => one.partition === partition && one.offset === offset);
      if (request !== undefined) this.#equals.dropped(request, letter);
      const name = placeName(letter);
      this.#answered.add(name);
      this.#world.note(() => `dead letter for ${name}: ${code}`);
    }
  }

  /** The request at this place, of the last life of the log. */
  #lastAt(partition: number, offset: number): RequestPlace {
    const found = this.#history.requests.findLast((one) => one.partition === partition && one.offset === offset);
    return found ?? { partition, offset };
  }

  /** The first unanswered record with the tag, else the last one; -1 for a request that may not have arrived. */
  #placeOf(tag: unknown): RequestPlace {
    const places = this.#places.get(String(tag)) ?? [];
    const open = places.find((one) => {
      const isGone = one.offset < this.#low(one.partition) || isLost(this.#history, one);
      return !isGone && !this.#answered.has(placeName(one));
    });
    return open ?? places.at(-1) ?? { partition: -1, offset: -1 };
  }
}

function outcomeOf(reply: IdReply): string {
  return 'error' in reply ? reply.error.code : 'batch' in reply ? 'a batch' : 'numbers';
}

/** The record of a request. */
export function requestOf({ count, correlationId, triedAs, sequence, replyTopic, expiresAtMs, firstSentMs }: Draft) {
  const key = Buffer.from(triedAs ?? correlationId);
  const wanted = { ...(expiresAtMs !== undefined && { expiresAtMs }), ...(sequence !== undefined && { sequence }) };
  const headers: Record<string, string> = firstSentMs === undefined ? {} : { [FIRST_SENT]: String(firstSentMs) };
  if (triedAs !== undefined) headers[DEFAULT_HEADER_NAMES.requestId] = correlationId;
  return { key, value: encodeIdRequest({ count, correlationId: key, replyTopic, ...wanted }), headers };
}

/** An observer that calls all of these. */
export function allOf(observers: readonly CallObserver[]): CallObserver {
  return {
    sent: (call, request) => {
      for (const one of observers) one.sent(call, request);
    },
    ended: (call, request, isAnswered) => {
      for (const one of observers) one.ended(call, request, isAnswered);
    },
  };
}

/** The requests that the writer of a batch claims to know of. */
function throughOf(batch: Buffer): number {
  return decodeLedgerEntry(recordsOf(batch)[0]?.value as Buffer).through;
}

/**
 * The kind of a batch, by its first record. A clock marker asks a broker for its time, and has no information about the
 * log. What sequences are is stated again by whoever has a copy.
 */
export function kindOf(batch: Buffer): 'decisions' | 'statements' | 'marker' | 'clock marker' {
  const [first] = recordsOf(batch);
  if (first?.key && readLedgerKey(first.key).kind === 'statement') return 'statements';
  if (first?.key !== null || first.value === null) return 'decisions';
  const { end, through } = decodeLedgerEntry(first.value);
  return end === 0 && through === -1 ? 'clock marker' : 'marker';
}

/** When processes sent replies first: an append that is not answered is sent again, maybe long after. */
class FirstSends {
  readonly #sent = new Map<string, number>();

  /** A process sends these replies at a time in the history's order. */
  add(process: string, batch: Buffer, sent: number): void {
    for (const record of recordsOf(batch)) {
      const name = nameOf(process, record);
      if (!this.#sent.has(name)) this.#sent.set(name, sent);
    }
  }

  of(process: string, record: PlainRecord): number | undefined {
    return this.#sent.get(nameOf(process, record));
  }
}

function nameOf(process: string, { value, headers }: PlainRecord): string {
  return `${process} ${headers?.[TAG]} ${value?.toString('latin1')}`;
}
