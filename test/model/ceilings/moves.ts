import { at, type Observer as Observing, replaced, Violation } from '../search.ts';
import { claimIn, markOf, mayClaim, raiseIn, readPast, reservedIn } from './product.ts';
import {
  BEGINNING,
  type Etcd,
  IDLE,
  type Mark,
  type Process,
  type Rule,
  type Sent,
  type State,
  type Topic,
  type World,
} from './state.ts';

/**
 * The model of ceilings, of the witness topic, and of a rebuild: for one worker ID, all steps from a state. A process
 * may stand still between any two of its steps, a swap that was sent may take effect whenever etcd is as it compares,
 * and no clock is used.
 */

export const CASES = [
  'used',
  'refused by the look',
  'refused past the witness',
  'lost',
  'rebuilt',
  'after a rebuild',
] as const;
export type Case = (typeof CASES)[number];
export type Observer = Observing<State, Case>;

export function moves(rule: Rule, world: World, state: State, all: Observer): void {
  const observer: Observer = { ...all, step: (next, ...name) => all.step(withoutDead(rule, next), ...name) };
  for (const p of state.processes.keys()) steps(rule, world, state, p, observer);
  for (const [i, swap] of state.sent.entries()) {
    if (isTaken(rule, state.etcd, swap)) observer.step(landed(state, swap), 'a swap takes effect', i);
  }
  for (const [i, mark] of state.late.entries()) {
    const late = state.late.filter((_, other) => other !== i);
    observer.step({ ...state, late, topic: written(state.topic, mark) }, 'a late witness lands', i);
  }
  happen(rule, world, state, observer);
  rebuild(rule, state, observer);
}

// etcd and the topic

function isTaken(rule: Rule, etcd: Etcd, { namespace, fence, compared }: Sent): boolean {
  if (namespace !== etcd.namespace && rule.comparesNamespace) return false;
  return fence === etcd.fence && (compared === etcd.changed || !rule.comparesCeiling);
}

/** Without the swaps that can't take effect any more, since revisions only rise once etcd is not put back. */
function withoutDead({ comparesCeiling }: Rule, state: State): State {
  if (state.left.putBacks > 0 || !comparesCeiling) return state;
  return { ...state, sent: state.sent.filter(({ compared }) => compared >= state.etcd.changed) };
}

function landed(state: State, { namespace, fence, from, tick, nonce }: Sent): State {
  const { etcd, granted, hasForgotten } = state;
  // Of a namespace that etcd has forgotten nothing is promised but that nobody uses what it grants.
  if (from < granted && (!hasForgotten || namespace !== etcd.namespace)) {
    throw new Violation(`ticks from ${from} are granted, though etcd had granted all below ${granted}`);
  }
  const revision = etcd.revision + 1;
  const owner = fence === 0 ? { fence: revision, lease: nonce } : {};
  return {
    ...state,
    etcd: { ...etcd, ...owner, revision, tick, changed: revision, nonce },
    granted: tick,
    highest: Math.max(state.highest, tick),
  };
}

/** As compaction leaves it: the last of a name. */
function written({ seal, marks }: Topic, mark: Mark, drops: readonly Mark[] = []): Topic {
  const gone = new Set([mark, ...drops].map(nameOf));
  const kept = [...marks.filter((one) => !gone.has(nameOf(one))), mark];
  return { seal, marks: kept.sort((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1)) };
}

const nameOf = ({ namespace, fence, lease }: Mark): string => `${namespace}/${fence}/${lease}`;

function happen(rule: Rule, world: World, state: State, { step }: Observer): void {
  const { etcd, saved, left } = state;
  if (etcd.fence !== 0) {
    const freed = { ...etcd, revision: etcd.revision + 1, fence: 0, lease: 0 };
    const after = rule.outlivesLease ? freed : { ...freed, tick: 0, changed: freed.revision };
    step({ ...state, etcd: after }, 'the lease ends');
  }
  if (left.putBacks === 0) return;
  if (world.hasBackups && saved !== etcd) step({ ...state, saved: etcd }, 'etcd is backed up');
  const after = { ...state, left: { ...left, putBacks: left.putBacks - 1 }, hasForgotten: true };
  for (const [old, name] of [
    [saved, 'the backup'],
    [BEGINNING, 'its beginning'],
  ] as const) {
    step({ ...after, etcd: old, saved: BEGINNING }, `etcd is put back to ${name}`);
  }
}

