import type { Finding } from './check.ts';
import type { FoundAnswer, FoundBatch, FoundRequest, Grouped } from './found.ts';
import { type BatchLocation, logOf } from './location.ts';
import type { AuditReader } from './read.ts';
import { type FirstDecision, type Outcome, outcomeOf, type RequestFacts, type Unjudged } from './request-rules.ts';
import { Told } from './told.ts';

/** What became of the requests; a forwarded copy counts with its request. */
export interface RequestCounts {
  requests: number;
  /** Those that have a reply or a dead letter. */
  answered: number;
  /** Of `answered`: those whose replies are errors. */
  refused: number;
  /** Of `answered`: those that only a dead letter answers. */
  deadLetters: number;
  /** Not answered yet, and younger than the grace time. */
  waiting: number;
  readonly unjudged: Map<Unjudged, number>;
}

/** Which requests are judged. */
export interface Judged {
  /** Those of this time or later, and before the other. */
  readonly fromMs: number;
  readonly toMs: number;
  /** What was sent or decided before this time must be answered, whether or not anybody has read it. */
  readonly dueBeforeMs: number;
}

/** What was read of the topics. */
export type JoinReader = Pick<
  AuditReader,
  | 'logs'
  | 'ledgerReachesMs'
  | 'lostTails'
  | 'clockMarginMs'
  | 'replayed'
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
 * Compares each request with its decision, and looks for its reply or dead letter. Takes everything in groups, as AuditStore.grouped
 * returns it. Memory holds the decisions of a group, and of its replies what one address was told.
 */
export class RequestJoin {
  readonly #find: (finding: Finding) => void;
  readonly #judged: Judged;
  readonly #facts: RequestFacts;
  /** The ledger that decides the requests. */
  readonly #ledger: string;
  readonly #counts: RequestCounts = {
    requests: 0,
    answered: 0,
    refused: 0,
    deadLetters: 0,
    waiting: 0,
    unjudged: new Map(),
  };
  #group = -1;
  #address = -1;
  /** By what they decide, and by the request for which they were written. */
  readonly #first = new Map<string, FirstDecision>();
  readonly #byRequest = new Map<string, FirstDecision>();
  readonly #told = new Map<string, Told>();
  #held: FoundRequest[] = [];
  #open: Open | undefined;

  constructor(reader: JoinReader, judged: Judged, find: (finding: Finding) => void) {
    this.#find = find;
    this.#judged = judged;
    this.#facts = factsOf(reader, judged);
    this.#ledger = reader.logs.ledger[0]?.topic ?? '';
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
    const decision = { ...locationOf(found), timeMs: found.timeMs, of, isDoubtful };
    this.#byRequest.set(`${nameOf(found, sequence)} ${partition}/${of.offset}`, decision);
    const name = `${nameOf(found, sequence)} ${partition}`;
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
    const own = this.#byRequest.get(`${nameOf(request, sequence)} ${partition}/${offset}`);
    if (own !== undefined) this.#compare(request, own);
    const first = this.#first.get(`${nameOf(request, sequence)} ${request.home}`);
    const outcome = outcomeOf(request, told, first, this.#facts);
    const place = origin ?? { partition, offset };
    const name = `${nameOf(request, sequence)} ${place.partition}/${place.offset}`;
    if (this.#open?.name !== name) this.#close();
    const before = this.#open?.outcome;
    const isAnswered = rankOf(outcome) <= LAST_ANSWER;
    // What became of a request that was forwarded shows in its copies.
    const isOwn = before === undefined || isAnswered || (origin !== undefined && rankOf(outcome) < rankOf(before));
    this.#open = { name, timeMs, outcome: isOwn ? outcome : before };
  }

  /** An offset is reused after a log has lost its tail: a request that is younger than an entry is not the one that it was written for. */
  #compare(request: FoundRequest, entry: FirstDecision): void {
    if (entry.of.hash.equals(request.hash) || request.timeMs > entry.timeMs + this.#facts.clockMarginMs) return;
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

/** Of what is decided: an ID, in a sequence or as IDs. */
function nameOf({ requestId }: BatchLocation, sequence: string | undefined): string {
  return `${sequence ?? ''} ${requestId.toString('latin1')}`;
}

function locationOf({ source, topic, partition, offset, requestId }: BatchLocation): BatchLocation {
  return { source, topic, partition, offset, requestId };
}

function factsOf(reader: JoinReader, { dueBeforeMs }: Judged): RequestFacts {
  const { logs, clockMarginMs, ledgerReachesMs, lostTails, replayed, requestReach, replyReach, letterReach } = reader;
  const { ledger, requests = [], replies = [], letters = [], answeredBelow = new Map() } = logs;
  const replyTopics = new Set(replies.map(({ topic }) => topic));
  const repliesReachMs = new Map([...replyTopics].map((topic) => [topic, replyReach.ofTopic(topic)]));
  const requestsReachMs = new Map(requests.map((span) => [span.partition, requestReach.ofLog(logOf(span))]));
  return {
    clockMarginMs,
    dueBeforeMs,
    answeredBelow,
    ledgerReachesMs,
    repliesReachMs: (topic) => repliesReachMs.get(topic),
    lettersReachMs: letters[0] && letterReach.ofTopic(letters[0].topic),
    requestsReachMs: (partition) => requestsReachMs.get(partition) ?? Number.POSITIVE_INFINITY,
    isReplayed: (partition) => replayed.has(logOf({ topic: ledger[0]?.topic ?? '', partition })),
    mayBeLost: ({ sequence, requestId }, timeMs) =>
      lostTails.mayHave(sequence === undefined ? requestId : Buffer.from(sequence, 'latin1'), timeMs),
  };
}
