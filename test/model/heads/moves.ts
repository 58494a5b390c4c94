import { at, Violation } from '../search.ts';
import { dueWhenRebuilt, isStopped } from './product.ts';
import { restored } from './reading.ts';
import { RULE, type Rule, sinceOf, type World } from './rule.ts';
import { BLANK, type Entry, type Head, KIND, NONE, type State, type Stated, UNSTATED, type Worker } from './state.ts';
import { etcdRemembers, landed, logRemembers, swapped } from './truth.ts';
import { appending, idle, type Observer, swapping, viewOf } from './worker.ts';

/** Every sequence is created, unless that is among the orders; every worker has read so. */
export function initialState(world: World): State {
  const created = world.orders.includes('create') ? 0 : world.sequences;
  // The version before has no editions, and no heads.
  const edition = world.isUpgraded ? 0 : 1;
  const opened: Stated = { ...UNSTATED, next: 1, edition };
  const log = Array.from({ length: created }, (_, sequence): Entry => {
    return { ...BLANK, kind: KIND.order, sequence, next: 1, edition, at: sequence };
  });
  for (let i = 0; i < world.prefix; i++) log.push(BLANK);
  const due = Array<Stated>(world.sequences).fill(created > 0 ? opened : UNSTATED);
  const numbers = Array<number>(world.keys.length).fill(0);
  const stated = Array<Stated>(world.sequences).fill(created > 0 && !world.isUpgraded ? opened : UNSTATED);
  const revision = created > 0 && !world.isUpgraded ? 1 : 0;
  const head: Head = { revision, pending: [], stated, through: NONE };
  const copy = restored(RULE, world, { low: 0, log });
  const worker: Worker = { copy, head, swap: undefined, append: [], isUnsure: false };
  return {
    arrived: world.isGradual ? 0 : world.requests.length,
    foreign: world.foreign,
    losses: world.losses,
    wipes: world.wipes,
    given: 0,
    low: 0,
    log,
    head,
    saved: head,
    workers: Array<Worker>(world.workers).fill(worker),
    strays: world.isUpgraded ? [unswapped(world, log.length)] : [],
    lates: [],
    refused: 0,
    truth: { numbers, due },
  };
}

/** What a worker of the version before still sends for the first key. */
function unswapped(world: World, place: number): readonly Entry[] {
  const { sequence, count } = at(world.keys, 0);
  const sent = sinceOf(world, 0);
  return [{ ...BLANK, kind: KIND.numbers, sequence, key: 0, first: 1, next: 1 + count, sent, at: place }];
}

/** All steps from a state. */
export function moves(rule: Rule, world: World, state: State, observer: Observer): void {
  for (const [w, { swap, append }] of state.workers.entries()) {
    if (swap !== undefined) swapping(rule, world, state, w, swap, observer);
    else if (append.length > 0) appending(rule, world, state, w, observer);
    else idle(rule, world, state, w, observer);
  }
  for (const [s, append] of state.strays.entries()) {
    const after = landed(rule, world, { ...state, strays: state.strays.filter((_, i) => i !== s) }, append);
    if (after !== undefined) observer.step(after, 'a late append arrives');
  }
  for (const [s, swap] of state.lates.entries()) {
    const left = { ...state, lates: state.lates.filter((_, i) => i !== s) };
    observer.step(swapped(rule, left, swap).state, 'a late swap arrives');
  }
  happen(rule, world, state, observer);
}

/** What happens to the topics and the log. */
function happen(rule: Rule, world: World, state: State, observer: Observer): void {
  const { arrived, foreign, log, low } = state;
  const isLost = state.losses < world.losses;
  const next = world.requests[arrived];
  if (next !== undefined && !(next.isUndated && isLost)) {
    observer.step({ ...state, arrived: arrived + 1 }, 'request arrives', arrived);
  }
  if (foreign > 0 && log.length < world.entries) {
    observer.step({ ...state, foreign: foreign - 1, log: [...log, BLANK] }, 'a record of something else arrives');
  }
  if (low < Math.min(world.trims, log.length)) observer.step({ ...state, low: low + 1 }, 'trim');
  if (state.losses > 0) loseTail(rule, world, state, observer);
  if (state.wipes > 0) loseHead(rule, world, state, observer);
  if (world.wipes > 0) repairByOrder(rule, world, state, observer);
}