// A process

function steps(rule: Rule, world: World, state: State, p: number, observer: Observer): void {
  const process = at(state.processes, p);
  const become = (next: Process, name: string, more: Partial<State> = {}) =>
    observer.step({ ...state, ...more, processes: replaced(state.processes, p, next) }, name, p);
  const { left } = state;
  if (left.crashes > 0 && process.stage !== 'idle') {
    become(IDLE, 'crashes', { left: { ...left, crashes: left.crashes - 1 } });
  }
  switch (process.stage) {
    case 'idle':
      if (state.left.claims > 0) become({ ...IDLE, stage: 'looked', view: state.topic }, 'reads the topic');
      return;
    case 'looked':
      claim(rule, world, state, process, become, observer);
      return;
    case 'claimed':
    case 'raising':
      readBack(rule, state, process, become, observer);
      return;
    case 'won':
      witness(rule, state, process, become);
      return;
    case 'written':
      verify(rule, state, process, become, observer);
      return;
    case 'held':
      raise(state, process, become);
      return;
  }
}

type Become = (next: Process, name: string, more?: Partial<State>) => void;

function claim(rule: Rule, world: World, state: State, { view }: Process, become: Become, { saw }: Observer): void {
  const { etcd, left } = state;
  if (etcd.fence !== 0 || view === undefined) return;
  if (rule.looks && !mayClaim(view, etcd)) {
    saw('refused by the look');
    become(IDLE, 'refuses');
    return;
  }
  const nonce = state.nonces + 1;
  for (let more = 1; more <= world.ticks; more += 1) {
    const tick = etcd.tick + more;
    const from = rule.begins === 'ceiling' ? etcd.tick : Math.max(0, tick - 2);
    const swap = { namespace: etcd.namespace, fence: 0, compared: etcd.changed, from, tick, nonce };
    const { namespace, compared } = swap;
    const own = { namespace, compared, from, to: from, wanted: tick, nonce, lease: nonce };
    become({ ...IDLE, ...own, stage: 'claimed' }, 'claims', {
      nonces: nonce,
      sent: [...state.sent, swap],
      left: { ...left, claims: left.claims - 1 },
    });
  }
}

function raise(state: State, process: Process, become: Become): void {
  const { left } = state;
  if (left.raises === 0) return;
  const { namespace, fence, revision: compared, stored: from } = process;
  const nonce = state.nonces + 1;
  const swap = { namespace, fence, compared, from, tick: from + 1, nonce };
  become({ ...process, stage: 'raising', nonce, wanted: swap.tick, compared }, 'raises', {
    nonces: nonce,
    sent: [...state.sent, swap],
    left: { ...left, raises: left.raises - 1 },
  });
}

function readBack(rule: Rule, state: State, process: Process, become: Become, { saw }: Observer): void {
  const { etcd } = state;
  const isClaim = process.stage === 'claimed';
  const assumed = { fence: etcd.fence, stored: process.wanted, revision: etcd.changed };
  const shown = isClaim ? (claimIn(etcd, process) ?? 'lost') : raiseIn(etcd, process);
  const found = rule.readsBack ? shown : assumed;
  if (found === 'open') return;
  if (found === 'lost') {
    saw('lost');
    become(IDLE, 'finds that it has not won');
    return;
  }
  const won: Process = { ...process, ...found, own: process.nonce, stage: 'won' };
  become(won, 'finds that it has won', rule.waits ? {} : usedBy(state, won));
}

function witness(rule: Rule, state: State, process: Process, become: Become): void {
  const { left, topic } = state;
  const mark = markOf(process);
  become({ ...process, stage: 'written', superseded: [] }, 'writes its witness', {
    topic: written(topic, mark, process.superseded),
  });
  if (left.silences === 0) return;
  const silent = process.silent + (rule.namesLate ? 1 : 0);
  become({ ...process, silent }, 'gets no answer to its witness', {
    late: [...state.late, mark],
    left: { ...left, silences: left.silences - 1 },
  });
}

