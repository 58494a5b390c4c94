import type { FoundRequest, Grouped } from './found.ts';

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

/**
 * The valid requests in a store that no entry of it decides, by sequence and reply topic. Memory holds a row of the result for each kind,
 * and the IDs of a group.
 */
export function undecidedIn(found: Iterable<Grouped>): UndecidedRequests[] {
  const all = new Map<string, UndecidedRequests>();
  const known = new Set<string>();
  let group = -1;
  for (const one of found) {
    if (one.group !== group) known.clear();
    group = one.group;
    if (one.kind === 'death' || one.source === 'reply') continue;
    const name = `${one.kind === undefined ? '' : (one.sequence ?? '')} ${one.requestId.toString('latin1')}`;
    if (one.kind === 'request' && one.rejected === undefined && !known.has(name)) add(all, one);
    known.add(name);
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
