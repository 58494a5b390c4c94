import { describe, expect, it, test } from 'vitest';
import type { Pending, PendingNumbers } from '../../src/codec/head-values.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { readLedgerKey } from '../../src/codec/ledger-key.ts';
import type { Definition, SequenceRow, Statement } from '../../src/core/sequence-row.ts';
import type { Head, HeadChange } from '../../src/ledger/heads.ts';
import type { Draft } from '../../src/ledger/ledger-ports.ts';
import {
  definitionNow,
  draftChange,
  dueNow,
  fenceOf,
  type HeadsView,
  isStopped,
  MAX_DRAFT,
  MAX_PENDING,
  pendingRecord,
  statedRecord,
} from '../../src/ledger/sequence-rule.ts';
import { NAMESPACE, pendingNumbers, pendingOrder, STATEMENT } from './heads-contract.ts';

const OLDER = '11111111-9a31-4b7f-8e55-2a6c5dfb1f10';

/** What the log and etcd have; by the names of sequences. */
interface Known {
  readonly rows?: Readonly<Record<string, SequenceRow>>;
  readonly heads?: Readonly<Record<string, Statement>>;
  readonly pending?: readonly Pending[];
  /** The first numbers of the keys that the log shows. */
  readonly shown?: readonly (readonly [PendingNumbers, number])[];
  readonly forgotten?: readonly PendingNumbers[];
  readonly namespace?: string;
}

function viewOf({
  rows = {},
  heads = {},
  pending = [],
  shown = [],
  forgotten = [],
  namespace = NAMESPACE,
}: Known): HeadsView {
  const names = ['a', 'b', ...Object.keys(rows), ...Object.keys(heads)];
  const head: Head = {
    revision: 5n,
    namespace,
    through: 7,
    pending,
    sequences: new Map(Object.entries(heads)),
    names: new Set([...names, ...pending.map(({ sequence }) => sequence)]),
  };
  return {
    row: (name) => rows[name],
    head,
    namespace: NAMESPACE,
    through: 9,
    firstOf: (record) => shown.find(([known]) => known === record)?.[1],
    isForgotten: (record) => forgotten.includes(record),
  };
}

function rowOf(next: number, more: Partial<Statement> & { readonly gap?: number } = {}): SequenceRow {
  const { gap = 0, ...known } = more;
  return { known: { ...STATEMENT, ...known, next }, stated: { offset: 0, appendedAtMs: 0 }, gap };
}

const headOf = (next: number, more: Partial<Statement> = {}): Statement => ({ ...STATEMENT, ...more, next });

function definitionOf({ step, max, format, closed, edition }: Statement): Definition {
  return { step, max, format, closed, edition };
}

const DEFINITION = definitionOf(STATEMENT);

function repairIn(view: HeadsView, names: Iterable<string>): HeadChange {
  const due = dueNow(view, names);
  if (due.kind !== 'repair') throw new Error(`${due.kind} is due, not a repair`);
  return due.change;
}