function loseTail(rule: Rule, world: World, state: State, { step }: Observer): void {
  if (world.isApart && !etcdRemembers(world, state)) return;
  const losses = state.losses - 1;
  const quiet = world.isQuiet ? settled(state) : state;
  for (let end = Math.max(state.low, world.keeps); end < state.log.length; end++) {
    step({ ...quiet, losses, log: state.log.slice(0, end) }, 'the log loses its tail from', end);
  }
  if (!world.isCopied) return;
  // A mirror that was trimmed first has the records at lower offsets. Workers start anew with it.
  for (let start = 1; start < state.log.length; start++) {
    for (let end = start + 1; end <= state.log.length; end++) {
      const copied = restarted(rule, world, { ...state, losses, low: 0, log: state.log.slice(start, end) });
      step({ ...copied, strays: state.strays }, 'an operator adopts a copy at other offsets', start, end);
    }
  }
}

/** Nothing is under way any more, and the heads are read. */
function settled(state: State): State {
  const { head } = state;
  const workers = state.workers.map((worker) => ({ ...worker, head, swap: undefined, append: [] }));
  return { ...state, strays: [], lates: [], workers };
}

/** All workers start anew, and nothing is under way any more. */
function restarted(rule: Rule, world: World, state: State): State {
  const quiet = settled(state);
  const copy = restored(rule, world, quiet);
  return { ...quiet, workers: quiet.workers.map((worker) => ({ ...worker, copy })) };
}

function loseHead(rule: Rule, world: World, state: State, { step }: Observer): void {
  const { head, saved } = state;
  if (saved !== head) step({ ...state, saved: head }, 'etcd is backed up');
  if (world.isApart && !logRemembers(rule, world, state)) return;
  const wipes = state.wipes - 1;
  const quiet = world.isQuiet ? restarted(rule, world, state) : state;
  const stated = Array<Stated>(world.sequences).fill(UNSTATED);
  const empty: Head = { revision: 0, pending: [], stated, through: NONE };
  for (const [old, name] of [
    [saved, 'put back'],
    [empty, 'wiped'],
  ] as const) {
    const after = (revision: number) => ({ ...quiet, wipes, head: { ...old, revision }, saved: empty });
    step(after(old.revision), `etcd is ${name}`);
    if (old.revision > 0) step(after(head.revision), `etcd is ${name}, with revisions that go on`);
  }
}

/** `namespace rebuild`, with all workers stopped: the log is right about what pending contradicts. */
function repairByOrder(rule: Rule, world: World, state: State, { step }: Observer): void {
  const repaired = repairedByOrder(rule, world, state);
  if (repaired !== undefined) step(repaired, 'an operator repairs the head');
}

/** More steps than a worker ever needs before it repairs the head. */
const STEPS = 20;

/**
 * A worker that starts after the rebuild repairs the head, once nothing else is due. Undefined if the world has no
 * place for that.
 */
export function repairedByOrder(rule: Rule, world: World, state: State): State | undefined {
  let now: State = state;
  for (let steps = 0; steps < STEPS; steps++) {
    const worker = { copy: restored(rule, world, now), head: now.head, swap: undefined, append: [], isUnsure: false };
    const view = viewOf(rule, world, now, worker);
    if (!now.head.stated.some((_, s) => isStopped(view, s))) return undefined;
    const due = dueWhenRebuilt(view);
    if (due.kind === 'repair') return settled(swapped(rule, now, due.swap).state);
    const next = due.kind === 'draft' ? undefined : landed(rule, world, now, due.entries);
    if (next === undefined) return undefined;
    now = next;
  }
  throw new Violation('a stopped sequence is never repaired');
}

const LETTERS = ['n', 'o', 'a', 'l', '-'];

export function describe({ low, log, head, workers, strays, lates }: State): string {
  const entry = ({ kind, key, sequence, first, next, at: place }: Entry) => {
    const about = kind === KIND.numbers ? `k${key}` : `#${sequence}`;
    return kind === KIND.others ? '-' : `${LETTERS[kind]}${about}:${first}>${next}${place === NONE ? '' : `@${place}`}`;
  };
  const list = (all: readonly Entry[]) => all.map(entry).join('+');
  const headText = ({ revision, pending, stated }: Head) => {
    return `r${revision} ${stated.map(({ next }) => next).join('/')} [${list(pending)}]`;
  };
  const known = workers.map(({ copy, head: seen, swap, append }) => {
    const rows = copy.rows.map(({ next, gap }) => `${next}${gap > 0 ? `!${gap}` : ''}`);
    const under = swap === undefined ? list(append) : `swap ${headText(swap.head)}`;
    return `<${copy.end}: ${rows.join(' ')}~${copy.horizon}, ${headText(seen)}${under === '' ? '' : `, ${under}`}>`;
  });
  const late = strays.map((append) => ` late ${list(append)}`).join('');
  const swaps = lates.map((swap) => ` late swap ${headText(swap.head)}`).join('');
  return `(log ${low}:[${log.map(entry).join(' ')}], head ${headText(head)}, ${known.join(' ')}${late}${swaps})`;
}
