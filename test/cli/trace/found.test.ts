import { describe, expect, test } from 'vitest';
import { agrees, indexOf } from '../../../src/cli/trace/search.ts';
import { encodeIdReply } from '../../../src/codec/id-reply.ts';
import { layout } from '../../support/memory-records.ts';

describe('the position of an ID in a batch', () => {
  const batch = {
    step: 4n,
    ranges: [
      { first: 100n, count: 3 },
      { first: 200n, count: 2 },
    ],
  };

  test('counts over the ranges, in steps of the layout', () => {
    expect([100n, 104n, 108n, 200n, 204n].map((id) => indexOf(batch, id))).toEqual([0, 1, 2, 3, 4]);
  });

  test('is none outside the ranges, and between the steps', () => {
    expect([99n, 96n, 102n, 112n, 199n, 208n].map((id) => indexOf(batch, id))).toEqual([-1, -1, -1, -1, -1, -1]);
  });
});

describe('a reply and an ID', () => {
  const first = 77_000n;
  const batch = {
    ...{ ranges: [{ first, count: 2 }], step: layout.step, datacenterId: 3, workerId: 9, fence: 10n },
    ...{ epochMs: layout.epochMs, layoutFingerprint: layout.fingerprint, generatedAtMs: 1_700_000_000_000 },
  };
  const correlationId = Buffer.from('order');
  const reply = (value: Buffer | null) => agrees({ value } as Parameters<typeof agrees>[0], first);
  const other = { ...batch, ranges: [{ first: first + (1n << 40n), count: 2 }] };

  test('agree if the reply has the ID, and not if it has others', () => {
    expect(reply(encodeIdReply({ correlationId, batch }, 'RANGES'))).toBe(true);
    expect(reply(encodeIdReply({ correlationId, batch: other }, 'RANGES'))).toBe(false);
  });

  test('say nothing of each other if it is an error, or none', () => {
    const error = { code: 'EXPIRED', message: 'm' };
    expect(reply(encodeIdReply({ correlationId, error }, 'RANGES'))).toBeUndefined();
    expect([reply(Buffer.of(9)), reply(null)]).toEqual([undefined, undefined]);
  });
});