describe('a loss is due', () => {
  const a2 = pendingNumbers('a', 2);

  it('where the log is below the first pending number, from which the sequence goes on', () => {
    const view = viewOf({ rows: { a: rowOf(1) }, heads: { a: headOf(3) }, pending: [a2] });
    expect(dueNow(view, ['a'])).toEqual({ kind: 'loss', sequence: 'a', next: 2, definition: DEFINITION });
  });

  it('behind pending numbers whose key only a renewal shows, and before those that still have to be appended', () => {
    for (const rows of [{ a: rowOf(2) }, {}]) {
      const view = { rows, pending: [a2], shown: [[a2, 2]] } as const;
      expect(dueNow(viewOf({ ...view, heads: { a: headOf(3) } }), ['a'])).toMatchObject({ kind: 'loss', next: 3 });
      const pending = [a2, pendingNumbers('a', 3)];
      const more = viewOf({ ...view, pending, heads: { a: headOf(4) } });
      expect(dueNow(more, ['a'])).toMatchObject({ kind: 'loss', next: 3 });
    }
  });

  it('of a sequence that is pending, though nobody asked for it', () => {
    const view = viewOf({ rows: { a: rowOf(1) }, heads: { a: headOf(3) }, pending: [a2] });
    expect(dueNow(view, ['b'])).toMatchObject({ kind: 'loss', sequence: 'a' });
  });

  it("where the log is below the head's next number, and where it has no row at all", () => {
    for (const rows of [{ a: rowOf(2) }, {}]) {
      expect(dueNow(viewOf({ rows, heads: { a: headOf(3) } }), ['a'])).toMatchObject({ kind: 'loss', next: 3 });
    }
  });

  it('in a gap, and goes on where the log does', () => {
    const view = viewOf({ rows: { a: rowOf(5, { gap: 4 }) }, heads: { a: headOf(5) } });
    expect(dueNow(view, ['a'])).toMatchObject({ kind: 'loss', next: 5 });
  });

  it('with the newer definition of log and head', () => {
    const heads = { a: headOf(3, { edition: 4, closed: true }) };
    expect(dueNow(viewOf({ rows: { a: rowOf(1) }, heads }), ['a'])).toMatchObject({
      definition: { edition: 4, closed: true },
    });
    const rows = { a: rowOf(1, { edition: 6 }) };
    expect(dueNow(viewOf({ rows, heads }), ['a'])).toMatchObject({ definition: { edition: 6, closed: false } });
  });

  it('before a pending order, with the definition before it: its own, as no edition, where the log shows none', () => {
    const order = pendingOrder('a', 8, headOf(20, { edition: 2, step: 5 }));
    const heads = { a: headOf(20, { edition: 2, step: 5 }) };
    const stated = viewOf({ rows: { a: rowOf(1) }, heads, pending: [order] });
    expect(dueNow(stated, ['a'])).toEqual({ kind: 'loss', sequence: 'a', next: 8, definition: DEFINITION });
    const unstated = dueNow(viewOf({ heads, pending: [order] }), ['a']);
    expect(unstated).toMatchObject({ kind: 'loss', next: 8, definition: { edition: 0, step: 5 } });
  });

  it('with a largest number that its next one does not exceed', () => {
    const view = viewOf({ rows: { a: rowOf(50, { max: 10, gap: 40 }) }, heads: { a: headOf(11, { max: 10 }) } });
    expect(dueNow(view, ['a'])).toMatchObject({ kind: 'loss', next: 50, definition: { max: 49 } });
  });

  it('not where nothing says what the sequence is', () => {
    const view = viewOf({ rows: { a: rowOf(5, { edition: -1, gap: 4 }) } });
    expect(dueNow(view, ['a'])).toEqual({ kind: 'draft' });
    expect(definitionNow(view, 'a')).toBeUndefined();
  });
});

