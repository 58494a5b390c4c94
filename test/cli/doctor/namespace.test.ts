import { describe, expect, it } from 'vitest';
import { judgeNamespace } from '../../../src/cli/doctor/etcd.ts';
import { descriptorOf, encodeDescriptor } from '../../../src/codec/namespace-values.ts';
import type { WitnessView } from '../../../src/codec/witness.ts';
import { loadWorkerConfig } from '../../../src/config/config.ts';
import { ticks } from '../../../src/core/units.ts';
import type { Snapshot } from '../../../src/identity/keys.ts';

const UUID = '01234567-89ab-4cde-8f01-23456789abcd';
const env = { KAFKA_BROKERS: 'b:1', ETCD_ENDPOINTS: 'http://e:1', DATACENTER_ID: '4', POOL_FIRST: '0', POOL_LAST: '1' };
const config = loadWorkerConfig(env);

const UNUSED: WitnessView = { seal: undefined, witnesses: [], unreadable: [] };
const USED: WitnessView = {
  ...UNUSED,
  witnesses: [{ uuid: UUID, workerId: 0, fence: 5n, leaseId: 3n, ticks: ticks(1_000), modRevision: 7n }],
};
const WIPED: Snapshot = { descriptor: undefined, ceilings: new Map(), owners: new Map() };

/** A namespace whose ceilings are all of one tick. */
function there(tick = 2_000): Snapshot {
  const ceiling = { ticks: ticks(tick), nonce: 'n', modRevision: 9n };
  const value = encodeDescriptor(descriptorOf(config, UUID));
  return {
    ...WIPED,
    descriptor: { key: 'd', value, createRevision: 2n, modRevision: 2n, leaseId: 0n },
    ceilings: new Map([0, 1].map((workerId) => [workerId, ceiling])),
  };
}

const judged = (snapshot: Snapshot, view: WitnessView | undefined, from = config, refusals: readonly string[] = []) =>
  judgeNamespace(from, { snapshot, view, refusals }, Date.now());

describe('the check of a namespace', () => {
  it('passes a new namespace, and one that has everything that was witnessed', () => {
    expect(judged(WIPED, UNUSED)).toMatchObject({ state: 'ok', detail: expect.stringMatching(/does not exist yet/) });
    expect(judged(there(), USED)).toMatchObject({ state: 'ok', detail: expect.stringMatching(/0 of 2 worker IDs/) });
  });

  it.each([
    ['was wiped', WIPED],
    ['was restored from a backup', there(999)],
  ])('that %s is a fault, with the remedy', (_, snapshot) => {
    expect(judged(snapshot, USED)).toMatchObject({
      state: 'fault',
      detail: expect.stringMatching(/^RESTORED: /),
      fix: expect.stringMatching(/idalloc namespace rebuild/),
    });
  });

  it('warns when the witness topic can not be read', () => {
    for (const snapshot of [WIPED, there()]) {
      expect(judged(snapshot, undefined)).toMatchObject({
        state: 'warn',
        detail: expect.stringMatching(/witness topic/),
      });
    }
  });

  it('reports each difference from the bindings as a fault, whether the namespace exists or not', () => {
    for (const snapshot of [WIPED, there()]) {
      expect(judged(snapshot, UNUSED, config, ["Another's datacenter.", 'Other partitions.'])).toMatchObject({
        state: 'fault',
        detail: "Another's datacenter. Other partitions.",
        fix: expect.stringMatching(/DATACENTER_ID/),
      });
    }
  });

  it('reports another configuration, and missing ceilings, as faults', () => {
    const other = loadWorkerConfig({ ...env, LAYOUT_EPOCH_MS: '1' });
    expect(judged(there(), USED, other)).toMatchObject({
      state: 'fault',
      fix: expect.stringMatching(/LAYOUT_EPOCH_MS/),
    });
    const layout = { layoutFingerprint: config.layout.fingerprint, epochMs: config.layout.epochMs };
    const named = { ...USED, witnesses: USED.witnesses.map((witness) => ({ ...witness, layout })) };
    expect(judged(WIPED, named, other), 'in the witness topic').toMatchObject({
      state: 'fault',
      detail: expect.stringMatching(/^NAMESPACE_MISMATCH: /),
      fix: expect.stringMatching(/LAYOUT_EPOCH_MS/),
    });
    const lacking = { ...there(), ceilings: new Map([...there().ceilings].slice(0, 1)) };
    expect(judged(lacking, USED)).toMatchObject({ state: 'fault', fix: expect.stringMatching(/namespace rebuild/) });
  });
});
