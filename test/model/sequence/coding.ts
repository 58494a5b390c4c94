import type { Coding } from '../run.ts';
import { at } from '../search.ts';
import type { Rule, World } from './rule.ts';
import { BLANK, type Decision, type Entry, type Index, type Kind, type Row, type State, type Worker } from './state.ts';

/** The encoding of states as strings, by which they are compared. What no part of a world uses is left out. */

/** Lifts every number of the model above zero. */
const LIFT = 8;

export function codingFor(rule: Rule, world: World): Coding<State> {
  const isChained = rule.counting === 'chained';
  const isTotal = rule.counting === 'total';
  const hasDefinitions = world.orders.length > 0;
  const keys = world.requests.length;
  // The checker reads the whole log where it judges records by others; else trimmed ones that nobody knows are equal.
  const readsAll = isTotal || isChained;

  function pushEntry(to: number[], entry: Entry): void {
    to.push(entry.kind, entry.request, entry.sequence, entry.at, entry.end, entry.through, entry.first);
    if (hasDefinitions) to.push(entry.step, entry.max, Number(entry.isClosed));
    if (world.hasWindows) to.push(Number(entry.isTimely));
    if (isChained) to.push(entry.after);
  }

  function pushRow(to: number[], row: Row): void {
    to.push(row.next);
    if (hasDefinitions) to.push(row.step, row.max, Number(row.isClosed));
    if (isChained) to.push(row.last, row.from);
  }

  function pushIndex(to: number[], { origin, end, horizon, through, indexed, rows, totals }: Index): void {
    to.push(origin, end, horizon, through, indexed);
    for (const row of rows) pushRow(to, row);
    if (!isTotal) return;
    to.push(totals.length);
    for (const total of totals) to.push(total);
  }

  function pushAppend(to: number[], append: readonly Entry[]): void {
    to.push(append.length);
    for (const entry of append) pushEntry(to, entry);
  }

  function workerText({ index, saved, isMarkerDue, append }: Worker): string {
    const own: number[] = [];
    pushIndex(own, index);
    if (world.hasOlder) {
      own.push(saved === undefined ? 0 : 1);
      if (saved !== undefined) pushIndex(own, saved);
    }
    own.push(Number(isMarkerDue));
    pushAppend(own, append);
    return toText(own);
  }

  function strayText(append: readonly Entry[]): string {
    const own: number[] = [];
    pushAppend(own, append);
    return toText(own);
  }

  function encode(state: State): string {
    const { arrived, low, entries, given, truth, refused } = state;
    const numbers = [arrived, low, given, state.strays.length, entries.length];
    let reach = readsAll ? 0 : low;
    for (const { index, saved } of state.workers) {
      reach = Math.min(reach, index.origin, saved?.origin ?? reach);
    }
    for (let offset = 0; offset < entries.length; offset++) {
      pushEntry(numbers, offset < reach ? BLANK : at(entries, offset));
    }
    for (const row of truth.rows) pushRow(numbers, row);
    for (const { request, first } of truth.decisions) numbers.push(request, first);
    if (world.hasRefusals) for (const flag of refused) numbers.push(flag);
    // Workers have no names, and appends under way no order.
    const workers = state.workers.map(workerText);
    const strays = state.strays.map(strayText);
    return toText(numbers) + workers.sort().join('') + strays.sort().join('');
  }

  function decode(text: string): State {
    let place = 0;
    const next = () => text.charCodeAt(place++) - LIFT;
    const flag = () => next() === 1;
    const times = <T>(count: number, read: () => T): T[] => {
      const items: T[] = [];
      for (let i = 0; i < count; i++) items.push(read());
      return items;
    };
    const definition = () => ({
      step: hasDefinitions ? next() : 1,
      max: hasDefinitions ? next() : BLANK.max,
      isClosed: hasDefinitions ? flag() : false,
    });
    const entry = (): Entry => ({
      kind: next() as Kind,
      request: next(),
      sequence: next(),
      at: next(),
      end: next(),
      through: next(),
      first: next(),
      ...definition(),
      isTimely: world.hasWindows ? flag() : true,
      after: isChained ? next() : BLANK.after,
    });
    const row = (): Row => {
      const known = { next: next(), ...definition() };
      return { ...known, last: isChained ? next() : -2, from: isChained ? next() : -2 };
    };
    const index = (): Index => ({
      origin: next(),
      end: next(),
      horizon: next(),
      through: next(),
      indexed: next(),
      rows: times(world.sequences, row),
      totals: isTotal ? times(next(), next) : [],
    });
    const worker = (): Worker => ({
      index: index(),
      saved: world.hasOlder && flag() ? index() : undefined,
      isMarkerDue: flag(),
      append: times(next(), entry),
    });
    const decision = (): Decision => ({ request: next(), first: next() });
    const head = { arrived: next(), low: next(), given: next() };
    const strays = next();
    return {
      ...head,
      entries: times(next(), entry),
      truth: { rows: times(world.sequences, row), decisions: times(keys, decision) },
      refused: world.hasRefusals ? times(keys, next) : [],
      workers: times(world.workers, worker),
      strays: times(strays, () => times(next(), entry)),
    };
  }

  return { encode, decode };
}

function toText(numbers: number[]): string {
  for (let i = 0; i < numbers.length; i++) numbers[i] = (numbers[i] as number) + LIFT;
  return String.fromCharCode.apply(undefined, numbers);
}
