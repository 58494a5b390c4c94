import {
  type BatchLocation,
  type DecidedRequest,
  type Finding,
  type FoundAnswer,
  type FoundBatch,
  type FoundDeath,
  type FoundRequest,
  type Grouped,
  logOf,
} from './found.ts';
import { idsIn } from './ids.ts';
import type { AuditReader } from './read.ts';

/*
 * Was every request answered, and rightly? Of all questions this one has the most innocent explanations. A request
 * without a reply may be younger than the grace time, may have been answered on a topic that was not read or no longer
 * has its reply, may be dead, or may be a copy that was forwarded, whose fate is that of its original. A request that
 * was refused although its decision stands may have been refused before that decision, by a quota, or because its try
 * repeated one that was refused.
 *
 * So the outcome of a request is decided in the order in which workers answer (`RequestRules`): who has what it wants,
 * or a dead letter, has an answer, whatever else it was told. Then the errors that may be its own are weighed against
 * its decision, each code by its own rule. What is left is waiting, or can't be judged since a topic does not reach
 * back that far, or is a finding. Each doubt is for the workers: a finding is what nothing explains, and what can't be
 * judged is counted, so that nobody takes silence for proof.
 *
 * `RequestJoin` puts together what the rules need. Replies do not name their requests, only an ID, a correlation ID and
 * the topic that they are on, which is an address. So all requests of one address share what it was told (`Told`); the
 * decisions of an ID come before its addresses, as the store sorts them.
 */

/** What became of the requests; a forwarded copy counts with its request. */
export class RequestCounts {
  requests = 0;
  /** How many have a reply or a dead letter. */
  answered = 0;
  /** How many of the answered ones have errors as replies. */
  refused = 0;
  /** How many of the answered ones have a dead letter alone. */
  deadLetters = 0;
  /** Not answered yet, and younger than the grace time. */
  waiting = 0;
  readonly unjudged = new Map<Unjudged, number>();
}

/** Which requests are judged. */
export interface Judged {
  /** Requests of this time or later, and before the other, are judged. */
  readonly fromMs: number;
  readonly toMs: number;
  /** What was sent or decided before this time must be answered, whether or not anybody has read it. */
  readonly dueBeforeMs: number;
  readonly nowMs: number;
}

/** What was read of the topics. */
export type JoinReader = Pick<
  AuditReader,
  | 'logs'
  | 'ledgerReachesMs'
  | 'lostTails'
  | 'clockMarginMs'
  | 'replayed'
  | 'adopted'
  | 'requestReach'
  | 'replyReach'
  | 'letterReach'
>;

/** A request, of which copies or the record itself were judged. */
interface Open {
  /** Where it was first, and what it is. */
  readonly name: string;
  readonly outcome: Outcome;
  /** The time of the record itself, or else that of a copy. */
  readonly timeMs: number;
}

/** From the best outcome to the worst. */
const RANKS: readonly Outcome['kind'][] = ['served', 'refused', 'dead', 'waiting', 'wrong', 'unjudged'];
const LAST_ANSWER = RANKS.indexOf('dead');

/** Requests of an address that are held until all of them are known; of more, some are judged before. */
const MAX_HELD = 1_000;

/**
 * Compares each request with its decision, and looks for its reply or dead letter. Takes everything in groups, as
 * AuditStore.grouped returns it. Memory holds the decisions of a group, and of its replies what one address was told.
 */
export class RequestJoin {
  readonly #find: (finding: Finding) => void;
  readonly #judged: Judged;
  readonly #rules: RequestRules;
  readonly #clockMarginMs: number;
  /** The ledger that decides the requests, and where its partitions were adopted. */
  readonly #ledger: string;
  readonly #adopted: ReadonlyMap<string, number>;
  readonly #counts = new RequestCounts();
  #group = -1;
  #address = -1;
  /** The decisions of the group: by what they decide, and by the request for which they were written. */
  readonly #first = new Map<string, FirstDecision>();
  readonly #byRequest = new Map<string, FirstDecision>();
  readonly #told = new Map<string, Told>();
  #held: FoundRequest[] = [];
  #open: Open | undefined;

  constructor(reader: JoinReader, judged: Judged, find: (finding: Finding) => void) {
    this.#find = find;
    this.#judged = judged;
    this.#rules = new RequestRules(reader, judged);
    this.#clockMarginMs = reader.clockMarginMs;
    this.#ledger = reader.logs.ledger[0]?.topic ?? '';
    this.#adopted = reader.adopted;
  }

