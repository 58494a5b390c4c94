import { describe, expect, it } from 'vitest';
import { sealKey, sealValue, WitnessTable, witnessHeaders, witnessKey, witnessValue } from '../../src/codec/witness.ts';
import { ticks } from '../../src/core/units.ts';

const UUID = '01234567-89ab-4cde-8f01-23456789abcd';
const OTHER = 'ffffffff-89ab-4cde-8f01-23456789abcd';
const WITNESS = {
  uuid: UUID,
  workerId: 7,
  fence: 812n,
  leaseId: 2n ** 63n - 1n,
  ticks: ticks(13_190_700_000),
  modRevision: 2n ** 63n - 1n,
  layout: { layoutFingerprint: '0123456789abcdef', epochMs: 1_767_225_600_000 },
};

/** A table of datacenter 4 with these records applied. */
function tableOf(...records: readonly (readonly [string, string | null])[]) {
  const table = new WitnessTable(4);
  for (const [key, value] of records) table.apply(Buffer.from(key), value === null ? null : Buffer.from(value), {});
  return table.view();
}
const key = (fence: number, uuid = UUID, leaseId = 3) => `4/${uuid}/7/${fence}/${leaseId}`;

describe('a witness', () => {
  it('has these bytes', () => {
    expect(witnessKey(4, WITNESS).toString('latin1')).toBe(`4/${UUID}/7/812/9223372036854775807`);
    expect(witnessValue(WITNESS).toString('latin1')).toBe('1 13190700000 9223372036854775807');
    expect(witnessHeaders(WITNESS)).toEqual({ layout: '1 0123456789abcdef 1767225600000' });
    expect(sealKey(4).toString('latin1')).toBe('4');
    expect(sealValue(UUID).toString('latin1')).toBe(`1 ${UUID}`);
  });

  it('round-trips', () => {
    const table = new WitnessTable(4);
    const headers = { layout: Buffer.from(witnessHeaders(WITNESS).layout ?? '') };
    table.apply(witnessKey(4, WITNESS), witnessValue(WITNESS), headers);
    table.apply(sealKey(4), sealValue(OTHER), {});
    expect(table.view()).toEqual({ seal: OTHER, witnesses: [WITNESS], unreadable: [] });
  });

  it('has the same key and value with and without a layout, so that the release before reads it', () => {
    const { layout: _, ...before } = WITNESS;
    expect([witnessKey(4, WITNESS), witnessValue(WITNESS)]).toEqual([witnessKey(4, before), witnessValue(before)]);
    expect(witnessHeaders({ layout: undefined })).toEqual({});
    const table = new WitnessTable(4);
    table.apply(witnessKey(4, before), witnessValue(before), { other: Buffer.from('x') });
    expect(table.view().witnesses).toEqual([{ ...before, layout: undefined }]);
  });

  it.each([
    ['another version', '2 0123456789abcdef 5'],
    ['a fingerprint in capitals', '1 0123456789ABCDEF 5'],
    ['an epoch that is not exact', `1 0123456789abcdef ${2 ** 53}`],
    ['no epoch', '1 0123456789abcdef'],
    ['two layouts', ['1 0123456789abcdef 5', '1 0123456789abcdef 6']],
  ])('is unreadable with %s in its header', (_what, text) => {
    const table = new WitnessTable(4);
    const layout = Array.isArray(text) ? text.map((one) => Buffer.from(one)) : Buffer.from(text);
    table.apply(witnessKey(4, WITNESS), witnessValue(WITNESS), { layout });
    expect(table.view()).toMatchObject({ witnesses: [], unreadable: [{ key: String(witnessKey(4, WITNESS)) }] });
  });

  it('without a lease, as earlier releases wrote it, has its earlier key', () => {
    const [name, value] = [`4/${UUID}/7/812`, '1 5 6'];
    const [witness] = tableOf([name, value]).witnesses;
    expect(witness).toMatchObject({ fence: 812n, leaseId: 0n, ticks: 5 });
    expect(witness && witnessKey(4, witness).toString('latin1')).toBe(name);
  });

  it.each([
    ['a fence below 0', { fence: -1n }],
    ['a fence above 64 bits', { fence: 2n ** 63n }],
    ['a lease above 64 bits', { leaseId: 2n ** 63n }],
    ['a worker ID that is no number', { workerId: Number.NaN }],
    ['a UUID in capitals', { uuid: UUID.toUpperCase() }],
  ])('with %s has no key', (_what, change) => {
    expect(() => witnessKey(4, { ...WITNESS, ...change })).toThrow(RangeError);
  });

  it.each([
    ['ticks below 0', { ticks: ticks(-1) }],
    ['ticks that are not whole', { ticks: ticks(0.5) }],
    ['ticks that are not exact', { ticks: ticks(2 ** 53) }],
    ['a revision above 64 bits', { modRevision: 2n ** 63n }],
  ])('with %s has no value', (_what, change) => {
    expect(() => witnessValue({ ...WITNESS, ...change })).toThrow(RangeError);
  });

  it.each([
    ['a fingerprint that is none', { layoutFingerprint: 'none', epochMs: 0 }],
    ['an epoch before 1970', { layoutFingerprint: '0123456789abcdef', epochMs: -1 }],
  ])('with %s has no headers', (_what, layout) => {
    expect(() => witnessHeaders({ layout })).toThrow(RangeError);
  });

  it("can't be written without a UUID", () => {
    expect(() => sealValue('')).toThrow(RangeError);
  });
});

