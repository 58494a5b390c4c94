import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { encodeStatementKey } from '../../src/codec/ledger-key.ts';
import { type DecodedReply, decodeReply, type Followed, type Seen } from './followed.ts';
import type { Realm, TestRequest } from './realm.ts';

/** A document that wants numbers of a sequence, and what it was told, by all replies on all clusters. */
export interface NumberedDocument {
  readonly correlationId: string;
  readonly sequence: string;
  readonly count: number;
  /** When its request was first sent, by the clock of this machine. */
  firstSentMs: number;
  /** Each different answer: the first number, or the code of an error. */
  readonly told: Set<number | string>;
}

/** What a document is told whose decision may be lost. */
export const FORGOTTEN = 'FORGOTTEN';
const SEND_PAUSE_MS = 100;

/** What a reply to a request for numbers says: the first of them, or the code of the error. */
export function answerIn({ reply }: Pick<DecodedReply, 'reply'>): number | string {
  if ('numbers' in reply) return reply.numbers.first;
  return 'error' in reply ? reply.error.code : 'IDs';
}

/**
 * Documents that take numbers, through faults and on several clusters one after the other; each asks with one
 * correlation ID.
 */
export class Documents {
  readonly #all = new Map<string, NumberedDocument>();
  readonly #counts: (nth: number) => number;

  constructor(counts: (nth: number) => number) {
    this.#counts = counts;
  }

  get all(): readonly NumberedDocument[] {
    return [...this.#all.values()];
  }

  /** Those that have asked. */
  get asked(): readonly NumberedDocument[] {
    return this.all.filter(({ firstSentMs }) => firstSentMs > 0);
  }

  /** The sum of the numbers that documents were told. */
  get numbers(): number {
    return this.all.filter(wasNumbered).reduce((sum, { count }) => sum + count, 0);
  }

  get answered(): number {
    return this.all.filter(({ told }) => told.size > 0).length;
  }

  /** Notes all replies of a cluster. The result waits until each of some documents has one there. */
  listen(replies: Followed): (to: readonly NumberedDocument[]) => Promise<void> {
    const heard = new Set<string>();
    let at = 0;
    const note = (seen: readonly Seen[]) => {
      for (; at < seen.length; at += 1) {
        const reply = decodeReply(seen[at] as Seen);
        const correlationId = reply.reply.correlationId.toString();
        heard.add(correlationId);
        this.#all.get(correlationId)?.told.add(answerIn(reply));
      }
    };
    return (to) =>
      replies.until(`replies to ${to.length} documents`, (seen) => {
        note(seen);
        return to.every(({ correlationId }) => heard.has(correlationId));
      });
  }

  /** New documents of a sequence, which have not asked yet. */
  make(sequence: string, many: number): readonly NumberedDocument[] {
    return Array.from({ length: many }, () => {
      const nth = this.#all.size;
      const made = { correlationId: `document-${nth}`, sequence, count: this.#counts(nth), firstSentMs: 0 };
      const document: NumberedDocument = { ...made, told: new Set() };
      this.#all.set(document.correlationId, document);
      return document;
    });
  }
}

/** Whether it was told nothing, or another error than that its decision may be lost. */
export function isOdd({ told }: NumberedDocument): boolean {
  return told.size === 0 || [...told].some((one) => typeof one === 'string' && one !== FORGOTTEN);
}

/** Whether it was told numbers, whatever else it was told. */
function wasNumbered({ told }: NumberedDocument): boolean {
  return [...told].some((one) => typeof one === 'number');
}

/** Sends the requests of documents, again and again while the brokers are away, until `end` is aborted. */
export async function ask(realm: Realm, documents: readonly NumberedDocument[], end?: AbortSignal): Promise<void> {
  while (end?.aborted !== true) {
    const resent = documents.map(requestOf);
    for (const one of documents) one.firstSentMs ||= Date.now();
    try {
      return await realm.send(resent);
    } catch (error) {
      if (end === undefined) throw error;
      // Some may be in the topic; a copy gets the same numbers.
      await new Promise((resolve) => setTimeout(resolve, SEND_PAUSE_MS));
    }
  }
}

function requestOf({ correlationId, sequence, count, firstSentMs }: NumberedDocument): TestRequest {
  return { correlationId, sequence, count, ...(firstSentMs === 0 ? {} : { firstSentMs }) };
}

/** Numbers from one up to before another. */
export interface Run {
  readonly first: number;
  readonly next: number;
}

/**
 * Checks that each document was told at most one first number, and no number was given to two of them. Returns the runs
 * between 1 and `next` that nobody was told.
 */
export function untold(documents: readonly NumberedDocument[], sequence: string, next: number): readonly Run[] {
  const runs = documents
    .filter((one) => one.sequence === sequence)
    .flatMap(({ told, count, correlationId }) => {
      const firsts = [...told].filter((one) => typeof one === 'number');
      if (firsts.length > 1) throw new Error(`${correlationId} was told ${firsts.join(' and ')}`);
      return firsts.map((first) => ({ first, next: first + count, correlationId }));
    })
    .sort((one, other) => one.first - other.first);
  const gaps: Run[] = [];
  let due = 1;
  for (const run of [...runs, { first: next, next, correlationId: 'the end' }]) {
    if (run.first < due)
      throw new Error(`${run.correlationId} has ${run.first}, but those below ${due} were given out`);
    if (run.first > due) gaps.push({ first: due, next: run.first });
    due = run.next;
  }
  return gaps;
}

/**
 * The numbers that the statements of the ledger say were lost, of one sequence: with the log, or before it was taken
 * over.
 */
export function lostBy(ledger: readonly Seen[], sequence: string): readonly Run[] {
  return ledger.flatMap(({ offset, message: { key, value, headers } }) => {
    if (key === null || value === null || !key.equals(encodeStatementKey(sequence))) return [];
    const entry = decodeLedgerEntry(value);
    const said = JSON.parse(String(headers?.['idalloc-statement'] ?? '{}')) as { loss?: true; first?: number };
    if (entry.kind !== 'statement' || entry.at !== offset || said.loss !== true) return [];
    return [{ first: said.first ?? 1, next: entry.next }];
  });
}