  take(found: Grouped): void {
    if (found.group !== this.#group || found.address !== this.#address) this.#endAddress();
    if (found.group !== this.#group) {
      this.#first.clear();
      this.#byRequest.clear();
    }
    this.#group = found.group;
    this.#address = found.address;
    if (found.kind === 'request') this.#request(found);
    else if (found.kind === 'death') this.#toldOf(found).letter(found);
    else if (found.source === 'ledger') this.#decision(found);
    else this.#toldOf(found).reply(found);
  }

  /** Call it after the last one. */
  end(): RequestCounts {
    this.#endAddress();
    return this.#counts;
  }

  #decision(found: FoundBatch | FoundAnswer): void {
    const { topic, partition, of } = found;
    if (topic !== this.#ledger || of === undefined) return;
    const sequence = found.kind === 'answer' ? found.sequence : undefined;
    const isDoubtful = found.kind === undefined && found.doubtful === true;
    const { source, offset, requestId, timeMs } = found;
    const decision = { source, topic, partition, offset, requestId, timeMs, of, isDoubtful };
    if (offset >= (this.#adopted.get(logOf(found)) ?? 0))
      this.#byRequest.set(`${decidedName(found, sequence)} ${partition}/${of.offset}`, decision);
    const name = `${decidedName(found, sequence)} ${partition}`;
    const known = this.#first.get(name);
    if (known === undefined || found.offset < known.offset) this.#first.set(name, decision);
  }

  #toldOf({
    requestId,
    correlationId = requestId,
  }: BatchLocation & { readonly correlationId?: Buffer | undefined }): Told {
    const name = `${requestId.toString('latin1')}\n${correlationId.toString('latin1')}`;
    const told = this.#told.get(name) ?? new Told();
    this.#told.set(name, told);
    return told;
  }

  /** A CONFLICT may be the answer to any other request of the address. */
  #request(request: FoundRequest): void {
    const told = this.#toldOf(request);
    told.request(request);
    this.#held.push(request);
    if (!told.hasConflict || this.#held.length >= MAX_HELD) this.#judgeHeld();
  }

  #endAddress(): void {
    this.#judgeHeld();
    this.#told.clear();
    this.#close();
  }

  #judgeHeld(): void {
    for (const request of this.#held) this.#judge(request, this.#toldOf(request));
    this.#held = [];
  }

  #judge(request: FoundRequest, told: Told): void {
    const { partition, offset, origin, sequence, timeMs } = request;
    const own = this.#byRequest.get(`${decidedName(request, sequence)} ${partition}/${offset}`);
    if (own !== undefined) this.#compare(request, own);
    const first = this.#first.get(`${decidedName(request, sequence)} ${request.home}`);
    const outcome = this.#rules.outcomeOf(request, told, first);
    const place = origin ?? { partition, offset };
    const name = `${decidedName(request, sequence)} ${place.partition}/${place.offset}`;
    if (this.#open?.name !== name) this.#close();
    const before = this.#open?.outcome;
    const isAnswered = rankOf(outcome) <= LAST_ANSWER;
    // What became of a request that was forwarded shows in its copies.
    const isOwn = before === undefined || isAnswered || (origin !== undefined && rankOf(outcome) < rankOf(before));
    this.#open = { name, timeMs, outcome: isOwn ? outcome : before };
  }

  /**
   * An offset is reused after a log has lost its tail: a request that is younger than an entry is not the one that it
   * was written for.
   */
  #compare(request: FoundRequest, entry: FirstDecision): void {
    if (entry.of.hash.equals(request.hash) || request.timeMs > entry.timeMs + this.#clockMarginMs) return;
    const message = 'an entry has the hash of another request than the one for which it was written';
    this.#find({ code: 'MISMATCH', message, locations: [entry, request] });
  }

  /** Counts the request that is open. */
  #close(): void {
    const open = this.#open;
    this.#open = undefined;
    if (open === undefined || open.timeMs < this.#judged.fromMs || open.timeMs >= this.#judged.toMs) return;
    const counts = this.#counts;
    const { outcome } = open;
    counts.requests += 1;
    if (rankOf(outcome) <= LAST_ANSWER) counts.answered += 1;
    if (outcome.kind === 'refused') counts.refused += 1;
    if (outcome.kind === 'dead') counts.deadLetters += 1;
    if (outcome.kind === 'waiting') counts.waiting += 1;
    if (outcome.kind === 'unjudged')
      counts.unjudged.set(outcome.reason, 1 + (counts.unjudged.get(outcome.reason) ?? 0));
    if (outcome.kind === 'wrong') this.#find(outcome.finding);
  }
}

