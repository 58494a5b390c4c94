import { at, replaced, Violation } from '../search.ts';
import { after, isAnywhere } from './knowledge.ts';
import { chainedCounts, withLast } from './rejected.ts';
import type { Rule, World } from './rule.ts';
import { type Entry, type Index, KIND, keyOf, NONE, type Row, type State, type Truth, UNKNOWN } from './state.ts';

/** What a reader of the whole log knows, which no worker does; and the checks of the invariants against it. */

/**
 * The states after an append arrives: each for a time at which it may arrive. Checks that the numbers are gapless (12,
 * 13).
 */
export function landed(rule: Rule, world: World, state: State, append: readonly Entry[]): readonly State[] {
  return timesOf(rule, world, append).map((times) => {
    const entries = [...state.entries, ...append.map((entry, i) => ({ ...entry, isTimely: at(times, i) }))];
    let { truth } = state;
    for (let offset = state.entries.length; offset < entries.length; offset++) {
      truth = truthAfter(rule, world, state, truth, at(entries, offset), offset);
    }
    return { ...state, entries, truth };
  });
}

/** Whether each record's append time lies in the window. */
function timesOf({ isTimedByAppend }: Rule, { hasWindows }: World, append: readonly Entry[]): readonly boolean[][] {
  const all = (isTimely: boolean) => append.map(() => isTimely);
  if (!hasWindows) return [all(true)];
  if (isTimedByAppend || append.length < 2) return [all(true), all(false)];
  return [all(true), all(false), append.map((_, i) => i === 0), append.map((_, i) => i > 0)];
}

function truthAfter(rule: Rule, world: World, state: State, truth: Truth, entry: Entry, offset: number): Truth {
  const { kind, request, sequence } = entry;
  if (kind === KIND.marker || kind === KIND.renewal) return truth;
  const key = request === NONE ? NONE : keyOf(world, request);
  if (kind === KIND.ids) {
    if (at(truth.decisions, key).request !== NONE) return truth;
    return { ...truth, decisions: replaced(truth.decisions, key, { request, first: offset }) };
  }
  const row = at(truth.rows, sequence);
  if (!countsFor(rule, truth, key, row, entry, offset)) return truth;
  if (kind !== KIND.numbers)
    return { ...truth, rows: replaced(truth.rows, sequence, stated(rule, row, entry, offset)) };
  const first = rule.counting === 'total' ? row.next : entry.first;
  requireNext(world, state, truth, key, row, { ...entry, first });
  const next = { ...withLast(rule, row, entry, offset), next: after(world, { ...entry, first }) };
  return {
    rows: replaced(truth.rows, sequence, next),
    decisions: replaced(truth.decisions, key, { request, first }),
  };
}

function countsFor(rule: Rule, truth: Truth, key: number, row: Row, entry: Entry, offset: number): boolean {
  const isPlaced = entry.at === offset && entry.isTimely;
  if (isAnywhere(rule, entry)) return true;
  if (rule.counting === 'chained') return chainedCounts(row, entry, offset);
  if (entry.kind !== KIND.numbers) return isPlaced;
  const isUndecided = at(truth.decisions, key).request === NONE;
  if (rule.counting === 'first of its key' || rule.counting === 'total') return isUndecided;
  if (rule.counting === 'slot' && entry.at !== offset) return entry.first === row.next;
  return isPlaced;
}

/** Invariants 12 and 13 for numbers that count. */
function requireNext({ requests }: World, state: State, truth: Truth, key: number, row: Row, entry: Entry): void {
  const { request, first, step, sequence } = entry;
  const decision = at(truth.decisions, key);
  if (decision.request !== NONE) {
    throw new Violation(`key ${key} has the numbers from ${decision.first}, and gets those from ${first}`);
  }
  if (state.refused[key] === 1) throw new Violation(`key ${key} was refused, and gets the numbers from ${first}`);
  if (first !== row.next || step !== row.step) {
    const what = first > row.next ? 'a gap' : first < row.next ? 'a double' : `a step of ${step}, not ${row.step}`;
    throw new Violation(`sequence ${sequence} goes on at ${first}, where ${row.next} is due: ${what}`);
  }
  if (row.isClosed) throw new Violation(`sequence ${sequence} is closed, and goes on at ${first}`);
  const last = first + (at(requests, request).count - 1) * step;
  if (last > row.max) throw new Violation(`sequence ${sequence} ends at ${row.max}, and goes on to ${last}`);
}

/**
 * Invariant 12 for a statement that counts: it only moves up, and only by an operator's order; and a closed sequence
 * stays so.
 */
function stated(rule: Rule, row: Row, entry: Entry, offset: number): Row {
  const { kind, sequence, first, step, max, isClosed } = entry;
  if (row.next !== UNKNOWN) {
    const change = `a statement moves sequence ${sequence} from ${row.next} to ${first}`;
    if (first < row.next) throw new Violation(`${change}: back`);
    const isSame = first === row.next && step === row.step && max === row.max && isClosed === row.isClosed;
    if (kind === KIND.statement && !isSame) throw new Violation(`${change}, which no operator ordered`);
    if (row.isClosed && !isClosed) throw new Violation(`${change}, and opens it again`);
  }
  return { ...withLast(rule, row, entry, offset), next: first, step, max, isClosed };
}

/** Invariant 14: a row of an index that has read the whole log is what the newest record that counts says. */
export function requireStated({ entries, truth }: State, index: Index): void {
  if (index.end !== entries.length) return;
  index.rows.forEach((row, sequence) => {
    const { next, step, max, isClosed } = at(truth.rows, sequence);
    if (row.next === UNKNOWN) return;
    const isRight = row.next === next && row.step === step && row.max === max && row.isClosed === isClosed;
    if (isRight) return;
    const says = `${row.next} up to ${row.max} by ${row.step}`;
    throw new Violation(`a row of sequence ${sequence} says ${says}, not ${next} up to ${max} by ${step}`);
  });
}

/** A requester is told numbers or IDs: those of the decision, and always the same (13). */
export function tell(world: World, state: State, request: number, first: number): void {
  const key = keyOf(world, request);
  const decision = at(state.truth.decisions, key);
  if (decision.request === NONE) throw new Violation(`request ${request} is told ${first}, but is not decided`);
  const decided = at(world.requests, decision.request);
  const { sequence, count } = at(world.requests, request);
  if (decision.first !== first || (sequence !== NONE && decided.count !== count)) {
    throw new Violation(`request ${request} is told ${first}, but has the numbers from ${decision.first}`);
  }
}

/** A requester is told CONFLICT: another count was decided under this key. */
export function tellConflict(world: World, { truth }: State, request: number): void {
  const decision = at(truth.decisions, keyOf(world, request));
  const isOther =
    decision.request !== NONE && at(world.requests, decision.request).count !== at(world.requests, request).count;
  if (!isOther) throw new Violation(`request ${request} is told CONFLICT, but nothing else was decided`);
}