describe('what is pending is appended', () => {
  const [a2, a3, b9] = [pendingNumbers('a', 2), pendingNumbers('a', 3), pendingNumbers('b', 9)];
  const heads = { a: headOf(4), b: headOf(10) };

  it('with its numbers and in its order, of all sequences', () => {
    const view = viewOf({ rows: { a: rowOf(2), b: rowOf(9) }, heads, pending: [a2, b9, a3] });
    expect(dueNow(view, ['b'])).toEqual({ kind: 'pending', records: [b9, a2, a3] });
    expect(dueNow(view, [])).toEqual({ kind: 'pending', records: [a2, a3, b9] });
  });

  it('as far as the log does not show it', () => {
    const rows = { a: rowOf(3), b: rowOf(10) };
    const shown = [[a2, 2] as const, [b9, 9] as const];
    expect(dueNow(viewOf({ rows, heads, pending: [a2, b9, a3], shown }), [])).toEqual({
      kind: 'pending',
      records: [a3],
    });
  });

  it('also if its key would be FORGOTTEN, unless retention took the number', () => {
    const pending = [a2];
    const at2 = viewOf({ rows: { a: rowOf(2) }, heads: { a: headOf(3) }, pending, forgotten: [a2] });
    expect(dueNow(at2, [])).toEqual({ kind: 'pending', records: [a2] });
    const at3 = viewOf({ rows: { a: rowOf(3) }, heads: { a: headOf(3) }, pending, forgotten: [a2] });
    expect(dueNow(at3, [])).toEqual({ kind: 'draft' });
  });

  it('an order behind the numbers, and one that creates where there is no row', () => {
    const close = pendingOrder('a', 3, headOf(3, { edition: 2, closed: true }));
    const view = viewOf({
      rows: { a: rowOf(2) },
      heads: { a: headOf(3, { edition: 2, closed: true }) },
      pending: [a2, close],
    });
    expect(dueNow(view, ['a'])).toEqual({ kind: 'pending', records: [a2, close] });
    const create = pendingOrder('b', -1, headOf(0));
    expect(dueNow(viewOf({ heads: { b: headOf(0) }, pending: [create] }), [])).toEqual({
      kind: 'pending',
      records: [create],
    });
  });
});

describe('a sequence stops where the log contradicts what is pending', () => {
  const a2 = pendingNumbers('a', 2);
  const heads = { a: headOf(3), b: headOf(5) };
  const contradicted: readonly (readonly [string, Known])[] = [
    ['the number is given to another key', { rows: { a: rowOf(3), b: rowOf(5) } }],
    ['the key has another number', { rows: { a: rowOf(2), b: rowOf(5) }, shown: [[a2, 1]] }],
    ['the log shows a newer edition', { rows: { a: rowOf(2, { edition: 2 }), b: rowOf(5) } }],
  ];

  it.each(contradicted)('%s', (_, known) => {
    const view = viewOf({ ...known, heads, pending: [a2] });
    expect(isStopped(view, 'a')).toBe(true);
    expect(isStopped(view, 'b')).toBe(false);
    const b5 = pendingNumbers('b', 5);
    expect(dueNow(view, ['b'])).toEqual({ kind: 'draft' });
    expect(draftChange(view, [b5], 12)).toEqual({
      namespace: NAMESPACE,
      through: 12,
      pending: [a2, b5],
      sequences: new Map([['b', headOf(6)]]),
    });
    expect(() => draftChange(view, [pendingNumbers('a', 3)], 12)).toThrow('a, which is stopped');
  });

  it.each(contradicted)('and goes on as the log says once the namespace was rebuilt: %s', (_, known) => {
    const view = viewOf({ ...known, heads, pending: [a2], namespace: OLDER });
    expect(isStopped(view, 'a')).toBe(false);
    const row = known.rows?.a as SequenceRow;
    expect(repairIn(view, [])).toEqual({
      namespace: NAMESPACE,
      through: 9,
      pending: [],
      sequences: new Map([['a', row.known]]),
    });
  });

  it('not while a loss is due, nor while the head says only what is pending', () => {
    const lost = viewOf({ rows: { a: rowOf(1) }, heads, pending: [a2], shown: [[a2, 1]] });
    expect(isStopped(lost, 'a')).toBe(false);
    expect(isStopped(viewOf({ rows: { a: rowOf(2) }, heads, pending: [a2] }), 'a')).toBe(false);
  });

  it('and what is pending of stopped sequences never grows beyond a limit', () => {
    const stopped = Array.from({ length: MAX_PENDING }, (_, i) => pendingNumbers('a', 2, `k${i}`));
    const view = viewOf({ rows: { a: rowOf(3), b: rowOf(5) }, heads, pending: stopped });
    const refused = { code: 'SEQUENCE_STOPPED', message: expect.stringContaining('idalloc namespace rebuild') };
    expect(() => draftChange(view, [pendingNumbers('b', 5)], 12)).toThrow(expect.objectContaining(refused));
    expect(fenceOf(view).pending).toHaveLength(MAX_PENDING);
  });
});

