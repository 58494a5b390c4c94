import { describe, expect, it } from 'vitest';
import {
  compareDescriptors,
  type Descriptor,
  decodeDescriptor,
  descriptorOf,
  encodeDescriptor,
  layoutOfDescriptor,
} from '../../src/codec/descriptor.ts';
import type { Layout } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';

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
    ['is not JSON', ''],
    ['lacks its UUID', TEXT.replace(/,"uuid":"[^"]*"/, '')],
    ['has an invalid UUID', TEXT.replace('3f2b6c1e', 'x')],
    ['has an unknown field', TEXT.replace('{', '{"new":1,')],
    ['has an unknown field in its pool', TEXT.replace('"first"', '"step":2,"first"')],
    ['has a pool that ends before it starts', TEXT.replace('"first":0', '"first":32')],
    ['has a pool of more worker IDs than a namespace may have', TEXT.replace('"last":31', '"last":1024')],
    ['has a pool that nobody could list', TEXT.replace('"last":31', '"last":9007199254740991')],
    ['has half a worker ID', TEXT.replace('"last":31', '"last":30.5')],
    ['has a negative datacenter ID', TEXT.replace(':4,', ':-4,')],
    ['has a fingerprint in capitals', TEXT.replace('66ff', '66FF')],
    ['has an epoch beyond 2^53', TEXT.replace('1767225600000', '9007199254740993')],
    ['has a layout that is a text', TEXT.replace(/"layout":\{[^}]*\}/, '"layout":"default"')],
    ['is of a later format', TEXT.replace('"format_version":1', '"format_version":2')],
  ])('that %s is NAMESPACE_DAMAGED', (_, text) => {
    expect(() => decodeDescriptor(Buffer.from(text))).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });

  it('with the largest pool that a namespace may have is read', () => {
    const largest = { ...DESCRIPTOR, pool: { first: 7, last: 1030 } };
    expect(decodeDescriptor(encodeDescriptor(largest))).toEqual(largest);
  });

  it('with a larger pool is reported with both ends and the limit', () => {
    const forged = Buffer.from(TEXT.replace('"last":31', '"last":9007199254740991'));
    expect(() => decodeDescriptor(forged)).toThrow(/pool from 0 to 9007199254740991 has more than 1024 worker IDs/);
  });

  it('of a later format is reported as such', () => {
    const later = Buffer.from(TEXT.replace('"format_version":1', '"format_version":2'));
    expect(() => decodeDescriptor(later)).toThrow(/format version is 2.*upgrade/);
  });
});

describe('a descriptor of a layout', () => {
  const of = (layout: Layout) => descriptorOf({ layout, datacenterId: 4, pool: DESCRIPTOR.pool }, DESCRIPTOR.uuid);
  const custom = { fields: 'timestamp:42,worker:9,sequence:12', epochMs: 1_767_225_600_000, tickMs: 2 } as const;

  it('that is a preset has the bytes of every release', () => {
    expect(encodeDescriptor(of(presetLayout('default'))).toString()).toBe(
      TEXT.replace('00112233445566ff', 'b064fde81e47ac7b'),
    );
  });

  it('that is custom describes it, so that it is known without its configuration', () => {
    const stored = decodeDescriptor(encodeDescriptor(of(customLayout(custom))));
    expect(stored).toEqual(of(customLayout(custom)));
    expect(stored.layoutText).toBe(
      'timestamp:42:timestamp,worker:9:worker,sequence:12:sequence;tick_ms=2;epoch_ms=1767225600000;start_below=1',
    );
    expect(layoutOfDescriptor(stored)).toEqual(customLayout(custom));
    const lying = { ...stored, layoutText: stored.layoutText?.replace('tick_ms=2', 'tick_ms=3') ?? '' };
    expect(layoutOfDescriptor(lying)).toBeUndefined();
  });

  it.each([
    [
      'layout.fields',
      { fields: 'timestamp:42,worker:8,sequence:13' },
      'timestamp:42,worker:9,sequence:12',
      'timestamp:42,worker:8,sequence:13',
    ],
    ['layout.tick_ms', { tickMs: 4 }, '2', '4'],
    ['layout.sequence_start_below', { sequenceStartBelow: 10 }, '1', '10'],
    ['epoch_ms', { epochMs: 0 }, '1767225600000', '0'],
  ])('that is custom differs from another one in %s, with both values', (field, change, stored, wanted) => {
    const other = of(customLayout({ ...custom, ...change }));
    expect(compareDescriptors(of(customLayout(custom)), other)).toEqual([{ field, stored, wanted }]);
  });

  it('is the same for a preset and for a custom layout that is the preset', () => {
    const fields = 'timestamp:41,worker:5,sequence:7';
    expect(
      compareDescriptors(of(presetLayout('js-safe')), of(customLayout({ fields, epochMs: custom.epochMs }))),
    ).toEqual([]);
  });

  it('differs from one that is not known by the fingerprint', () => {
    const stored = { ...of(customLayout(custom)), layoutFingerprint: '0123456789abcdef' };
    expect(compareDescriptors(stored, of(customLayout(custom)))).toEqual([
      { field: 'layout', stored: '0123456789abcdef', wanted: customLayout(custom).fingerprint },
    ]);
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
