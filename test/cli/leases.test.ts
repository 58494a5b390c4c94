import { describe, expect, test } from 'vitest';
import { viewNamespace } from '../../src/cli/leases-run.ts';
import { descriptorOf, encodeDescriptor, encodeLeaseRecord } from '../../src/codec/namespace-values.ts';
import { toTicks } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks, wallMs } from '../../src/core/units.ts';
import type { Snapshot } from '../../src/identity/keys.ts';

const NOW_MS = Date.UTC(2026, 5, 2, 16, 5);
const UUID = '01234567-89ab-4cde-8f01-23456789abcd';
const layout = presetLayout('default', {});
const descriptor = encodeDescriptor(descriptorOf({ layout, datacenterId: 4, pool: { first: 2, last: 5 } }, UUID));

const keyValue = (key: string, value: Buffer, leaseId = 0n) => ({
  ...{ key, value, createRevision: 77n, modRevision: 78n, leaseId },
});
const ceiling = (atMs: number | undefined) => ({
  ticks: atMs === undefined ? ticks(0) : toTicks(layout, wallMs(atMs)),
  ...{ nonce: 'n', modRevision: 9n },
});
const record = { assignedWorkerIp: '10.0.0.3', leaseTtlSeconds: 30, heartbeatToken: UUID, grantedAtMs: NOW_MS - 5_000 };

/** Worker ID 3 is held, 4 was used, 5 never was, and 7 is left of a larger pool. */
const SNAPSHOT: Snapshot = {
  descriptor: keyValue('d', descriptor),
  owners: new Map([[3, keyValue('w', encodeLeaseRecord(record), 0xabcn)]]),
  ceilings: new Map([
    [3, ceiling(NOW_MS + 25_000)],
    [4, ceiling(NOW_MS - 60_000)],
    [5, ceiling(undefined)],
    [7, ceiling(NOW_MS - 1_000)],
  ]),
};

const view = (all: boolean, snapshot = SNAPSHOT) => viewNamespace('/root/', snapshot, NOW_MS, all ? { all } : {});

describe('the list of worker IDs', () => {
  test('has all that were ever used, with their holders and how far their ceilings are ahead', () => {
    expect(view(false).leases).toEqual([
      {
        worker_id: 3,
        holder: {
          worker_ip: '10.0.0.3',
          granted_at: '2026-06-02T16:04:55.000Z',
          age_ms: 5_000,
          lease_ttl_seconds: 30,
          lease_id: 'abc',
          fence: '77',
        },
        ceiling: '2026-06-02T16:05:25.000Z',
        ceiling_ahead_ms: 25_000,
      },
      { worker_id: 4, holder: null, ceiling: '2026-06-02T16:04:00.000Z', ceiling_ahead_ms: -60_000 },
      { worker_id: 7, holder: null, ceiling: '2026-06-02T16:04:59.000Z', ceiling_ahead_ms: -1_000 },
    ]);
  });

  test('has with --all the whole pool, from its first to its last', () => {
    expect(view(true).leases.map(({ worker_id }) => worker_id)).toEqual([2, 3, 4, 5, 7]);
  });

  test('says which namespace that is', () => {
    expect(view(false)).toMatchObject({
      ...{ root: '/root/', layout: 'default', layout_text: undefined, epoch_ms: layout.epochMs },
      ...{ datacenter_id: 4, pool: { first: 2, last: 5 }, uuid: UUID },
    });
  });

  test('is NOT_FOUND without a namespace, and names its place', () => {
    const none = { ...SNAPSHOT, descriptor: undefined };
    expect(() => view(false, none)).toThrow(expect.objectContaining({ code: 'NOT_FOUND' }));
    expect(() => view(false, none)).toThrow(/no namespace at \/root\/ yet/);
  });
});