describe('the newest definition', () => {
  it('is stated again where the log does not show it, and no order is pending', () => {
    const heads = { a: headOf(5, { edition: 3, closed: true }) };
    const view = viewOf({ rows: { a: rowOf(5) }, heads });
    expect(dueNow(view, ['a'])).toEqual({ kind: 'again', sequence: 'a', next: 5, definition: definitionOf(heads.a) });
    const unstated = viewOf({ rows: { a: rowOf(5, { edition: -1 }) }, heads });
    expect(dueNow(unstated, ['a'])).toMatchObject({ kind: 'again', definition: { edition: 3 } });
    expect(definitionNow(unstated, 'a')).toEqual(definitionOf(heads.a));
    const order = pendingOrder('a', 5, heads.a);
    expect(dueNow(viewOf({ rows: { a: rowOf(5) }, heads, pending: [order] }), ['a']).kind).toBe('pending');
  });

  it('of the log goes up into the head', () => {
    const view = viewOf({ rows: { a: rowOf(5, { edition: 4 }) }, heads: { a: headOf(5, { edition: 3 }) } });
    expect(repairIn(view, ['a']).sequences).toEqual(new Map([['a', headOf(5, { edition: 4 })]]));
  });

  it('of before there were editions becomes the first: in the head, then in the log', () => {
    const rows = { a: rowOf(5, { edition: 0 }) };
    expect(definitionNow(viewOf({ rows }), 'a')).toEqual(DEFINITION);
    const change = repairIn(viewOf({ rows }), ['a']);
    expect(change.sequences).toEqual(new Map([['a', headOf(5)]]));
    expect(dueNow(viewOf({ rows, heads: { a: headOf(5) } }), ['a'])).toMatchObject({
      kind: 'again',
      definition: { edition: 1 },
    });
  });
});

describe('a repair', () => {
  it('writes what the log is ahead of, the first head of a sequence included, and nothing else', () => {
    const rows = { a: rowOf(9), b: rowOf(4), c: rowOf(2) };
    const view = viewOf({ rows, heads: { a: headOf(7), b: headOf(4) } });
    expect(repairIn(view, ['a', 'b', 'c'])).toEqual({
      namespace: NAMESPACE,
      through: 9,
      pending: [],
      sequences: new Map([
        ['a', headOf(9)],
        ['c', headOf(2)],
      ]),
    });
  });

  it('of more sequences than fit into one swap is due until all are written, and leaves what was swapped in before the rebuild so marked', () => {
    const names = Array.from({ length: MAX_DRAFT + 1 }, (_, i) => `s${i}`);
    const pending = names.map((name) => pendingNumbers(name, 2));
    const heads = Object.fromEntries(names.map((name) => [name, headOf(3)]));
    const rows = Object.fromEntries(names.map((name) => [name, rowOf(3)]));
    const first = repairIn(viewOf({ rows, heads, pending, namespace: OLDER }), []);
    expect(first.sequences.size).toBe(MAX_DRAFT);
    expect([first.namespace, first.pending]).toEqual([OLDER, pending.slice(MAX_DRAFT)]);
    const second = repairIn(viewOf({ rows, heads, pending: first.pending, namespace: first.namespace }), []);
    expect([second.namespace, second.pending, second.sequences.size]).toEqual([NAMESPACE, [], 1]);
  });

  it('leaves a row without a statement alone, of which no head says what it is', () => {
    expect(dueNow(viewOf({ rows: { a: rowOf(5, { edition: -1 }) } }), ['a'])).toEqual({ kind: 'draft' });
  });
});

