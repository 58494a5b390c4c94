import { describe, expect, it } from 'vitest';
import { encodeCeiling, encodeDescriptor } from '../../src/codec/namespace-values.ts';
import type { Witness } from '../../src/codec/witness.ts';
import type { LayoutReference } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import type { WitnessEntry, WitnessPort } from '../../src/identity/identity-ports.ts';
import { keyNameOf, requireNoRival } from '../../src/identity/witness.ts';
import { descriptorOf, type Host, keys, Stage, timing } from './stage.ts';

const OTHER = 'ffffffff-89ab-4cde-8f01-23456789abcd';
const { uuid } = descriptorOf();

function reservedTo(host: Host): number | undefined {
  const authority = host.authority();
  return authority.ok ? authority.reservation.to : undefined;
}

/** A stage on which worker ID 0 was used, and is free again. */
async function used(): Promise<Stage> {
  const stage = await Stage.open();
  const host = await stage.host();
  await host.identity.acquire();
  await host.identity.release();
  stage.pass(60_000);
  return stage;
}

/** A witness topic that fails while `down` returns true. */
function failing(port: WitnessPort, down: () => boolean): WitnessPort {
  const fail = () => Promise.reject(new IdallocError('KAFKA_UNAVAILABLE', 'no brokers'));
  return { read: () => (down() ? fail() : port.read()), write: (entries) => (down() ? fail() : port.write(entries)) };
}

describe('an acquire', () => {
  it.each([
    [
      'the ceiling is lower than witnessed',
      (at: number, revision: bigint) => ({ ticks: at + 1, modRevision: revision }),
    ],
    [
      'the ceiling is of an earlier revision than witnessed',
      (at: number, revision: bigint) => ({ ticks: at, modRevision: revision + 1n }),
    ],
  ])('is refused when %s, for every worker ID', async (_what, witnessed) => {
    const stage = await used();
    const stored = stage.etcd.peek(keys.ceiling(0));
    const { ticks: at, modRevision } = witnessed(stage.ceiling(0).ticks, stored?.modRevision ?? 0n);
    stage.witness.land([{ put: { uuid, workerId: 0, fence: 1n, leaseId: 1n, ticks: ticks(at), modRevision } }]);
    const host = await stage.host({ staticWorkerId: 2, namespace: namespaceOf() });
    const before = stage.etcd.revision;
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'RESTORED' });
    expect(host.authority()).toMatchObject({ ok: false, code: 'RESTORED' });
    expect(stage.etcd.revision).toBe(before);
  });

  it('is refused when the namespace has another UUID than its witnesses', async () => {
    const stage = await used();
    stage.etcd.tamper(keys.descriptor, encodeDescriptor(descriptorOf({ uuid: OTHER })));
    const host = await stage.host({ namespace: namespaceOf() });
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'RESTORED' });
  });

  it('is refused, and does not end the worker, when etcd is empty but was used', async () => {
    const stage = await used();
    const host = await stage.host();
    for (const { key } of stage.etcd.range(keys.root).kvs) stage.etcd.tamper(key, undefined);
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'RESTORED' });
    expect(stage.etcd.range(keys.root).kvs).toEqual([]);
    await expect(stage.host()).rejects.toMatchObject({
      code: 'RESTORED',
      message: expect.stringMatching(/namespace rebuild.*another etcd.*DATACENTER_ID/),
    });
    expect(stage.etcd.range(keys.root).kvs).toEqual([]);
  });

  it('continues in a rebuilt namespace, whose seal voids older witnesses', async () => {
    const stage = await used();
    const host = await stage.host();
    const floor = ticks(stage.ceiling(0).ticks + 1_000);
    stage.etcd.tamper(keys.ceiling(0), encodeCeiling({ ticks: floor, nonce: 'rebuild' }));
    stage.etcd.tamper(keys.descriptor, encodeDescriptor(descriptorOf({ uuid: OTHER })));
    expect(await host.identity.acquire()).toMatchObject({ code: 'RESTORED' });
    stage.witness.land([{ seal: OTHER }]);
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
    stage.pass(timing.heartbeatMs);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(stage.witness.view().witnesses.filter((witness) => witness.uuid === OTHER)).toHaveLength(1);
  });

  it('reads the witness topic before etcd, so that a raise in between does not look like a restored backup', async () => {
    const stage = await Stage.open();
    const [first, second] = [await stage.host(), await stage.host()];
    await first.identity.acquire();
    const port = stage.witness.port();
    const meanwhile = await stage.host({
      witness: {
        ...port,
        read: async () => {
          stage.pass(timing.heartbeatMs);
          await first.identity.heartbeat();
          const view = await port.read();
          stage.pass(timing.heartbeatMs);
          await first.identity.heartbeat();
          return view;
        },
      },
    });
    expect(await meanwhile.identity.acquire()).toEqual({ kind: 'held' });
    expect(await second.identity.acquire()).toEqual({ kind: 'held' });
  });

  it.each([
    ['an earlier term, which etcd has forgotten', () => 1n, { kind: 'refused', code: 'RESTORED' }],
    [
      'a term under its own fence, which etcd has forgotten',
      (own: bigint) => own,
      { kind: 'refused', code: 'RESTORED' },
    ],
    ['a later term, which followed it', () => 99n, { kind: 'failed', error: { code: 'LEASE_LOST' } }],
  ])('that finds the witness of %s before its own fails, and its lease is revoked', async (_what, fenceOf, outcome) => {
    const stage = await Stage.open();
    const port = stage.witness.port();
    const host = await stage.host({
      witness: {
        ...port,
        write: async (entries) => {
          const fence = fenceOf(stage.etcd.revision);
          stage.witness.land([{ put: { uuid, workerId: 0, fence, leaseId: 1n, ticks: ticks(1), modRevision: fence } }]);
          return await port.write(entries);
        },
      },
    });
    expect(await host.identity.acquire()).toMatchObject(outcome);
    expect([host.authority().ok, stage.etcd.peek(keys.owner(0))]).toEqual([false, undefined]);
  });

  it('needs the topic: without an answer nothing is claimed', async () => {
    const stage = await Stage.open();
    const host = await stage.host({ witness: failing(stage.witness.port(), () => true) });
    const before = stage.etcd.revision;
    expect(await host.identity.acquire()).toMatchObject({ kind: 'failed', error: { code: 'KAFKA_UNAVAILABLE' } });
    expect(stage.etcd.revision).toBe(before);
  });

  it('is refused while the topic has a record that can not be read', async () => {
    const stage = await Stage.open();
    const host = await stage.host();
    stage.witness.land([{ clear: '4/else' }]);
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
    stage.witness.apply('4/else', 'junk');
    await expect(host.identity.release().then(() => host.identity.acquire())).rejects.toMatchObject({
      code: 'NAMESPACE_DAMAGED',
    });
  });
});

