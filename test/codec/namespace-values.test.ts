import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  compareDescriptors,
  type Descriptor,
  decodeCeiling,
  decodeDescriptor,
  decodeLeaseRecord,
  descriptorOf,
  encodeCeiling,
  encodeDescriptor,
  encodeLeaseRecord,
  layoutOfDescriptor,
} from '../../src/codec/namespace-values.ts';
import type { Layout } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks } from '../../src/core/units.ts';

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

describe('a ceiling', () => {
  it('is ticks and nonce with one space between', () => {
    expect(encodeCeiling({ ticks: ticks(13190700000), nonce: 'n-1_A' }).toString('latin1')).toBe('13190700000 n-1_A');
  });

  it('round-trips', () => {
    const anyCeiling = fc.record({
      ticks: fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }).map(ticks),
      nonce: fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/),
    });
    fc.assert(
      fc.property(anyCeiling, (ceiling) => {
        expect(decodeCeiling(encodeCeiling(ceiling))).toEqual(ceiling);
      }),
    );
  });

  it.each([
    '',
    ' ',
    '5',
    '5 ',
    ' 5 n',
    '5  n',
    '5 n ',
    '5 n\n',
    '05 n',
    '-5 n',
    '+5 n',
    '5.0 n',
    '5e3 n',
    '0x5 n',
    'five n',
    '5 n m',
    '5 ñ',
    '9007199254740992 n',
    '99999999999999999 n',
    `5 ${'n'.repeat(65)}`,
    '\u00a05 n',
  ])('stored as %j is NAMESPACE_DAMAGED, and never counts as missing', (text) => {
    expect(() => decodeCeiling(Buffer.from(text))).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });

  it.each([
    { ticks: ticks(-1), nonce: 'n' },
    { ticks: ticks(1.5), nonce: 'n' },
    { ticks: ticks(2 ** 53), nonce: 'n' },
    { ticks: ticks(1e21), nonce: 'n' },
    { ticks: ticks(Number.NaN), nonce: 'n' },
    { ticks: ticks(1), nonce: '' },
    { ticks: ticks(1), nonce: 'a b' },
  ])("can't be written as %j", (ceiling) => {
    expect(() => encodeCeiling(ceiling)).toThrow(RangeError);
  });
});

const RECORD = {
  assignedWorkerIp: '10.0.0.7',
  leaseTtlSeconds: 30,
  heartbeatToken: 'a1b2',
  grantedAtMs: 1780416300123,
};
const LEASE_TEXT =
  '{"assigned_worker_ip":"10.0.0.7","lease_ttl_seconds":30,"heartbeat_token":"a1b2","granted_at":"2026-06-02T16:05:00.123Z"}';

describe('a lease record', () => {
  it('is JSON with exactly the four documented fields', () => {
    expect(encodeLeaseRecord(RECORD).toString('utf8')).toBe(LEASE_TEXT);
  });

  it('round-trips, with IPv6 too', () => {
    for (const assignedWorkerIp of ['10.0.0.7', '::1', 'fe80::1:2']) {
      expect(decodeLeaseRecord(encodeLeaseRecord({ ...RECORD, assignedWorkerIp }))).toEqual({
        ...RECORD,
        assignedWorkerIp,
      });
    }
  });

  it.each([
    ['is not JSON', 'x'],
    ['is not an object', '[1]'],
    ['is null', 'null'],
    ['lacks a field', LEASE_TEXT.replace('"heartbeat_token":"a1b2",', '')],
    ['has a fifth field', LEASE_TEXT.replace('{', '{"extra":1,')],
    ['has a field named __proto__', LEASE_TEXT.replace('{', '{"__proto__":1,')],
    ['has a TTL of 0', LEASE_TEXT.replace(':30', ':0')],
    ['has a TTL as text', LEASE_TEXT.replace(':30', ':"30"')],
    ['has no IP address', LEASE_TEXT.replace('10.0.0.7', 'host name')],
    ['has a time without a zone', LEASE_TEXT.replace('Z"', '"')],
    ['has an invalid time', LEASE_TEXT.replace('2026-06-02', '2026-13-02')],
    ['is too long', LEASE_TEXT + ' '.repeat(5000)],
  ])('that %s is NAMESPACE_DAMAGED', (_, text) => {
    expect(() => decodeLeaseRecord(Buffer.from(text))).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });

  it('in invalid UTF-8 is NAMESPACE_DAMAGED', () => {
    const bytes = Buffer.from(LEASE_TEXT);
    bytes[bytes.indexOf('a1b2')] = 0xff;
    expect(() => decodeLeaseRecord(bytes)).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });
});