function verify(rule: Rule, state: State, process: Process, become: Become, { saw }: Observer): void {
  const superseded = readPast(state.topic, process) ?? (rule.readsPast ? undefined : []);
  if (superseded === undefined) {
    saw('refused past the witness');
    become(IDLE, 'finds a rival');
    return;
  }
  saw('used');
  if (process.namespace > 1) saw('after a rebuild');
  const held: Process = { ...process, stage: 'held', to: process.stored, superseded };
  become(held, 'may use its ticks', usedBy(state, held));
}

/** The state once a process may use all that it has reserved, and the checks of that. */
function usedBy(state: State, { namespace, lease, from, stored: to }: Process): Partial<State> {
  const { highest, operator } = state;
  if (to > highest) throw new Violation(`ticks up to ${to} are used, above every ceiling`);
  const others = state.used.filter((one) => one.lease !== lease);
  const twice = others.find((one) => one.from < to && from < one.to);
  if (twice) throw new Violation(`ticks from ${Math.max(from, twice.from)} are used twice`);
  const higher = others.find((one) => one.lease < lease && one.to > from);
  if (higher) throw new Violation('the ticks of a later term are lower');
  const isOver = operator.stage === 'rebuilt' || operator.stage === 'ended';
  if (isOver && namespace === 1 && to > operator.floor) throw new Violation('ticks of before are used above the floor');
  return { used: [...others, { namespace, lease, from, to }].sort((one, other) => one.lease - other.lease) };
}

// An operator

function rebuild(rule: Rule, state: State, { step, saw }: Observer): void {
  const { etcd, topic, operator, left } = state;
  switch (operator.stage) {
    case 'idle': {
      if (left.rebuilds === 0 || etcd.fence !== 0) return;
      const sealed = rule.seals === 'first' ? { ...topic, seal: 2 } : topic;
      const after = { ...state, topic: sealed, left: { ...left, rebuilds: left.rebuilds - 1 } };
      step({ ...after, operator: { stage: 'sealed', floor: 0 } }, 'an operator seals the topic');
      return;
    }
    case 'sealed': {
      const { ceilings, all } = reservedIn(etcd, topic);
      const floor = rule.countsWitnesses ? all : ceilings;
      step({ ...state, operator: { stage: 'measured', floor } }, 'an operator measures', floor);
      return;
    }
    case 'measured': {
      const { floor } = operator;
      if (etcd.fence !== 0 || etcd.tick > floor || etcd.namespace !== 1) return;
      saw('rebuilt');
      if (state.used.some(({ to }) => to > floor)) throw new Violation('a rebuild begins below what is used');
      const revision = etcd.revision + 1;
      const rebuilt = { ...etcd, namespace: 2, revision, tick: floor, changed: revision, nonce: 0 };
      const granted = { granted: floor, hasForgotten: false, highest: Math.max(state.highest, floor) };
      const after = { ...state, ...granted, etcd: rebuilt, topic: { ...topic, seal: 2 } };
      step({ ...after, operator: { stage: 'rebuilt', floor } }, 'an operator rebuilds');
      return;
    }
    case 'rebuilt': {
      // What witnesses of the new namespace say is written before the old ones go.
      const mark = { namespace: 2, fence: 0, lease: 0, tick: operator.floor, revision: etcd.changed };
      if (etcd.namespace !== 2) return;
      const old = topic.marks.filter(({ namespace }) => namespace === 1);
      const after = { ...state, topic: written(topic, mark, old) };
      step({ ...after, operator: { ...operator, stage: 'ended' } }, 'an operator replaces the witnesses');
      return;
    }
    case 'ended':
      return;
  }
}

export function describe({ etcd, topic, processes, operator }: State): string {
  const { namespace, tick, changed, fence } = etcd;
  const marks = topic.marks.map((mark) => `${nameOf(mark)}<${mark.tick}`);
  const known = processes.map(
    (process) =>
      `${process.stage} ${process.namespace}/${process.fence}/${process.lease} [${process.from},${process.to})`,
  );
  const topicText = `${topic.seal}:[${marks.join(' ')}]`;
  return `(etcd ${namespace}:${tick}@${changed} of ${fence}, topic ${topicText}, ${known.join(', ')}, operator ${operator.stage})`;
}