const JS_SAFE = presetLayout('js-safe');
const OTHER_LAYOUT = { layoutFingerprint: JS_SAFE.fingerprint, epochMs: JS_SAFE.epochMs };

/** A witness of worker ID 2 at tick 1, which no ceiling can contradict. */
const witnessOf = (layout: LayoutReference | undefined, of = uuid): WitnessEntry => ({
  put: { uuid: of, workerId: 2, fence: 0n, leaseId: 0n, ticks: ticks(0), modRevision: 1n, layout },
});

describe('a witness of another layout than the one that is configured', () => {
  it('excludes every worker, and the message names both layouts, the record and what to set', async () => {
    const stage = await used();
    stage.witness.land([witnessOf(OTHER_LAYOUT)]);
    const host = await stage.host({ namespace: namespaceOf() });
    const before = stage.etcd.revision;
    const refusal = {
      code: 'NAMESPACE_MISMATCH',
      message: expect.stringMatching(
        new RegExp(`default .*'4/${uuid}/2/0'.* js-safe .*Set LAYOUT, LAYOUT_EPOCH_MS.*ETCD_PREFIX and ID_SPACE`),
      ),
    };
    await expect(host.identity.acquire()).rejects.toMatchObject(refusal);
    await expect(stage.open()).rejects.toMatchObject(refusal);
    expect(stage.etcd.revision).toBe(before);
  });

  it('excludes a worker from an etcd that was wiped, before anybody rebuilds under the wrong layout', async () => {
    const stage = new Stage();
    stage.witness.land([witnessOf(OTHER_LAYOUT)]);
    await expect(stage.open()).rejects.toMatchObject({ code: 'NAMESPACE_MISMATCH' });
    expect(stage.etcd.range(keys.root).kvs).toEqual([]);
  });

  it('does not count once a rebuild has voided it', async () => {
    const stage = await Stage.open();
    stage.witness.land([{ seal: uuid }, witnessOf(OTHER_LAYOUT, OTHER)]);
    const host = await stage.host();
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
  });

  it('is not suspected where an earlier release wrote no layout', async () => {
    const stage = await used();
    stage.witness.land([witnessOf(undefined)]);
    const host = await stage.host();
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
  });
});

/**
 * What becomes of a write: it is answered, or it is not and lands after the write with this number, or with the last
 * ones.
 */
type Fate = 'answered' | number;

