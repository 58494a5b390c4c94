import type { Rule } from './rule.ts';
import { at } from './search.ts';
import { type Entry, FOR_EVER, type Index, type Log, MARKER, NONE, type Request, UNKNOWN } from './state.ts';

/** A worker's index of one partition, and how events change it. */

/** The index after a restore from the log. */
export function restored(rule: Rule, { low, entries }: Log): Index {
  const isWhole = low === 0;
  const index: Index = {
    origin: low,
    end: low,
    since: isWhole || rule.afterLoss === 'for ever' ? FOR_EVER : UNKNOWN,
    horizon: isWhole || !rule.byOffset ? NONE : UNKNOWN,
    through: NONE,
    isUndated: false,
    isRestored: !isWhole && rule.sinceFalls !== 'never',
  };
  const isUndated = rule.trimmedAge !== undefined && index.since === UNKNOWN;
  return { ...read(rule, index, entries), isUndated };
}

/** The index after reading to the end of the log. */
export function read(rule: Rule, index: Index, entries: readonly Entry[]): Index {
  let { since, horizon, through, isUndated } = index;
  const { isRestored } = index;
  for (let offset = index.end; offset < entries.length; offset++) {
    const entry = at(entries, offset);
    const isAnchor = entry.end === offset;
    const time = timeOf(rule, entry);
    if (since === UNKNOWN && (isAnchor || rule.since === 'oldest')) since = time;
    const falls = rule.sinceFalls === 'with all' || (rule.sinceFalls === 'with anchors' && isAnchor);
    if (isRestored && since !== UNKNOWN && since !== FOR_EVER && falls && entry.key !== MARKER) {
      since = Math.min(since, time);
    }
    if (isUndated && rule.trimmedAge !== undefined && since !== UNKNOWN) {
      since = Math.min(since, entry.appendedAt - rule.trimmedAge);
      isUndated = rule.trimmedAgeApplies === 'always';
    }
    if (horizon === UNKNOWN && isAnchor) horizon = entry.through;
    through = Math.max(through, entry.through, entry.requestOffset);
  }
  return { origin: index.origin, end: entries.length, since, horizon, through, isUndated, isRestored };
}

/** When an entry was appended, as far as it shows. A marker has the broker's time alone. */
function timeOf({ entryTime }: Rule, { key, appendedAt, sentAt }: Entry): number {
  return entryTime === 'of both' && key !== MARKER ? Math.max(appendedAt, sentAt) : appendedAt;
}

/** The index of a worker whose clock shows that nothing was appended after this time. */
export function capped(index: Index, now: number): Index {
  return { ...index, since: Math.min(index.since, now) };
}

/** The index after expiry of the trimmed entries. */
export function expired(rule: Rule, index: Index, { low, entries }: Log): Index {
  const gone = entries.slice(index.origin, low);
  const since = rule.expiryRaises ? Math.max(index.since, ...gone.map((entry) => timeOf(rule, entry))) : index.since;
  const horizon = Math.max(index.horizon, ...gone.map(({ requestOffset }) => requestOffset));
  const isUndated = index.isUndated && rule.trimmedAgeApplies === 'always';
  return { ...index, origin: low, since, horizon, isUndated };
}

/** Whether anything may be decided before a marker is written. */
export function isReady({ since, horizon }: Index): boolean {
  return since !== UNKNOWN && horizon !== UNKNOWN;
}

/** The offset of a key's first entry; UNKNOWN when it can't be known any more, NONE when there is none. */
export function lookUp(rule: Rule, index: Index, entries: readonly Entry[], key: number): number {
  for (let offset = index.origin; offset < index.end; offset++) {
    const entry = at(entries, offset);
    if (entry.key !== key || key === MARKER) continue;
    return rule.losersForgotten && entry.end < index.origin ? UNKNOWN : offset;
  }
  return NONE;
}

export type Verdict = 'serve' | 'too old' | 'below the horizon';

/** The verdict on a request that the index does not know. */
export function judge(rule: Rule, index: Index, request: Request, offset: number, now: number): Verdict {
  const isFirst = !request.hasOrigin;
  const isTimed = rule.byTime === 'all' || (rule.byTime === 'copies' && !isFirst);
  if (isTimed && index.since !== FOR_EVER && request.time < index.since + rule.margin) return 'too old';
  if (rule.futureForgotten && isTimed && request.time > now + rule.margin) return 'too old';
  return rule.byOffset && isFirst && offset <= index.horizon ? 'below the horizon' : 'serve';
}
