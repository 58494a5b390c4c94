import { describe, expect, it } from 'vitest';
import { compareDescriptors, type Descriptor, decodeDescriptor, encodeDescriptor } from '../../src/codec/descriptor.ts';

const DESCRIPTOR: Descriptor = {
  formatVersion: 1,
  layoutName: 'default',
  layoutFingerprint: '00112233445566ff',
  epochMs: 1767225600000,
  datacenterId: 4,
  pool: { first: 0, last: 31 },
  uuid: '3f2b6c1e-9a4d-4e0b-8f57-0c1d2e3f4a5b',
};
const TEXT =
  '{"format_version":1,"layout":{"name":"default","fingerprint":"00112233445566ff"},"epoch_ms":1767225600000,' +
  '"datacenter_id":4,"pool":{"first":0,"last":31},"uuid":"3f2b6c1e-9a4d-4e0b-8f57-0c1d2e3f4a5b"}';

describe('a descriptor', () => {
  it('is always the same bytes, since etcd compares it as a whole', () => {
    const { uuid, pool, ...rest } = DESCRIPTOR;
    expect(encodeDescriptor(DESCRIPTOR).toString('utf8')).toBe(TEXT);
    expect(encodeDescriptor({ uuid, pool: { last: pool.last, first: pool.first }, ...rest }).toString('utf8')).toBe(
      TEXT,
    );
  });

  it('round-trips', () => {
    expect(decodeDescriptor(encodeDescriptor(DESCRIPTOR))).toEqual(DESCRIPTOR);
  });

  it.each([
    ['is no JSON', ''],
    ['lacks its UUID', TEXT.replace(/,"uuid":"[^"]*"/, '')],
    ['has a UUID that is none', TEXT.replace('3f2b6c1e', 'x')],
    ['has an unknown field', TEXT.replace('{', '{"new":1,')],
    ['has an unknown field in its pool', TEXT.replace('"first"', '"step":2,"first"')],
    ['has a pool that ends before it starts', TEXT.replace('"first":0', '"first":32')],
    ['has half a worker ID', TEXT.replace('"last":31', '"last":30.5')],
    ['has a negative datacenter ID', TEXT.replace(':4,', ':-4,')],
    ['has a fingerprint in capitals', TEXT.replace('66ff', '66FF')],
    ['has an epoch beyond 2^53', TEXT.replace('1767225600000', '9007199254740993')],
    ['has a layout that is a text', TEXT.replace(/"layout":\{[^}]*\}/, '"layout":"default"')],
    ['is of a later format', TEXT.replace('"format_version":1', '"format_version":2')],
  ])('that %s is NAMESPACE_DAMAGED', (_, text) => {
    expect(() => decodeDescriptor(Buffer.from(text))).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });

  it('of a later format says so', () => {
    const later = Buffer.from(TEXT.replace('"format_version":1', '"format_version":2'));
    expect(() => decodeDescriptor(later)).toThrow(/format version is 2.*upgrade/);
  });
});

describe('two descriptors', () => {
  it('agree when they differ only in the name of the layout and in the UUID', () => {
    const other = { ...DESCRIPTOR, layoutName: 'mine', uuid: '00000000-0000-0000-0000-000000000000' };
    expect(compareDescriptors(DESCRIPTOR, other)).toEqual([]);
  });

  it.each([
    ['format_version', { formatVersion: 2 }],
    ['layout', { layoutFingerprint: '00112233445566fe' }],
    ['epoch_ms', { epochMs: 0 }],
    ['datacenter_id', { datacenterId: 5 }],
    ['pool', { pool: { first: 1, last: 31 } }],
    ['pool', { pool: { first: 0, last: 30 } }],
  ])('differ in %s', (field, change) => {
    expect(compareDescriptors(DESCRIPTOR, { ...DESCRIPTOR, ...change }).map((difference) => difference.field)).toEqual([
      field,
    ]);
  });

  it('have every difference listed with both values', () => {
    const wanted = { ...DESCRIPTOR, datacenterId: 5, pool: { first: 0, last: 7 } };
    expect(compareDescriptors(DESCRIPTOR, wanted)).toEqual([
      { field: 'datacenter_id', stored: '4', wanted: '5' },
      { field: 'pool', stored: '0..31', wanted: '0..7' },
    ]);
  });
});
