import fc from 'fast-check';
import { expect, it } from 'vitest';
import { encodeLedgerEntry, requestHash } from '../../../src/codec/ledger-entry.ts';
import { encodeNumbersKey, encodeStatementKey } from '../../../src/codec/ledger-key.ts';
import { type LedgerNumbers, type LedgerStatement, statementHeaders } from '../../../src/codec/sequence-entry.ts';
import { statedOf } from '../../../src/core/sequence-row.ts';
import type { LedgerRecord } from '../../../src/ledger/ledger-ports.ts';
import { MemoryIndex } from '../../support/memory-index.ts';
import { entry as ledgerEntry } from '../../support/memory-records.ts';
import { at } from '../search.ts';
import { worldOf } from './bounds.ts';
import { readOn, restored } from './reading.ts';
import { RULE } from './rule.ts';
import { BLANK, type Copy, type Entry, KIND, NONE } from './state.ts';

const world = worldOf({
  sequences: 2,
  keys: [
    [0, 1],
    [0, 2],
    [1, 1],
    [1, 3],
  ],
});
const NAMES = ['invoices', 'tickets'];
const MAX = 100_000;
const MAX_COUNT = 3;

/** Any log: records in their place and elsewhere, numbers and statements of any writer, whatever it knew. */
const logs = fc
  .array(
    fc.record({
      kind: fc.constantFrom(KIND.numbers, KIND.numbers, KIND.order, KIND.again, KIND.loss, KIND.others),
      key: fc.nat(world.keys.length - 1),
      first: fc.nat(12),
      count: fc.integer({ min: 1, max: MAX_COUNT }),
      more: fc.nat(4),
      edition: fc.nat(3),
      step: fc.integer({ min: 1, max: 2 }),
      isClosed: fc.boolean(),
      through: fc.integer({ min: NONE, max: 9 }),
      isElsewhere: fc.boolean(),
    }),
    { maxLength: 10 },
  )
  .map((items) =>
    items.map(({ count, more, isElsewhere, ...fields }, offset): Entry => {
      const { kind, key, step } = fields;
      const isOfNumbers = kind === KIND.numbers;
      // The model's numbers begin with 1; 0 in a statement: its writer knew nothing, or does not say what.
      const first = isOfNumbers || kind === KIND.loss ? fields.first + 1 : fields.first;
      const next = Math.max(1, isOfNumbers ? first + count * step : kind === KIND.loss ? first : first + more);
      const { sequence } = at(world.keys, key);
      const place = offset + (isElsewhere && offset % 3 === 2 ? 1 : 0);
      return { ...BLANK, ...fields, key: isOfNumbers ? key : NONE, sequence, first, next, at: place };
    }),
  );

function recordOf(entry: Entry, offset: number): LedgerRecord {
  const place = { offset, appendedAtMs: 1_700_000_000_000 + offset };
  const { kind, sequence, key, first, next, step, through, isClosed, edition } = entry;
  const name = at(NAMES, sequence === NONE ? 0 : sequence);
  const position = { end: 0, through, at: entry.at };
  if (kind === KIND.others) return { ...ledgerEntry('others'), ...place };
  if (kind === KIND.numbers) {
    const count = (next - first) / step;
    const written: LedgerNumbers = {
      kind: 'numbers',
      ...position,
      ...{ first, count, step, format: '' },
      ...{ requestHash: requestHash(count, ''), replyTopic: '', requestOffset: 0 },
      ...{ framing: 'SINGLE_OBJECT', schemaFingerprint: Buffer.alloc(8) },
    };
    return { key: encodeNumbersKey(name, Buffer.of(key)), value: encodeLedgerEntry(written), ...place };
  }
  const written: LedgerStatement = {
    kind: 'statement',
    ...position,
    ...{ next, step, max: MAX, format: '', closed: isClosed, edition },
    ...{ first: first === 0 ? undefined : first, isLoss: kind === KIND.loss },
  };
  const headers = statementHeaders(written);
  return { key: encodeStatementKey(name), value: encodeLedgerEntry(written), headers, ...place };
}

/** What the model knows: the rows, and up to which request unknown ones are FORGOTTEN. */
function modelled({ rows, horizon }: Copy): unknown {
  return {
    rows: rows.map(({ next, gap, edition, step, isClosed }) => [next, gap, edition, step, isClosed]),
    horizon,
  };
}

/** The same of the index of the code. */
function known(index: MemoryIndex): unknown {
  const rows = NAMES.map((name) => {
    const row = index.sequence(0, name);
    const { edition, step, closed } = statedOf(row) ?? { edition: NONE, step: 1, closed: false };
    return [row?.known.next ?? 0, row?.gap ?? 0, edition, step, closed];
  });
  return { rows, horizon: index.horizon(0) };
}

it('the model reads sequences as the index does: next numbers, gaps, definitions and what is FORGOTTEN, of any log', () => {
  const empty = restored(RULE, world, { low: 0, log: [] });
  fc.assert(
    fc.property(logs, (log) => {
      const index = new MemoryIndex([0]);
      index.apply(0, log.map(recordOf));
      expect(known(index)).toEqual(modelled(readOn(RULE, empty, log)));
    }),
    { numRuns: 2_000 },
  );
});
