import { type Finding, type FoundBatch, type Grouped, logOf } from './found.ts';

export class JoinCounts {
  /** Decisions: the first entries of their keys. */
  decisions = 0;
  /** Entries with another batch after a decision: harmless gaps. */
  losers = 0;
  /** Exact copies of entries. */
  doubled = 0;
  /** Replies with the batch that was decided. */
  replies = 0;
  /** Replies whose decision the ledger no longer has. */
  forgotten = 0;
  /** Replies whose decision the ledger states as lost with its tail. */
  lost = 0;
  /** Replies that can't be judged, since the beginning of the ledger was deleted, perhaps with the decision. */
  undecidable = 0;
  /** How many of `replies` were written since a replay began, and repeat an earlier reply's batch. */
  repeated = 0;
  /** How many of `replies` were written since a replay began, without an earlier reply; they agree with the ledger. */
  repeatedWithoutFirst = 0;
}

export interface JoinOptions {
  /** Replies of this time or later must have their decision in the ledger. */
  readonly ledgerReachesMs: number;
  /** Whether a decision of that time may be lost, in the home partition of the key. */
  readonly lostTails: { mayHave(homeKey: Buffer, timeMs: number): boolean };
  readonly find: (finding: Finding) => void;
  /** How many ledgers were read; one by default. */
  readonly ledgers?: number;
  /** Called with each distinct batch, for the search for overlaps. */
  readonly addUnit: (batch: FoundBatch) => void;
}

/**
 * Compares every reply with the entry that decided it. In a ledger partition the first entry of a request ID decides.
 * A request ID that was decided in several partitions, as by releases that did not forward requests, is a finding; its
 * replies must still have one of those batches.
 *
 * Batches come in groups, as AuditStore.grouped returns them. Memory holds the entries of a group, not its replies.
 */
export class ReplyJoin {
  readonly #options: JoinOptions;
  readonly #counts = new JoinCounts();
  #group = -1;
  readonly #requests = new Map<string, Request>();

  constructor(options: JoinOptions) {
    this.#options = options;
  }