/** Every history of so many writes. */
function historiesOf(writes: number, from = 0): Fate[][] {
  if (from === writes) return [[]];
  const fates: Fate[] = ['answered', ...Array.from({ length: writes - from }, (_, i) => from + i), writes];
  return historiesOf(writes, from + 1).flatMap((rest) => fates.map((fate) => [fate, ...rest]));
}

/** A host whose writes to the witness topic get no response while `silent` is set, and land when `land` is called. */
async function silentHost() {
  const stage = await Stage.open();
  const port = stage.witness.port();
  const underWay = new Map<number, readonly WitnessEntry[]>();
  const at = { silent: false };
  let writes = -1; // the claim's
  const write = async (entries: readonly WitnessEntry[]) => {
    const number = writes;
    writes += 1;
    if (!at.silent) return await port.write(entries);
    underWay.set(number, entries);
    throw new IdallocError('KAFKA_UNAVAILABLE', 'no response');
  };
  const host = await stage.host({ witness: { ...port, write } });
  const beat = async () => {
    stage.pass(timing.heartbeatMs);
    return await host.identity.heartbeat();
  };
  /** Lets these writes land, the last one first; by default all that are under way. */
  const land = (which = [...underWay.keys()]) => {
    for (const number of which.toReversed()) {
      stage.witness.land(underWay.get(number) ?? []);
      underWay.delete(number);
    }
  };
  const highest = () => Math.max(...stage.witness.compacted().witnesses.map((witness) => witness.ticks));
  return { stage, host, at, beat, land, highest };
}

describe('what compaction leaves of the witness topic', () => {
  it('is never below the reservation in use, whichever of four writes get no response and whenever these land', async () => {
    const histories = historiesOf(4);
    expect(histories).toHaveLength(360);
    for (const fates of histories) {
      const { host, at, beat, land, highest } = await silentHost();
      await host.identity.acquire();
      for (const [now, fate] of fates.entries()) {
        at.silent = fate !== 'answered';
        expect(await beat()).toMatchObject({ kind: at.silent ? 'failed' : 'held' });
        land(fates.flatMap((lands, write) => (lands === now ? [write] : [])));
        expect(highest(), `after write ${now} of ${fates}`).toBeGreaterThanOrEqual(reservedTo(host) ?? 0);
      }
      at.silent = false;
      expect(await beat()).toEqual({ kind: 'held' });
      land();
      expect(highest(), `in the end of ${fates}`).toBe(reservedTo(host));
    }
  });

  it('is not below it when the write of the claim lands after those of heartbeats', async () => {
    const { host, at, beat, land, highest } = await silentHost();
    at.silent = true;
    expect(await host.identity.acquire()).toMatchObject({ kind: 'failed' });
    at.silent = false;
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
    expect(await beat()).toEqual({ kind: 'held' });
    land();
    expect(highest()).toBe(reservedTo(host));
  });

  it('has one witness of a worker ID again, two heartbeats after its late ones', async () => {
    const { stage, host, at, beat, land } = await silentHost();
    await host.identity.acquire();
    at.silent = true;
    for (const _ of [1, 2, 3]) expect(await beat()).toMatchObject({ kind: 'failed' });
    at.silent = false;
    land();
    for (const _ of [1, 2]) expect(await beat()).toEqual({ kind: 'held' });
    expect(stage.witness.compacted().witnesses).toMatchObject([{ workerId: 0, ticks: reservedTo(host) }]);
  });

  it('stays under one key while every write gets a response', async () => {
    const { stage, host, beat } = await silentHost();
    await host.identity.acquire();
    for (const _ of [1, 2, 3]) expect(await beat()).toEqual({ kind: 'held' });
    const written = stage.witness.log.filter(({ value }) => value !== null).map(({ key }) => String(key));
    expect([written.length, new Set(written).size]).toEqual([4, 1]);
  });

  it('is under keys that the largest lease can be followed by', () => {
    const own = { uuid, workerId: 0, fence: 7n, leaseId: 2n ** 63n - 1n, silentWrites: 2, from: 5 };
    expect(keyNameOf(own)).toEqual({ uuid, workerId: 0, fence: 7n, leaseId: 1n });
    const earlier = { uuid, workerId: 0, fence: 7n, ticks: ticks(9), modRevision: 8n };
    const viewOf = (leaseId: bigint) => ({ seal: undefined, unreadable: [], witnesses: [{ ...earlier, leaseId }] });
    for (const leaseId of [own.leaseId, 0n, 1n]) expect(() => requireNoRival(viewOf(leaseId), own)).not.toThrow();
    for (const leaseId of [own.leaseId - 1n, 2n])
      expect(() => requireNoRival(viewOf(leaseId), own)).toThrow(/RESTORED|rolled back/);
  });
});