function rankOf({ kind }: Outcome): number {
  return RANKS.indexOf(kind);
}

/** Names what is decided: an ID, in a sequence or for IDs. */
function decidedName({ requestId }: BatchLocation, sequence: string | undefined): string {
  return `${sequence ?? ''} ${requestId.toString('latin1')}`;
}

/** Why a request can't be judged. */
export type Unjudged = 'reply_topic_not_read' | 'replies_deleted' | 'letters_deleted' | 'copies_deleted';

/** What became of a request. */
type Outcome =
  /**
   * It has a reply with a batch or numbers, only errors, only a dead letter; or nothing yet, though that is no finding.
   */
  | { readonly kind: 'served' | 'refused' | 'dead' | 'waiting' }
  | { readonly kind: 'unjudged'; readonly reason: Unjudged }
  | { readonly kind: 'wrong'; readonly finding: Finding };

/** The first decision of a request's ID that counts, in its home partition. */
interface FirstDecision extends BatchLocation {
  readonly timeMs: number;
  readonly of: DecidedRequest;
  /** An earlier one may have been deleted. */
  readonly isDoubtful: boolean;
}

/** Longer after the append of its decision, a reply is one that was sent again. */
const MAX_PUBLICATION_MS = 60_000;

/** What became of one record of the request topic, by what was read. Times are those of brokers. */
class RequestRules {
  readonly #reader: JoinReader;
  /** What was sent or decided before this time must be answered. */
  readonly #dueBeforeMs: number;
  readonly #nowMs: number;
  /** The time from which on the topics have everything; a topic that was not read has none. */
  readonly #ledgerReachesMs: number;
  readonly #lettersReachMs: number | undefined;
  readonly #repliesReachMs: ReadonlyMap<string, number | undefined>;

  constructor(reader: JoinReader, { dueBeforeMs, nowMs }: Judged) {
    const { replies = [], letters = [] } = reader.logs;
    this.#reader = reader;
    this.#dueBeforeMs = dueBeforeMs;
    this.#nowMs = nowMs;
    this.#ledgerReachesMs = reader.ledgerReachesMs;
    this.#lettersReachMs = letters[0] && reader.letterReach.ofTopic(letters[0].topic);
    const replyTopics = new Set(replies.map(({ topic }) => topic));
    this.#repliesReachMs = new Map([...replyTopics].map((topic) => [topic, reader.replyReach.ofTopic(topic)]));
  }

  /**
   * In the order in which workers answer: who has what it wants, or a dead letter, has an answer, whatever else it was
   * told.
   */
  outcomeOf(request: FoundRequest, told: Told, decision: FirstDecision | undefined): Outcome {
    const given = request.rejected === undefined ? told.given(request) : undefined;
    const { replyPartition } = request;
    if (given !== undefined && (replyPartition === undefined || given.partitions.has(replyPartition)))
      return { kind: 'served' };
    if (told.isDead(request)) return { kind: 'dead' };
    const own = decision?.of.hash.equals(request.hash) ? decision : undefined;
    const refused = request.rejected === undefined ? this.#refusal(request, told, own) : undefined;
    return refused?.kind === 'refused' ? refused : this.#unanswered(request, told, own, refused);
  }

