import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry, type LedgerBatchEntry } from '../../src/codec/ledger-entry.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import { batchReply } from '../../src/pipeline/outgoing.ts';
import type { OutgoingRecord } from '../../src/pipeline/ports.ts';
import { chargeOf } from '../../src/pipeline/rulings.ts';
import { entry, layout, REPLIES, request } from '../support/memory-records.ts';
import { accepted as acceptedOf } from '../support/memory-worker.ts';

const TEXT = 'x'.repeat(500);
const CONTEXT = {
  layout,
  names: DEFAULT_HEADER_NAMES,
  requestTopic: 'id.requests',
  deadLetterTopic: 'id.requests.dlt',
  customLayout: { fingerprint: layout.fingerprint, text: TEXT },
};
const CUSTOM = { ...CONTEXT, customLayout: undefined };

const accepted = (...fields: Parameters<typeof request>) => acceptedOf(request(...fields));

/** Key, value and headers, as a record has them. */
function bytesOf({ key, value, headers }: OutgoingRecord): number {
  const sizes = Object.entries(headers).map(([name, header]) => name.length + Buffer.from(header as Buffer).length);
  return (key?.length ?? 0) + (value?.length ?? 0) + sizes.reduce((sum, size) => sum + size, 0);
}

describe('the charge for a reply', () => {
  it('is at least its bytes, and at most 150 bytes and a few for each ID or range more', () => {
    const fields = fc.record({
      id: fc.constantFrom('a', 'a'.repeat(256)),
      ranges: fc.integer({ min: 1, max: 50 }),
      count: fc.integer({ min: 1, max: 1_000 }),
      first: fc.bigInt({ min: 0n, max: 2n ** 62n }),
      encoding: fc.constantFrom('RANGES', 'IDS'),
      trace: fc.constantFrom('', 't'.repeat(1_024)),
      context: fc.constantFrom(CONTEXT, CUSTOM),
    });
    fc.assert(
      fc.property(fields, ({ id, ranges, count, first, encoding, trace, context }) => {
        const headers = { traceparent: trace, tracestate: trace };
        const asked = accepted(7, id, { count: ranges * count, encoding, headers });
        const decided = decodeLedgerEntry(entry(id, { count }).value) as LedgerBatchEntry;
        const parts = Array.from({ length: ranges }, (_, i) => ({ first: first + BigInt(i * 2_000_000), count }));
        const known = { ...decided, count: ranges * count, batch: { ...decided.batch, ranges: parts } };
        const bytes = bytesOf(batchReply(asked, known, { appendedAtMs: 0, replayed: true }, context));
        const charge = chargeOf(context, 3, asked, known);
        expect(charge).toMatchObject({ partition: 3, offset: 7, replyTopic: REPLIES, ids: 0 });
        expect(charge.replyBytes).toBeGreaterThanOrEqual(bytes);
        const spare = encoding === 'IDS' ? ranges * count * 9 : ranges * 11;
        expect(charge.replyBytes).toBeLessThanOrEqual(bytes + 150 + spare);
      }),
      { numRuns: 50 },
    );
  });

  it('for a new batch counts its IDs, and as many ranges as they take ticks', () => {
    const asked = accepted(7, 'a', { count: 10_000 });
    const perTick = layout.sequencesPerTick - layout.sequenceStartBelow + 1;
    const known = decodeLedgerEntry(entry('a').value) as LedgerBatchEntry;
    const one = chargeOf(CONTEXT, 0, asked, known).replyBytes;
    const { ids, replyBytes } = chargeOf(CONTEXT, 0, asked);
    expect([ids, replyBytes]).toEqual([10_000, one + Math.ceil(10_000 / perTick) * 13]);
  });
});
