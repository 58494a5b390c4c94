import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { EntryKey, encodeLedgerKey } from '../../../src/codec/ledger-key.ts';
import { FORGOTTEN, readDecided } from '../../../src/ledger/decided.ts';
import type { LedgerRecord } from '../../../src/ledger/ledger-ports.ts';
import { MemoryIndex } from '../../support/memory-index.ts';
import { entry as ledgerEntry } from '../../support/memory-records.ts';
import { worldOf } from './bounds.ts';
import { expired, lookUp, restored } from './knowledge.ts';
import { RULE } from './rule.ts';
import { BLANK, type Entry, type Index, KIND, NONE, UNKNOWN } from './state.ts';

const REQUESTS = 4;
/** Requests 0 and 2 have one correlation ID, 1 and 3 another. */
const idOf = (request: number) => `id ${request % 2}`;
const world = worldOf({
  sequences: 0,
  requests: Array.from({ length: REQUESTS }, (_, request) => {
    return { sequence: NONE, correlationId: request % 2, count: 1, isLater: false };
  }),
});

/** Any log of entries and markers, of which each writer had read some part. */
const logs = fc
  .array(
    fc.record({
      request: fc.integer({ min: NONE, max: REQUESTS - 1 }),
      lag: fc.nat(2),
      through: fc.integer({ min: NONE, max: REQUESTS - 1 }),
    }),
    { maxLength: 7 },
  )
  .map((items) =>
    items.map(({ request, lag, through }, offset): Entry => {
      return {
        ...BLANK,
        kind: request === NONE ? KIND.marker : KIND.ids,
        request,
        end: Math.max(0, offset - lag),
        through,
      };
    }),
  );

function recordOf({ request, end, through }: Entry, offset: number): LedgerRecord {
  const position = { end, through };
  const stored =
    request === NONE
      ? { key: null, value: encodeLedgerEntry({ kind: 'marker', ...position }) }
      : ledgerEntry(idOf(request), { ...position, requestOffset: request });
  return { ...stored, offset, appendedAtMs: 1_700_000_000_000 + offset };
}

/** What the index of the code knows of the partition. */
function viewOf(index: MemoryIndex): unknown[] {
  return [index.origin(0), index.end(0), index.horizon(0), index.through(0)];
}

function modelled({ origin, end, horizon, through }: Index): unknown[] {
  return [origin, end, horizon === UNKNOWN ? undefined : horizon, through];
}

async function decisions(index: MemoryIndex, records: readonly LedgerRecord[]): Promise<unknown[]> {
  const keys = [0, 1].map((request) => {
    return { key: EntryKey.of(encodeLedgerKey(Buffer.from(idOf(request)))) };
  });
  const held = new Map(records.map((record) => [record.offset, record]));
  const copy = { partition: 0, life: 0, refusal: undefined, invalidate() {} };
  const read = async () => held;
  const found = await readDecided({ index, copy, entries: { read }, monotonicMs: () => 0 }, keys);
  return keys.map(({ key: { name } }) => {
    const decision = found.get(name);
    return decision === undefined || decision === FORGOTTEN ? decision : decision.offset;
  });
}

function modelledDecisions(index: Index, log: { low: number; entries: readonly Entry[] }): unknown[] {
  return [0, 1].map((request) => {
    const offset = lookUp(RULE, world, index, log, request);
    return offset === UNKNOWN ? FORGOTTEN : offset === NONE ? undefined : offset;
  });
}

describe('the model reads IDs as the pipeline does', () => {
  it('after a restore, and after retention has removed more, for any log', async () => {
    await fc.assert(
      fc.asyncProperty(logs, fc.nat(7), fc.nat(7), async (entries, start, more) => {
        const low = Math.min(start, entries.length);
        const records = entries.map(recordOf).slice(low);
        const index = new MemoryIndex([0]);
        index.wipe(0, low);
        index.apply(0, records);
        const model = restored(RULE, world, { low, entries });
        expect(modelled(model)).toEqual(viewOf(index));
        expect(modelledDecisions(model, { low, entries })).toEqual(await decisions(index, records));

        const later = Math.min(low + more, entries.length);
        const kept = records.filter(({ offset }) => offset >= later);
        expect(modelledDecisions(model, { low: later, entries })).toEqual(await decisions(index, kept));

        if (model.horizon === UNKNOWN) return;
        index.expire(0, later);
        const shorter = later > low ? expired(model, { low: later, entries }) : model;
        expect(modelled(shorter)).toEqual(viewOf(index));
        expect(modelledDecisions(shorter, { low: later, entries })).toEqual(await decisions(index, kept));
      }),
      { numRuns: 500 },
    );
  });

  it('and so a later entry that knew of a decision that is gone decides', () => {
    const entries = [
      { ...BLANK, kind: KIND.ids, request: 0 },
      { ...BLANK, kind: KIND.ids, request: 2, end: 1 },
    ];
    const index = restored(RULE, world, { low: 0, entries });
    expect(modelledDecisions(index, { low: 1, entries })).toEqual([1, undefined]);
  });
});