  /** What follows for a request that was told errors alone; undefined if none of them is its own. */
  #refusal(request: FoundRequest, told: Told, decision: FirstDecision | undefined): Outcome | undefined {
    const errors = [...told.errors(request)];
    if (errors.length === 0) return undefined;
    if (decision === undefined || decision.isDoubtful || this.#mayBeLost(request, decision.timeMs))
      return { kind: 'refused' };
    // A request that repeats one that was refused was told what came after it. A time that is yet to come is that of a
    // broker whose clock was ahead, and says nothing.
    const { timeMs } = request;
    const sinceMs = timeMs > this.#nowMs ? Number.NEGATIVE_INFINITY : timeMs - this.#reader.clockMarginMs;
    const left = errors.filter(
      ([code, { lastMs }]) => lastMs >= sinceMs && (code !== 'CONFLICT' || !told.wantsDiffer(request)),
    );
    const [first] = left;
    if (first === undefined) return undefined;
    if (left.some(([code, { firstMs }]) => this.#mayBeRight(request, decision, code, firstMs)))
      return { kind: 'refused' };
    const [code, { location }] = first;
    const message = `a request was told ${code}, though its decision stood`;
    return wrong('WRONG_REFUSAL', message, [request, location, decision]);
  }

  /** Whether a request may have been told this, though the ledger has a decision for it. */
  #mayBeRight(request: FoundRequest, decision: FirstDecision, code: string, toldMs: number): boolean {
    const { clockMarginMs, logs, replayed } = this.#reader;
    if (code === 'QUOTA_EXCEEDED') return true; // a reply that is repeated costs something, too
    // Another decision may have stood then, which the ledger has not any more.
    if (code === 'CONFLICT') return toldMs < this.#ledgerReachesMs || this.#mayBeLost(request, toldMs);
    // A later entry may be one that was still on its way when another worker refused the request.
    const isLater = toldMs > decision.timeMs + clockMarginMs + MAX_PUBLICATION_MS;
    if (isLater) return decision.of.isRenewal;
    const { home, partition, origin, timeMs, isResent } = request;
    const isYoung = timeMs >= this.#ledgerReachesMs && !isResent && origin === undefined;
    // What was decided later had no decision then, or none that was left; for another request, also at about that time.
    const aboutMs = decision.partition === partition && decision.of.offset === request.offset ? 0 : clockMarginMs;
    if (code === 'FORGOTTEN')
      return toldMs < decision.timeMs + aboutMs || !isYoung || this.#mayBeLost(request, timeMs - clockMarginMs);
    if (code !== 'ANSWERED_BEFORE') return true;
    // What is forwarded from a partition that is read again is marked, so that each of these may refuse it.
    const topic = logs.ledger[0]?.topic ?? '';
    const partitions = [home, partition, ...(origin === undefined ? [] : [origin.partition])];
    return partitions.some((one) => replayed.has(logOf({ topic, partition: one })));
  }

  #mayBeLost({ sequence, requestId }: FoundRequest, timeMs: number): boolean {
    const homeKey = sequence === undefined ? requestId : Buffer.from(sequence, 'latin1');
    return this.#reader.lostTails.mayHave(homeKey, timeMs);
  }

  #unanswered(
    request: FoundRequest,
    told: Told,
    decision: FirstDecision | undefined,
    refused: Outcome | undefined,
  ): Outcome {
    const { partition, offset, timeMs, rejected } = request;
    const isBelow = offset < (this.#reader.logs.answeredBelow?.get(partition) ?? 0);
    // Workers that catch up after a long pause have decided what they answer next.
    const isDue = isBelow || (decision?.timeMs ?? timeMs) < this.#dueBeforeMs;
    if (!isDue) return { kind: 'waiting' };
    const reason = this.#unjudgedReason(request);
    if (reason !== undefined) return { kind: 'unjudged', reason };
    if (refused !== undefined) return refused;
    const where = decision === undefined ? [request] : [request, decision];
    const since = isBelow ? "workers have answered it, as the group's offset says" : 'it is older than the grace time';
    const absent = isBelow ? 'MISSING_REPLY' : 'UNANSWERED';
    if (rejected !== undefined)
      return wrong(absent, `a record that is no valid request (${rejected}) has no dead letter; ${since}`, where);
    const given = told.given(request);
    if (given !== undefined) {
      const message = `a reply is not in partition ${request.replyPartition}, which its request names`;
      return wrong('MISMATCH', message, [given.location, ...where]);
    }
    const other = told.other(request);
    if (other !== undefined && !told.wantsDiffer(request)) {
      const message = `a reply has another count than its request, which wants ${request.count}`;
      return wrong('MISMATCH', message, [other, ...where]);
    }
    if (decision !== undefined)
      return wrong('MISSING_REPLY', 'a request was decided, and has neither reply nor dead letter', where);
    return wrong(absent, `a request has neither decision, reply nor dead letter; ${since}`, where);
  }

  /** Why an answer may have been there. */
  #unjudgedReason(request: FoundRequest): Unjudged | undefined {
    const { clockMarginMs, logs, requestReach } = this.#reader;
    const { partition, home, replyTopic, rejected } = request;
    const sinceMs = request.timeMs - clockMarginMs;
    if (this.#lettersReachMs === undefined || sinceMs < this.#lettersReachMs) return 'letters_deleted';
    if (rejected !== undefined) return undefined;
    const repliesReachMs = this.#repliesReachMs.get(replyTopic);
    if (repliesReachMs === undefined) return 'reply_topic_not_read';
    if (sinceMs - MAX_PUBLICATION_MS < repliesReachMs) return 'replies_deleted';
    const topic = logs.requests?.[0]?.topic ?? '';
    const isGone = partition !== home && sinceMs < requestReach.ofLog(logOf({ topic, partition: home }));
    return isGone ? 'copies_deleted' : undefined;
  }
}