describe('a heartbeat', () => {
  it('without Kafka keeps lease and deadline, but not the reservation', async () => {
    const stage = await Stage.open();
    let down = false;
    const host = await stage.host({ witness: failing(stage.witness.port(), () => down) });
    await host.identity.acquire();
    const reserved = reservedTo(host);
    down = true;
    for (let passed = 0; passed < timing.reserveMs; passed += 5_000) {
      expect(reservedTo(host)).toBe(reserved);
      stage.pass(5_000);
      expect(await host.identity.heartbeat()).toMatchObject({ kind: 'failed', error: { code: 'KAFKA_UNAVAILABLE' } });
      expect(host.identity.remainingMs(host.clock.read())).toBe(timing.refuseAfterMs);
    }
    expect(host.authority()).toMatchObject({ ok: false, code: 'RESERVATION_EXHAUSTED' });
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended', workerId: 0 });
    down = false;
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(reservedTo(host)).toBe(stage.ceiling(0).ticks);
  });

  it('that fails closes the gate when the reservation is used up, even without an allocation', async () => {
    const stage = await Stage.open();
    const host = await stage.host({ timing: { ...timing, refuseAfterMs: 30_000, ttlMs: 40_000 } });
    await host.identity.acquire();
    stage.pass(timing.reserveMs - 1);
    host.identity.check(host.clock.read());
    expect(host.states.at(-1)?.mode).toBe('held');
    stage.pass(1);
    host.identity.check(host.clock.read());
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended', refusal: { code: 'RESERVATION_EXHAUSTED' } });
  });

  it('that fails names etcd as soon as that has not confirmed the lease either', async () => {
    const stage = await Stage.open();
    const host = await stage.host({ timing: { ...timing, refuseAfterMs: 30_000, ttlMs: 40_000 } });
    await host.identity.acquire();
    stage.pass(timing.reserveMs);
    host.identity.check(host.clock.read());
    stage.pass(30_000 - timing.reserveMs - 1);
    host.identity.check(host.clock.read());
    expect(host.authority()).toMatchObject({ ok: false, code: 'RESERVATION_EXHAUSTED' });
    stage.pass(1);
    host.identity.check(host.clock.read());
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended', refusal: { code: 'LEASE_SUSPENDED' } });
  });

  it('removes the witnesses of earlier terms once its own has been read', async () => {
    const stage = await used();
    const host = await stage.host({ staticWorkerId: 0 });
    await host.identity.acquire();
    expect(stage.witness.view().witnesses).toHaveLength(2);
    stage.pass(timing.heartbeatMs);
    await host.identity.heartbeat();
    const { fence } = host.identity.state;
    expect(stage.witness.view().witnesses).toMatchObject([{ workerId: 0, fence, ticks: stage.ceiling(0).ticks }]);
  });

  it('removes the witnesses of 5,000 short terms some at a time, and keeps the worker ID meanwhile', async () => {
    const stage = await used();
    const [first] = stage.witness.view().witnesses as [Witness];
    stage.witness.land(Array.from({ length: 5_000 }, (_, i) => ({ put: { ...first, leaseId: BigInt(i + 1) } })));
    const host = await stage.host({ staticWorkerId: 0 });
    await host.identity.acquire();
    for (let beat = 0; beat < 11; beat += 1) {
      stage.pass(timing.heartbeatMs);
      expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    }
    expect(stage.witness.view().witnesses).toMatchObject([{ fence: host.identity.state.fence }]);
  });

  it('ends the term when the namespace was rebuilt meanwhile, and changes nothing there', async () => {
    const stage = await Stage.open();
    const host = await stage.host();
    await host.identity.acquire();
    const ceiling = stage.ceiling(0);
    stage.etcd.tamper(keys.descriptor, encodeDescriptor(descriptorOf({ uuid: OTHER })));
    stage.pass(timing.heartbeatMs);
    await host.identity.heartbeat();
    expect(stage.ceiling(0)).toEqual(ceiling);
    stage.witness.land([{ seal: OTHER }]);
    const before = reservedTo(host);
    stage.etcd.tamper(keys.descriptor, encodeDescriptor(descriptorOf()));
    stage.pass(timing.heartbeatMs);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost', code: 'RESTORED' });
    expect([before, host.authority().ok]).toEqual([ceiling.ticks, false]);
  });
});

function namespaceOf() {
  const descriptor = descriptorOf();
  return { descriptor, descriptorValue: encodeDescriptor(descriptor) };
}
