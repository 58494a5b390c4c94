import type { Finding } from './check.ts';
import type { Found, FoundRequest } from './found.ts';
import type { AuditReader } from './read.ts';

/** What became of the requests; forwarded copies count with their requests. */
export interface RequestCounts {
  requests: number;
  /** Those that have a reply or a dead letter. */
  answered: number;
  /** Of `answered`: those whose replies are errors. */
  refused: number;
  /** Of `answered`: those that only a dead letter answers. */
  deadLetters: number;
  /** Younger than the grace time, and not answered yet. */
  waiting: number;
  /** What can't be judged, by reason. */
  readonly unjudged: Map<string, number>;
}

/** Which requests are judged, and by when they must be answered. */
export interface Judged {
  /** Requests of this time or later, and before the other. */
  readonly fromMs: number;
  readonly toMs: number;
  /** Requests from before this time must be answered, whether or not anybody has read them. */
  readonly dueBeforeMs: number;
}

export interface RequestJoinOptions {
  readonly reader: Pick<
    AuditReader,
    'logs' | 'ledgerReachesMs' | 'lostTails' | 'requestReach' | 'replyReach' | 'letterReach' | 'clockMarginMs'
  >;
  readonly judged: Judged;
  readonly find: (finding: Finding) => void;
}

/**
 * Compares each request with its decision, and looks for its reply or dead letter. Takes everything in groups, as AuditStore.grouped
 * returns it. Memory holds the decisions of a group, and what one address of it was told.
 */
export class RequestJoin {
  readonly #options: RequestJoinOptions;
  readonly #counts: RequestCounts = {
    requests: 0,
    answered: 0,
    refused: 0,
    deadLetters: 0,
    waiting: 0,
    unjudged: new Map(),
  };

  constructor(options: RequestJoinOptions) {
    this.#options = options;
  }

  take(_found: Found & { readonly group: number }): void {
    void this.#options;
  }

  /** Call it after the last one. */
  end(): RequestCounts {
    return this.#counts;
  }
}

/** Requests of a kind that have no decision. */
export interface UndecidedRequests {
  /** Undefined for IDs. */
  readonly sequence: string | undefined;
  readonly replyTopic: string;
  /** How many different ones; those under one ID count once. */
  requests: number;
  /** How many IDs or numbers they want. */
  wanted: number;
}

/** The requests in a store that no entry of it decides and that are valid, by sequence and reply topic. */
export function undecidedIn(found: Iterable<Found & { readonly group: number }>): UndecidedRequests[] {
  const all = new Map<string, UndecidedRequests>();
  let group = -1;
  const known = new Set<string>();
  const nameOf = (sequence: string | undefined, id: Buffer) => `${sequence ?? ''} ${id.toString('latin1')}`;
  for (const one of found) {
    if (one.group !== group) known.clear();
    group = one.group;
    if (one.source === 'ledger') known.add(nameOf(one.kind === 'answer' ? one.sequence : undefined, one.requestId));
    if (one.kind !== 'request' || one.rejected !== undefined) continue;
    const name = nameOf(one.sequence, one.requestId);
    if (known.has(name)) continue;
    known.add(name);
    add(all, one);
  }
  return [...all.values()];
}

function add(all: Map<string, UndecidedRequests>, { sequence, replyTopic, count }: FoundRequest): void {
  const name = `${replyTopic} ${sequence ?? ''}`;
  const sum = all.get(name) ?? { sequence, replyTopic, requests: 0, wanted: 0 };
  all.set(name, sum);
  sum.requests += 1;
  sum.wanted += count;
}
