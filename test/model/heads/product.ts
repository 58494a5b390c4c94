import { isDeepStrictEqual } from 'node:util';
import type { Pending, PendingNumbers } from '../../../src/codec/head-values.ts';
import type { Definition as Defined, SequenceRow, Statement } from '../../../src/core/sequence-row.ts';
import type { Head, HeadChange } from '../../../src/ledger/heads.ts';
import * as product from '../../../src/ledger/sequence-rule.ts';
import { at } from '../search.ts';
import type { Due, View } from './decide.ts';
import * as model from './decide.ts';
import { RULE, type Rule } from './rule.ts';
import { BLANK, type Definition, type Entry, KIND, NONE, type Row, type Stated, type Swap } from './state.ts';

/**
 * The rule as the product has it, in the model's words. Where the model makes no mistake, each step of a worker is
 * taken from the product, and compared with the model's own.
 */

/** Large enough for every world, where nothing is exhausted. */
const MAX = 1_000;
const NAMESPACE = 'this one';
const REBUILT = 'a rebuilt one';
const ENTRY = {
  format: '',
  requestHash: Buffer.alloc(16),
  replyTopic: 't',
  requestOffset: 0,
  framing: 'SINGLE_OBJECT',
} as const;

export function dueNow(view: View): Due {
  const due = model.dueNow(view);
  return isRight(view.rule) ? same('what is due', dueBy(view, NAMESPACE), due) : due;
}

/** What is due once the namespace was rebuilt: the log is right about what it contradicts. */
export function dueWhenRebuilt(view: View): Due {
  return isRight(view.rule) ? dueBy(view, REBUILT) : { kind: 'repair', swap: model.repairOf(view, true) };
}

export function isStopped(view: View, s: number): boolean {
  const stopped = model.isStopped(view, s);
  return isRight(view.rule) ? same('whether it stops', product.isStopped(toView(view), nameOf(s)), stopped) : stopped;
}

export function swapIn(view: View, draft: readonly Entry[], order: number): Swap {
  const swap = model.swapIn(view, draft, order);
  if (!isRight(view.rule)) return swap;
  const known = new Known();
  const records = draft.map((entry) => known.toPending(entry));
  const sent = Math.max(...draft.map((entry) => entry.sent));
  const change = product.draftChange(toView(view, NAMESPACE, known), records, sent);
  return same('a draft', { ...toSwap(view, change, known), order }, swap);
}

export function fenceOf(view: View): Swap {
  const swap = model.fenceOf(view);
  if (!isRight(view.rule)) return swap;
  const known = new Known();
  return same('a fence', toSwap(view, product.fenceOf(toView(view, NAMESPACE, known)), known), swap);
}

/** Whether the rule has no mistake: how late a leader tells the end of the requests is none. */
export function isRight(rule: Rule): boolean {
  let known = right.get(rule);
  if (known === undefined) {
    known = isDeepStrictEqual({ ...rule, endLag: 0 }, RULE);
    right.set(rule, known);
  }
  return known;
}

const right = new WeakMap<Rule, boolean>();

function same<T>(what: string, ours: T, theirs: T): T {
  if (isDeepStrictEqual(ours, theirs)) return ours;
  throw new Error(
    `the product differs in ${what}: ${JSON.stringify(ours)}, where the model has ${JSON.stringify(theirs)}`,
  );
}

const nameOf = (s: number): string => `s${s}`;
const placeOf = (name: string): number => Number(name.slice(1));

/** Pending records of the product, and the entries of the model for which they stand. */
class Known {
  readonly #entries = new Map<Pending, Entry>();

  toPending(entry: Entry): Pending {
    const pending = this.#made(entry);
    this.#entries.set(pending, entry);
    return pending;
  }

  entryOf(pending: Pending): Entry {
    const entry = this.#entries.get(pending);
    if (entry === undefined) throw new Error('a record that is not pending');
    return entry;
  }

  #made(entry: Entry): Pending {
    const { kind, key, first, next, step, edition } = entry;
    const sequence = nameOf(entry.sequence);
    if (kind === KIND.order)
      return { kind: 'order', sequence, first: first === 0 ? -1 : first, statement: toStatement(entry) };
    const count = (next - first) / step;
    const numbers = { kind: 'numbers', ...ENTRY, schemaFingerprint: Buffer.alloc(8), first, count, step } as const;
    return { kind: 'numbers', sequence, key: Buffer.of(key), edition, entry: numbers };
  }
}

function dueBy(view: View, namespace: string): Due {
  const known = new Known();
  const due = product.dueNow(toView(view, namespace, known), namesOf(view));
  switch (due.kind) {
    case 'loss': {
      const s = placeOf(due.sequence);
      const [first, next] = [due.next, due.next];
      const through = model.horizonOf(view);
      const entry = { ...BLANK, kind: KIND.loss, sequence: s, first, next, ...toDefinition(due.definition), through };
      return { kind: 'loss', entries: model.placedAll(view, [entry]) };
    }
    case 'pending':
      return {
        kind: 'pending',
        entries: model.placedAll(
          view,
          due.records.map((record) => known.entryOf(record)),
        ),
      };
    case 'again': {
      const entry = model.statementOf(view, placeOf(due.sequence), toDefinition(due.definition));
      return { kind: 'again', entries: model.placedAll(view, [{ ...entry, next: due.next }]) };
    }
    case 'repair':
      return { kind: 'repair', swap: toSwap(view, due.change, known) };
    case 'draft':
      return due;
  }
}

const namesOf = ({ world }: View): string[] => Array.from({ length: world.sequences }, (_, s) => nameOf(s));

function toView(view: View, namespace = NAMESPACE, known = new Known()): product.HeadsView {
  const keyOf = ({ key }: PendingNumbers): number => at([...key], 0);
  return {
    row: (name) => toRow(at(view.copy.rows, placeOf(name))),
    head: toHead(view, known),
    namespace,
    through: view.copy.through,
    firstOf: (pending) => at(view.copy.numbers, keyOf(pending)) || undefined,
    isForgotten: (pending) => model.isKeyForgotten(view, keyOf(pending)),
  };
}

function toHead({ head, world }: View, known: Known): Head {
  const names = Array.from({ length: world.sequences }, (_, s) => nameOf(s));
  const stated = head.stated.flatMap((one, s) => (one.next === 0 ? [] : [[nameOf(s), toStatement(one)] as const]));
  return {
    revision: BigInt(head.revision),
    namespace: NAMESPACE,
    through: head.through,
    pending: head.pending.map((entry) => known.toPending(entry)),
    sequences: new Map(stated),
    names: new Set(names),
  };
}

function toRow(row: Row): SequenceRow | undefined {
  if (row.next === 0) return undefined;
  return { known: toStatement(row), stated: { offset: 0, appendedAtMs: 0 }, gap: row.gap };
}

function toStatement({ next, step, isClosed, edition }: Definition & { readonly next: number }): Statement {
  return { next, step, max: MAX, format: '', closed: isClosed, edition };
}

const toDefinition = ({ edition, step, closed }: Defined): Definition => ({ edition, step, isClosed: closed });

function toSwap({ head }: View, change: HeadChange, known: Known): Swap {
  const stated = head.stated.map((before, s): Stated => {
    const now = change.sequences.get(nameOf(s));
    return now === undefined ? before : { next: now.next, ...toDefinition(now) };
  });
  const pending = change.pending.map((record) => known.entryOf(record));
  const { through } = change;
  return { expected: head.revision, head: { revision: head.revision + 1, pending, stated, through }, order: NONE };
}
