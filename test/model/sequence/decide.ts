import { at } from '../search.ts';
import { lookUp, numberAt, read } from './knowledge.ts';
import type { Rule, World } from './rule.ts';
import { BLANK, type Entry, type Index, KIND, keyOf, NONE, type State, UNKNOWN } from './state.ts';

/** How a worker judges requests, and what it writes for them. */

export const REFUSALS = ['FORGOTTEN', 'UNKNOWN_SEQUENCE', 'SEQUENCE_CLOSED', 'SEQUENCE_EXHAUSTED'] as const;
export type Refusal = (typeof REFUSALS)[number];

/**
 * The offset of its decision, a refusal, or that it gets an entry; or, where the rule is broken, that it has to wait.
 */
export type Verdict = number | Refusal | 'draft' | 'wait';

/** Whether anything may be decided before a marker is written. */
export function isReady({ horizon }: Index): boolean {
  return horizon !== UNKNOWN;
}

export function judge(rule: Rule, world: World, state: State, index: Index, request: number): Verdict {
  const { sequence, count, isLater } = at(world.requests, request);
  const row = sequence === NONE ? undefined : at(index.rows, sequence);
  const found = lookUp(rule, world, index, state, request);
  if (found >= 0) return found;
  const isOld = found === UNKNOWN || (isLater ? index.origin > 0 : request <= index.horizon);
  if (isOld && rule.refusesForgotten) return 'FORGOTTEN';
  if (row === undefined) return 'draft';
  if (row.next === UNKNOWN) return rule.withoutRow === 'waits' ? 'wait' : 'UNKNOWN_SEQUENCE';
  if (row.isClosed && rule.heedsClosed) return 'SEQUENCE_CLOSED';
  return row.next + (count - 1) * row.step > row.max && rule.heedsMax ? 'SEQUENCE_EXHAUSTED' : 'draft';
}

/** The entries of one append, for requests in their order. */
export function draftsOf(
  rule: Rule,
  world: World,
  state: State,
  index: Index,
  requests: readonly number[],
): readonly Entry[] {
  const seen = rule.lookUp === 'end and row later' ? read(rule, world, index, state.entries) : index;
  const start = rule.lookUp === 'place from the broker' ? state.entries.length : seen.end;
  const drafts: Entry[] = [];
  for (const request of requests) {
    const { sequence } = at(world.requests, request);
    const { end, through } = seen;
    const before = rule.placesCount === 'all' ? drafts : drafts.filter(({ kind }) => kind === KIND.numbers);
    const entry = { ...BLANK, request, sequence, end, through };
    if (sequence === NONE) {
      drafts.push({ ...entry, kind: KIND.ids });
      continue;
    }
    const { next, step, last } = at(seen.rows, sequence);
    const earlier = drafts.filter((draft) => draft.kind === KIND.numbers && isAdded(rule, draft.sequence, sequence));
    const taken = earlier.reduce((sum, draft) => sum + at(world.requests, draft.request).count, 0);
    const first = next + step * taken;
    drafts.push({ ...entry, kind: KIND.numbers, at: start + before.length, first, step, after: last });
  }
  return drafts;
}

function isAdded({ firstAdds }: Rule, other: number, own: number): boolean {
  return firstAdds === 'all' || (firstAdds === 'own' && other === own);
}

/**
 * Whether requests can share an append: each gets an entry, no two have one key, and their numbers are within the
 * largest.
 */
export function canShare(rule: Rule, world: World, index: Index, drafts: readonly Entry[]): boolean {
  const keys = new Set(drafts.map(({ request }) => keyOf(world, request)));
  if (rule.draftsKeyOnce && keys.size < drafts.length) return false;
  return drafts.every(({ kind, sequence, request, first, step }) => {
    if (kind !== KIND.numbers || !rule.heedsMax) return true;
    return first + (at(world.requests, request).count - 1) * step <= at(index.rows, sequence).max;
  });
}

/** The same decision again, for a later request. */
export function renewalOf(rule: Rule, state: State, index: Index, request: number, offset: number): Entry {
  const { sequence, step } = at(state.entries, offset);
  const { end, through } = index;
  const row = at(index.rows, sequence);
  const entry = { ...BLANK, request, sequence, end, through, step };
  if (rule.renewals === 'take') return { ...entry, kind: KIND.numbers, at: end, first: row.next };
  return { ...entry, kind: KIND.renewal, first: numberAt(rule, index, state.entries, offset) };
}

/** A marker, with a statement of each sequence that the worker knows. */
export function markerOf(world: World, state: State, index: Index): readonly Entry[] {
  const { end, horizon } = index;
  // If nothing in the log shows the horizon, every existing request may have been decided.
  const through = horizon === UNKNOWN ? Math.max(index.through, state.arrived - 1) : index.through;
  const marker = { ...BLANK, end, through };
  const known = world.isStated ? statementsOf(index).map((entry) => ({ ...entry, through })) : [];
  return [marker, ...known.map((entry, i) => ({ ...entry, at: end + 1 + i }))];
}

/** A statement of each sequence that the worker knows and may speak for, as if each were the first of its append. */
export function statementsOf({ rows, end, through }: Index): readonly Entry[] {
  return rows.flatMap(({ next, step, max, isClosed, last }, sequence) => {
    if (next === UNKNOWN) return [];
    const said = { first: next, step, max, isClosed, after: last };
    return [{ ...BLANK, kind: KIND.statement, sequence, at: end, end, through, ...said }];
  });
}