function wrong(code: Finding['code'], message: string, locations: readonly BatchLocation[]): Outcome {
  return { kind: 'wrong', finding: { code, message, locations } };
}

/** Replies with a batch or with numbers that have so many. */
interface ToldCount {
  readonly partitions: Set<number>;
  readonly location: BatchLocation;
}

interface ToldError {
  readonly partitions: Set<number>;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly location: BatchLocation;
}

/** Codes of errors are not limited to ours. */
const MAX_CODES = 100;
/** Refusals that only requests for numbers get. */
const OF_SEQUENCES = /SEQUENCE/;

/**
 * What the requests of one address were told: those under one ID, with one correlation ID, whose replies go to one
 * topic.
 */
class Told {
  readonly #counts = new Map<string, ToldCount>();
  readonly #errors = new Map<string, ToldError>();
  /** The counts of those that have a dead letter. */
  readonly #deaths = new Set<number>();
  /** How many the requests of each kind want; undefined if they want different counts. */
  readonly #wanted = new Map<string, number | undefined>();

  reply(found: FoundBatch | FoundAnswer): void {
    if (found.kind === 'answer' && found.code !== undefined) {
      const known = this.#errors.get(found.code);
      if (known === undefined && this.#errors.size >= MAX_CODES) return;
      this.#errors.set(found.code, {
        location: found,
        partitions: (known?.partitions ?? new Set()).add(found.partition),
        firstMs: Math.min(found.timeMs, known?.firstMs ?? found.timeMs),
        lastMs: Math.max(found.timeMs, known?.lastMs ?? found.timeMs),
      });
      return;
    }
    const name =
      found.kind === 'answer' ? kindName(found.sequence, found.count) : kindName(undefined, idsIn(found.ranges));
    const known = this.#counts.get(name);
    if (known === undefined) this.#counts.set(name, { partitions: new Set([found.partition]), location: found });
    else known.partitions.add(found.partition);
  }

  letter({ count }: FoundDeath): void {
    this.#deaths.add(count);
  }

  request({ sequence = '', count }: FoundRequest): void {
    if (!this.#wanted.has(sequence)) this.#wanted.set(sequence, count);
    else if (this.#wanted.get(sequence) !== count) this.#wanted.set(sequence, undefined);
  }

  /** Requests of this kind want different counts, so a CONFLICT may be about any but one. */
  wantsDiffer({ sequence = '' }: FoundRequest): boolean {
    return this.#wanted.get(sequence) === undefined;
  }

  /** The replies that have what a request wants. */
  given({ sequence, count }: FoundRequest): ToldCount | undefined {
    return this.#counts.get(kindName(sequence, count));
  }

  /** A reply with IDs, or with numbers of its sequence, of which a request wants another count. */
  other({ sequence }: FoundRequest): BatchLocation | undefined {
    const prefix = kindName(sequence, undefined);
    for (const [name, { location }] of this.#counts) if (name.startsWith(prefix)) return location;
    return undefined;
  }

  /** Requests that are equal share a dead letter, as they share a reply. */
  isDead({ count }: FoundRequest): boolean {
    return this.#deaths.has(count);
  }

  /**
   * The errors that a request may have been told. Where a later one of the address was given what both want, in another
   * partition, the errors of its own partition are its answer.
   */
  errors(request: FoundRequest): ReadonlyMap<string, ToldError> {
    const { sequence, replyPartition = -1 } = request;
    const isGiven = this.given(request) !== undefined;
    const mayBeTold = ([code, { partitions }]: [string, ToldError]) =>
      (sequence !== undefined || !OF_SEQUENCES.test(code)) && (!isGiven || partitions.has(replyPartition));
    return new Map([...this.#errors].filter(mayBeTold));
  }

  get hasConflict(): boolean {
    return this.#errors.has('CONFLICT');
  }
}

function kindName(sequence: string | undefined, count: number | undefined): string {
  return `${sequence ?? ''} ${count ?? ''}`;
}