  take(batch: Grouped): void {
    if (batch.kind !== undefined) return;
    if (batch.group !== this.#group) this.end();
    this.#group = batch.group;
    const name = batch.requestId.toString('latin1');
    let request = this.#requests.get(name);
    if (request === undefined) {
      request = new Request(this.#counts, this.#options);
      this.#requests.set(name, request);
    }
    request.take(batch);
  }

  /** Call it after the last batch. */
  end(): JoinCounts {
    for (const request of this.#requests.values()) request.end();
    this.#requests.clear();
    return this.#counts;
  }
}

/** Everything under one request ID. */
class Request {
  readonly #counts: JoinCounts;
  readonly #options: JoinOptions;
  /** The entries of each ledger partition, in any order. */
  readonly #entries = new Map<string, FoundBatch[]>();
  #deciders: readonly FoundBatch[] | undefined;
  /** Batches that only replies have, by digest. */
  readonly #strangers = new Map<string, FoundBatch>();
  #first = false;
  #again = 0;

  constructor(counts: JoinCounts, options: JoinOptions) {
    this.#counts = counts;
    this.#options = options;
  }

  /** Entries come before replies. */
  take(batch: FoundBatch): void {
    if (batch.source === 'reply') {
      this.#reply(batch);
      return;
    }
    const log = logOf(batch);
    const entries = this.#entries.get(log);
    if (entries === undefined) this.#entries.set(log, [batch]);
    else entries.push(batch);
  }

  end(): void {
    this.#decide();
    if (this.#first) this.#counts.repeated += this.#again;
    else this.#counts.repeatedWithoutFirst += this.#again;
  }

  #decide(): readonly FoundBatch[] {
    if (this.#deciders !== undefined) return this.#deciders;
    const deciders = [...this.#entries.values()].map((entries) => this.#decidePartition(entries));
    this.#deciders = deciders;
    if (new Set(deciders.map(({ digest }) => digest.toString('latin1'))).size > 1) {
      const message = `one correlation ID has ${deciders.length} batches, in ledger partitions ${deciders.map(logOf).join(', ')}`;
      this.#options.find({ code: 'SPLIT', message, locations: deciders });
    }
    return deciders;
  }

  #decidePartition(entries: readonly FoundBatch[]): FoundBatch {
    const [first, ...later] = entries.toSorted((a, b) => a.offset - b.offset);
    if (first === undefined) throw new RangeError('a partition without entries');
    this.#counts.decisions += 1;
    const known = new Set([first.digest.toString('latin1')]);
    this.#options.addUnit(first);
    for (const entry of later) {
      const digest = entry.digest.toString('latin1');
      if (known.has(digest)) this.#counts.doubled += 1;
      else {
        known.add(digest);
        this.#counts.losers += 1;
        this.#options.addUnit(entry);
      }
    }
    return first;
  }

  #reply(reply: FoundBatch): void {
    const deciders = this.#decide();
    const decider = deciders.find(({ digest }) => digest.equals(reply.digest));
    if (decider !== undefined) {
      this.#agrees(reply, decider);
      return;
    }
    const loser = [...this.#entries.values()].flat().find(({ digest }) => digest.equals(reply.digest));
    if (loser === undefined) this.#stranger(reply);
    const { find } = this.#options;
    const why = this.#whyGone(reply);
    if (deciders.some(({ doubtful }) => doubtful === true)) this.#counts.undecidable += 1;
    else if (deciders.some((decider) => why === undefined || this.#precedes(decider, deciders, reply))) {
      const what = loser === undefined ? 'a batch that no entry has' : 'the batch of a loser';
      const message = `a reply has ${what}, not the one that was decided`;
      find({ code: 'DIVERGENT', message, locations: [reply, ...deciders] });
    } else if (why !== undefined) this.#withoutLedger(reply, why);
    else {
      const message = 'a reply has a batch that is not in the ledger, though the ledger reaches back that far';
      find({ code: 'UNDECIDED', message, locations: [reply] });
    }
  }

  /**
   * Whether a decision that is there stood when the reply was decided. One in another ledger says nothing about what
   * this one has lost.
   */
  #precedes(decider: FoundBatch, deciders: readonly FoundBatch[], reply: FoundBatch): boolean {
    const { ledgers = 1 } = this.#options;
    return decider.timeMs <= reply.timeMs && new Set(deciders.map(({ topic }) => topic)).size === ledgers;
  }

  /**
   * Why the ledger may not have the decision of a reply any more. Its correlation ID may have been used again since,
   * with another batch.
   */
  #whyGone({ requestId, timeMs }: FoundBatch): 'forgotten' | 'lost' | undefined {
    const { ledgerReachesMs, lostTails } = this.#options;
    if (lostTails.mayHave(requestId, timeMs)) return 'lost';
    return timeMs < ledgerReachesMs ? 'forgotten' : undefined;
  }

  #agrees(reply: FoundBatch, decider: FoundBatch): void {
    this.#counts.replies += 1;
    if (reply.again === true) this.#again += 1;
    else this.#first = true;
    if (decider.replyTopic === reply.topic) return;
    const message = `a reply is on ${reply.topic}; the request named ${decider.replyTopic ?? '?'}`;
    this.#options.find({ code: 'MISDIRECTED', message, locations: [reply, decider] });
  }

  /** Without the ledger, two different batches can't be judged. */
  #withoutLedger(reply: FoundBatch, why: 'forgotten' | 'lost'): void {
    const agrees = this.#strangers.size === 1;
    if (agrees) this.#counts[why] += 1;
    else this.#counts.undecidable += 1;
    if (reply.again === true) this.#again += 1;
    else this.#first = true;
  }

  #stranger(reply: FoundBatch): void {
    const digest = reply.digest.toString('latin1');
    if (this.#strangers.has(digest)) return;
    this.#strangers.set(digest, reply);
    this.#options.addUnit(reply);
  }
}
