import { at } from '../search.ts';
import { read, restored } from './knowledge.ts';
import { type Order, RULE, type Rule, type World } from './rule.ts';
import {
  BLANK,
  type Entry,
  type Index,
  KIND,
  NO_ROW,
  NONE,
  type Row,
  type State,
  UNDECIDED,
  UNKNOWN,
  type Worker,
} from './state.ts';
import { landed, requireStated } from './truth.ts';
import { idle, type Observer, waiting } from './worker.ts';

/** Every sequence was created, and every worker has read that. */
export function initialState(world: World): State {
  const entries = Array.from({ length: world.sequences }, (_, sequence): Entry => {
    return { ...BLANK, kind: KIND.order, sequence, at: sequence, first: 1 };
  });
  const start = { low: 0, entries };
  const rows = entries.map((_, offset): Row => ({ ...NO_ROW, next: 1, last: offset }));
  const index = read(RULE, world, restored(RULE, world, start), entries);
  // What the rejected designs keep besides is known from the beginning too.
  const known: Index = { ...index, rows: index.rows.map((row, i) => ({ ...row, last: i, from: i })) };
  const worker: Worker = { index: known, saved: undefined, isMarkerDue: false, append: [] };
  const keys = world.requests.length;
  return {
    ...start,
    arrived: world.isGradual ? 0 : keys,
    workers: Array<Worker>(world.workers).fill(worker),
    strays: [],
    given: 0,
    truth: { rows, decisions: Array(keys).fill(UNDECIDED) },
    refused: world.hasRefusals ? Array<number>(keys).fill(0) : [],
  };
}

/** All steps from a state. */
export function moves(rule: Rule, world: World, state: State, observer: Observer): void {
  const { arrived, low, entries } = state;
  for (const { index } of state.workers) requireStated(state, index);
  if (arrived < world.requests.length) observer.step({ ...state, arrived: arrived + 1 }, 'request arrives', arrived);
  if (world.isTrimmed && low < entries.length) observer.step({ ...state, low: low + 1 }, 'trim');
  world.orders.forEach((order, i) => {
    if (((state.given >> i) & 1) === 0) give(rule, world, state, order, i, observer);
  });
  for (const [w, { append }] of state.workers.entries()) {
    (append.length === 0 ? idle : waiting)(rule, world, state, w, observer);
  }
  for (const [s, append] of state.strays.entries()) {
    if (entries.length + append.length > world.entries) continue;
    const left = { ...state, strays: state.strays.filter((_, i) => i !== s) };
    for (const next of landed(rule, world, left, append)) observer.step(next, 'a late append arrives');
  }
}

/** An operator's command reads the log to its end and sends a statement, which may be late. */
function give(rule: Rule, world: World, state: State, order: Order, i: number, { step }: Observer): void {
  if (state.entries.length + state.strays.length >= world.entries) return;
  const seen = restored(RULE, world, state);
  for (const [sequence, row] of seen.rows.entries()) {
    const said = statementFor(rule, state, order, sequence, row);
    if (said === undefined) continue;
    const shown = rule.operatorShowsNothing ? { end: 0, through: NONE } : { end: seen.end, through: seen.through };
    const entry = { ...BLANK, kind: KIND.order, sequence, at: seen.end, ...shown, ...said };
    const sent = { ...state, given: state.given | (1 << i), strays: [...state.strays, [entry]] };
    step(sent, `an operator sends ${order}`, sequence);
  }
}

/** What an operator orders who sees this row; undefined if there is nothing to order. */
function statementFor(
  { operatorReads }: Rule,
  { truth }: State,
  order: Order,
  sequence: number,
  { next, step, max, isClosed }: Row,
): Partial<Entry> | undefined {
  const now = { step, max, isClosed, first: next };
  if (next === UNKNOWN) {
    // Above all that was received, which the operator has to know.
    return order === 'create again' ? { first: at(truth.rows, sequence).next + 1 } : undefined;
  }
  switch (order) {
    case 'restart':
      return operatorReads ? { ...now, first: next + 1 } : { ...now, first: 2 };
    case 'step 2':
      return { ...now, step: 2 };
    case 'max':
      return { ...now, max: next };
    case 'close':
      return { ...now, isClosed: true };
    default:
      return undefined;
  }
}

const LETTERS = ['i', 'n', 'r', 'm', 's', 'o'];

export function describe({ low, entries, workers, strays }: State): string {
  const entry = (e: Entry) => {
    const about = e.sequence > 0 ? `#${e.sequence}` : '';
    const request = e.request === NONE ? '' : e.request;
    return `${LETTERS[e.kind]}${request}${about}${e.first === NONE ? '' : `:${e.first}`}${e.at === NONE ? '' : `@${e.at}`}`;
  };
  const append = (all: readonly Entry[]) => all.map(entry).join('+');
  const known = workers.map(({ index }) => {
    const rows = index.rows.map(({ next }) => (next === UNKNOWN ? '?' : next));
    return `[${index.origin},${index.end}) next ${rows.join(' ')}`;
  });
  const late = strays.length === 0 ? '' : `, late ${strays.map(append).join(' ')}`;
  const kept = entries.slice(low).map(entry).join(' ');
  return `(log ${low}:[${kept}], indexes ${known.join(' | ')}${late})`;
}
