import { describe, expect, it } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import type { Finding } from '../../../src/cli/audit/found.ts';
import { TermSearch, Terms, WitnessedCeilings } from '../../../src/cli/audit/ids.ts';
import { sealKey, sealValue, witnessHeaders, witnessKey, witnessValue } from '../../../src/codec/witness.ts';
import { ticks } from '../../../src/core/units.ts';
import { batchAt, LAYOUT } from './batches.ts';

const UUID = '01234567-89ab-4cde-8f01-23456789abcd';
const [DATACENTER, WORKER] = [4, 18];
const OWN = { layoutFingerprint: LAYOUT.fingerprint, epochMs: LAYOUT.epochMs };
const MARGIN_MS = 1_000;

/** The record of a term's reservation up to a tick; `null` removes it. */
function witness(fence: bigint, to: number | null, layout = OWN): TopicRecord {
  const name = { uuid: UUID, workerId: WORKER, fence, leaseId: 5n };
  const value = to === null ? null : witnessValue({ ticks: ticks(to), modRevision: 1n });
  const headers = { layout: Buffer.from(witnessHeaders({ layout }).layout ?? '') };
  return {
    topic: 'witness',
    partition: 0,
    offset: 0,
    timestampMs: 0,
    key: witnessKey(DATACENTER, name),
    value,
    headers,
  };
}

function rebuilt(atTick: number): TopicRecord {
  const seal = { key: sealKey(DATACENTER), value: sealValue(UUID), headers: {} };
  return { topic: 'witness', partition: 0, offset: 0, timestampMs: LAYOUT.epochMs + atTick, ...seal };
}

/** The codes found in IDs of these ticks and fences, in this order. */
function codes(witnesses: readonly TopicRecord[], runs: readonly (readonly [tick: number, fence: bigint])[]) {
  const found: Finding[] = [];
  const [ceilings, terms] = [new WitnessedCeilings(), new Terms()];
  for (const record of witnesses) ceilings.take(record);
  const options = {
    witnesses: ceilings,
    terms,
    clockMarginMs: MARGIN_MS,
    find: (one: Finding) => void found.push(one),
  };
  const search = new TermSearch(options);
  for (const [tick, fence] of runs) {
    const [{ first } = { first: 0n }] = batchAt(tick, 1).ranges;
    const term = terms.numberOf({ datacenterId: DATACENTER, workerId: WORKER, fence }, LAYOUT);
    const place = { source: 'ledger', topic: 'ledger', partition: 0, offset: 0, requestId: Buffer.from('a') } as const;
    search.take({ ...place, first, last: first, step: 1n, unit: 1, term });
  }
  return found.map(({ code }) => code);
}

describe('an ID', () => {
  it('is below the ceiling that its own term witnessed last', () => {
    expect(codes([witness(7n, 50), witness(7n, 100)], [[99, 7n]])).toEqual([]);
    expect(codes([witness(7n, 50), witness(7n, 100)], [[100, 7n]])).toEqual(['ABOVE_CEILING']);
    expect(codes([witness(7n, 100), witness(9n, 500)], [[100, 7n]])).toEqual(['ABOVE_CEILING']);
  });

  it('is below the highest ceiling of its worker ID, where a successor has removed the witness of its term', () => {
    const removed = [witness(7n, 100), witness(9n, 500), witness(7n, null)];
    expect(codes(removed, [[100, 7n]])).toEqual([]);
    expect(codes([witness(9n, 500)], [[499, 7n]])).toEqual([]);
    expect(codes(removed, [[500, 7n]])).toEqual(['ABOVE_CEILING']);
  });

  it('is not judged where the topic shows no ceiling in its layout', () => {
    expect(codes([], [[100, 7n]])).toEqual([]);
    expect(codes([witness(7n, 50, { ...OWN, epochMs: 1 })], [[100, 7n]])).toEqual([]);
  });
});

describe('fences', () => {
  const high = [witness(9n, 1_000_000)];

  it('rise with the IDs of a worker ID', () => {
    const rising = [10, 20, 30].map((tick, i) => [tick, BigInt(7 + i)] as const);
    expect(codes(high, rising)).toEqual([]);
    expect(
      codes(high, [
        [10, 8n],
        [20, 7n],
        [30, 7n],
      ]),
    ).toEqual(['FENCE']);
  });

  it('may fall where the namespace was rebuilt in between, and not after that', () => {
    const [before, after] = [10, 5_000];
    const fall = [[before, 8n] as const, [after, 3n] as const];
    expect(codes([...high, rebuilt(2_000)], fall)).toEqual([]);
    const later = [[after, 3n] as const, [after + 10, 2n] as const];
    expect(codes([...high, rebuilt(2_000)], [...fall, ...later.slice(1)])).toEqual(['FENCE']);
  });
});