describe('a draft', () => {
  const view = viewOf({ rows: { a: rowOf(5, { step: 1 }) }, heads: { a: headOf(5) } });

  it('leaves the number behind it in the head, with the definition that holds', () => {
    const records = [pendingNumbers('a', 5, 'x', 3), pendingNumbers('a', 8, 'y')];
    expect(draftChange(view, records, -1)).toEqual({
      namespace: NAMESPACE,
      through: 9,
      pending: records,
      sequences: new Map([['a', headOf(9)]]),
    });
  });

  it('may be an order, also behind numbers that are due', () => {
    const close = headOf(5, { edition: 2, closed: true });
    expect(draftChange(view, [pendingOrder('a', 5, close)], -1).sequences).toEqual(new Map([['a', close]]));
    const due = pendingNumbers('a', 5);
    const busy = viewOf({ rows: { a: rowOf(5) }, heads: { a: headOf(6) }, pending: [due] });
    const order = pendingOrder('a', 6, { ...close, next: 6 });
    expect(draftChange(busy, [due, order], -1)).toMatchObject({ pending: [due, order] });
    expect(() => draftChange(busy, [pendingOrder('a', 6, close)], -1)).toThrow('begins at 6, where 5 is next');
  });

  it.each([
    ['begins at 6, where 5 is next', [pendingNumbers('a', 6)]],
    ['begins at 5, where 6 is next', [pendingNumbers('a', 5, 'x'), pendingNumbers('a', 5, 'y')]],
    ['begins at 1, where -1 is next', [pendingNumbers('b', 1)]],
    ['b, which is unknown', [pendingNumbers('b', -1)]],
    ['edition 1 from 5: it goes back', [pendingOrder('a', 5, headOf(5))]],
    ['edition 2 from 4: it goes back', [pendingOrder('a', 5, headOf(4, { edition: 2 }))]],
    ['at most 100 fit', Array.from({ length: MAX_DRAFT + 1 }, (_, i) => pendingNumbers(`s${i}`, 5))],
    ['the head of c was not read', [pendingNumbers('c', 1)]],
  ] as const)('that does not follow is refused: %s', (message, records) => {
    expect(() => draftChange(view, records, -1)).toThrow(message);
  });

  it('of nothing is a fence, which changes nothing but the revision', () => {
    const stopped = viewOf({
      rows: { a: rowOf(5) },
      heads: { a: headOf(3) },
      pending: [pendingNumbers('a', 2)],
      namespace: OLDER,
    });
    expect(fenceOf(stopped)).toEqual({
      namespace: OLDER,
      through: 9,
      pending: stopped.head.pending,
      sequences: new Map(),
    });
    expect(fenceOf(viewOf({ namespace: '' })).namespace).toBe(NAMESPACE);
  });
});

const PLACED = { end: 40, through: 90, at: 41 };
const RECORDED = { step: 1, max: 100, format: '', closed: false, edition: 3 };
const HEAD_THROUGH = 95;

/** What readers find in a record. */
function read({ key, value, headers }: Draft): unknown {
  return [readLedgerKey(key as Buffer), decodeLedgerEntry(value, headers)];
}

test.each([
  ['a new sequence', -1, { first: undefined, through: -1 }],
  ['a known one, which hides what was decided if the ledger has lost it all', 17, { first: 17, through: HEAD_THROUGH }],
])('an order for %s says nothing of what its writer read', (_, first, shown) => {
  const order = { kind: 'order', sequence: 'invoices', first, statement: { ...RECORDED, next: 20 } } as const;
  expect(read(pendingRecord(order, PLACED, { through: HEAD_THROUGH }))).toEqual([
    { kind: 'statement', sequence: 'invoices' },
    { kind: 'statement', end: 0, at: 41, ...RECORDED, next: 20, isLoss: false, ...shown },
  ]);
});

test.each(['loss', 'again'] as const)('what is due as %s says what its writer read', (kind) => {
  const due = { kind, sequence: 'invoices', next: 20, definition: RECORDED };
  expect(read(statedRecord(due, 17, PLACED))).toEqual([
    { kind: 'statement', sequence: 'invoices' },
    { kind: 'statement', ...PLACED, ...RECORDED, next: 20, first: 17, isLoss: kind === 'loss' },
  ]);
});