describe('the records of a datacenter', () => {
  it('are distinguished from those of others', () => {
    expect(tableOf([`5/${UUID}/7/812/3`, '1 5 6'], [`44/${UUID}/7/812/3`, '1 5 6'], ['44', `1 ${UUID}`])).toEqual(
      tableOf(),
    );
  });

  it('are removed by a record without a value', () => {
    const all = [
      [key(1), '1 5 6'],
      ['4', `1 ${UUID}`],
      [key(2), 'junk'],
    ] as const;
    const ends = all.map(([name]) => [name, null] as const);
    expect(tableOf(...all, ...ends)).toEqual(tableOf());
  });

  it('keep the highest ceiling of a term, even when a late copy of a lower one comes last', () => {
    const { witnesses } = tableOf([key(1), '1 5 6'], [key(1), '1 9 8'], [key(1), '1 5 6']);
    expect(witnesses).toMatchObject([{ ticks: 9, modRevision: 8n }]);
  });

  it('keep two terms apart that have the same fence', () => {
    const { witnesses } = tableOf([key(1, UUID, 3), '1 5 6'], [key(1, UUID, 4), '1 9 6']);
    expect(witnesses.map(({ fence, leaseId }) => [fence, leaseId])).toEqual([
      [1n, 3n],
      [1n, 4n],
    ]);
  });

  it('keep the terms of one worker ID apart, and those of another namespace', () => {
    const { witnesses } = tableOf([key(1), '1 5 6'], [key(2), '1 9 8'], [key(2, OTHER), '1 1 1']);
    expect(witnesses.map(({ uuid, fence }) => [uuid, fence])).toEqual([
      [UUID, 1n],
      [UUID, 2n],
      [OTHER, 2n],
    ]);
  });

  it.each([
    [key(1), '2 5 6'],
    [key(1), '1 5'],
    [key(1), '1 05 6'],
    [key(1), ''],
    ['4/else', '1 5 6'],
    [`${key(1)}x`, '1 5 6'],
    [`4/${UUID}/7/1/0`, '1 5 6'],
    [`4/${UUID}/7/1/${2n ** 63n}`, '1 5 6'],
    ['4', '2 anything'],
  ])('that are unreadable are listed: %s has %j', (name, value) => {
    expect(tableOf([name, value]).unreadable).toEqual([{ key: name, value }]);
    expect(tableOf([name, value], [name, null]).unreadable).toEqual([]);
  });
});
