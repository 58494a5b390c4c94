import { describe, expect, it } from 'vitest';
import { decodeLeaseRecord, encodeCeiling, encodeDescriptor } from '../../src/codec/namespace-values.ts';
import { tickStartMs, toTicks } from '../../src/core/layout.ts';
import { MAX_CEILING_WAIT_MS } from '../../src/core/reservation.ts';
import { ticks, wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Fault } from './fake-etcd.ts';
import { descriptorOf, type Host, keys, layout, Stage, timing } from './stage.ts';

/** Puts every ceiling this far from the host's clock. */
function moveCeilings(stage: Stage, host: Host, aheadMs: readonly number[]): void {
  for (const [workerId, ahead] of aheadMs.entries()) {
    const at = toTicks(layout, wallMs(host.clock.read().wall + ahead));
    stage.etcd.tamper(keys.ceiling(workerId), encodeCeiling({ ticks: at, nonce: 'moved' }));
  }
}

async function opened() {
  const stage = await Stage.open();
  return { stage, host: await stage.host() };
}

describe('acquiring a worker ID', () => {
  it('stores the owner key with the lease record and a ceiling 25 s ahead, and takes its fence from the owner key', async () => {
    const stage = await Stage.open();
    const host = await stage.host({ workerIp: '10.1.2.3' });
    const { wall } = host.clock.read();
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });

    const owner = stage.etcd.peek(keys.owner(0));
    expect(owner?.leaseId).toBeGreaterThan(0n);
    expect(decodeLeaseRecord(owner?.value ?? Buffer.alloc(0))).toMatchObject({
      assignedWorkerIp: '10.1.2.3',
      leaseTtlSeconds: 30,
      grantedAtMs: wall,
    });
    const to = toTicks(layout, wallMs(wall + timing.reserveMs));
    expect(stage.ceiling(0).ticks).toBe(to);
    expect(host.authority()).toEqual({
      ok: true,
      workerId: 0,
      fence: owner?.createRevision,
      reservation: { from: 0, to },
    });
  });

  it('of two racers for one worker ID exactly one holds it', async () => {
    const stage = await Stage.open();
    const racers = [await stage.host({ staticWorkerId: 1 }), await stage.host({ staticWorkerId: 1 })];
    const outcomes = await Promise.all(racers.map(({ identity }) => identity.acquire()));
    expect(outcomes.map(({ kind }) => kind).sort()).toEqual(['held', 'raced']);
    expect(racers.filter((racer) => racer.authority().ok)).toHaveLength(1);
  });

  it('the loser of a race revokes its lease and takes another worker ID', async () => {
    const stage = await Stage.open();
    const racers = [await stage.host(), await stage.host()];
    const outcomes = await Promise.all(racers.map(({ identity }) => identity.acquire()));
    const loser = racers[outcomes.findIndex(({ kind }) => kind === 'raced')];
    expect(await loser?.identity.acquire()).toEqual({ kind: 'held' });
    expect(racers.map(({ identity }) => identity.state.workerId).sort()).toEqual([0, 1]);
  });

  it.each<Fault>(['answer lost', 'asked twice', 'doubled'])(
    'a claim that meets "%s" is recognised by reading back',
    async (fault) => {
      const stage = await Stage.open();
      const host = await stage.host();
      host.faults.set('transact', [fault]);
      expect(await host.identity.acquire()).toEqual({ kind: 'held' });
      stage.etcd.deliverLate();
      expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    },
  );

  it('a claim that was answered with success but is not in etcd gives no authority', async () => {
    const { stage, host } = await opened();
    const { transact } = stage.etcd;
    stage.etcd.transact = (compares, operations) => {
      stage.etcd.transact = transact;
      return { succeeded: compares.length + operations.length > 0, revision: 99n };
    };
    expect(await host.identity.acquire()).toEqual({ kind: 'raced' });
    expect(host.authority().ok).toBe(false);
  });

  it('a claim without an answer to its read-back is not used, and is found by the next acquire', async () => {
    const { host } = await opened();
    host.faults.set('get', ['pass', 'request lost']); // what is bound is read before
    expect(await host.identity.acquire()).toMatchObject({ kind: 'failed', error: { code: 'ETCD_UNAVAILABLE' } });
    expect(host.authority()).toMatchObject({ ok: false, code: 'NO_IDENTITY' });
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
    expect(host.identity.state.workerId).toBe(0);
  });

  it('the own deadline of an acquire counts from before its lease was requested', async () => {
    const { stage, host } = await opened();
    host.faults.set('get', ['pass', 'request lost']); // what is bound is read before
    await host.identity.acquire();
    stage.pass(timing.refuseAfterMs - 1);
    await host.identity.acquire();
    expect(host.authority().ok).toBe(true);
    stage.pass(1);
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_SUSPENDED' });
  });

  it('a claim that arrives after it was abandoned has no effect', async () => {
    const { stage, host } = await opened();
    host.faults.set('transact', ['late']);
    expect(await host.identity.acquire()).toEqual({ kind: 'raced' });
    stage.etcd.deliverLate();
    expect(stage.ceiling(0)).toEqual({ ticks: 0, nonce: 'init' });
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  it("a successor starts at the predecessor's ceiling, not at its own clock", async () => {
    const stage = await Stage.open();
    const first = await stage.host({ staticWorkerId: 2 });
    await first.identity.acquire();
    const { ticks: ceiling } = stage.ceiling(2);
    stage.pass(60_000);
    const second = await stage.host({ staticWorkerId: 2 });
    await second.identity.acquire();
    expect(second.authority()).toMatchObject({ ok: true, reservation: { from: ceiling } });
    expect(stage.ceiling(2).ticks).toBeGreaterThan(ceiling);
  });

  it('a successor never waits for a ceiling after a crash: the lease outlives it', async () => {
    const stage = await Stage.open();
    const first = await stage.host({ staticWorkerId: 0 });
    await first.identity.acquire();
    stage.pass(timing.ttlMs - 1);
    const second = await stage.host({ staticWorkerId: 0 });
    expect(await second.identity.acquire()).toMatchObject({ kind: 'refused', code: 'POOL_EXHAUSTED' });
    stage.pass(1);
    expect(await second.identity.acquire()).toEqual({ kind: 'held' });
  });

  it('a pool without a free worker ID is exhausted', async () => {
    const stage = await Stage.open();
    const hosts = await Promise.all([0, 1, 2, 3].map(() => stage.host()));
    const outcomes = [];
    for (const { identity } of hosts) outcomes.push(await identity.acquire());
    expect(outcomes.map(({ kind }) => kind)).toEqual(['held', 'held', 'held', 'refused']);
    expect(hosts[3]?.authority()).toMatchObject({ ok: false, code: 'POOL_EXHAUSTED' });
  });

  it('chooses at random among the worker IDs whose ceiling is in the past', async () => {
    const picked = [];
    for (const at of [0, 0.4, 0.6, 0.99]) {
      const stage = await Stage.open();
      const host = await stage.host({ random: () => at });
      moveCeilings(stage, host, [-1, 1_000, 0]);
      await host.identity.acquire();
      picked.push(host.identity.state.workerId);
    }
    expect(picked).toEqual([0, 0, 2, 2]);
  });

  it('waits for the lowest ceiling when all are ahead, and takes it once the clock is there', async () => {
    const { stage, host } = await opened();
    moveCeilings(stage, host, [30_000, 20_000, MAX_CEILING_WAIT_MS]);
    expect(await host.identity.acquire()).toEqual({ kind: 'waiting', waitMs: 20_000 });
    stage.pass(19_999);
    expect(await host.identity.acquire()).toEqual({ kind: 'waiting', waitMs: 1 });
    stage.pass(1);
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
    expect(host.identity.state.workerId).toBe(1);
  });

  it('refuses when every ceiling is more than 35 s ahead: the clock is behind', async () => {
    const { stage, host } = await opened();
    moveCeilings(stage, host, [60_000, MAX_CEILING_WAIT_MS + 1, 90_000]);
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'ALL_CEILINGS_AHEAD' });
  });

  it('refuses after waiting for a ceiling for longer than the maximum', async () => {
    const { stage, host } = await opened();
    moveCeilings(stage, host, [20_000, 20_000, 20_000]);
    await host.identity.acquire();
    host.clock.stepMs = -(MAX_CEILING_WAIT_MS + 1);
    stage.pass(MAX_CEILING_WAIT_MS + 1);
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'ALL_CEILINGS_AHEAD' });
  });

  const HOUR = 3_600_000;
  /** The answer of a broker after 20 ms, which shows the host's clock `aheadMs` ahead. */
  const answer = (broker: string, aheadMs: number) => {
    const sent = wallMs(HOUR);
    return { broker, sent, received: wallMs(sent + 20), appended: wallMs(sent + 10 - aheadMs) };
  };
  const sampleBrokerClocks = (...aheadMs: number[]) => ({
    sampleBrokerClocks: async () => aheadMs.map((ms, broker) => answer(`${broker}`, ms)),
  });

  it.each([
    ['ahead of', [HOUR], 'CLOCK_AHEAD'],
    ['just more than half a second ahead of', [511], 'CLOCK_AHEAD'],
    ['behind', [-HOUR], 'CLOCK_BEHIND'],
    ['2 s ahead of two of three', [2_000, 0, 2_000], 'CLOCK_AHEAD'],
  ])('claims nothing while its clock is %s the brokers', async (_, aheadMs, code) => {
    const stage = await Stage.open();
    const host = await stage.host(sampleBrokerClocks(...aheadMs));
    const ceilings = [0, 1, 2].map((workerId) => stage.ceiling(workerId));
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code });
    expect([0, 1, 2].map((workerId) => stage.ceiling(workerId))).toEqual(ceilings);
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  it.each([
    ['half a second off, which is tolerated', [510]],
    ['right by two of three brokers', [0, HOUR, 0]],
    ['right by one of two brokers', [0, -HOUR]],
  ])('continues with a clock that is %s', async (_, aheadMs) => {
    const stage = await Stage.open();
    const host = await stage.host(sampleBrokerClocks(...aheadMs));
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
  });

  it('claims nothing while no broker answers with its time', async () => {
    const stage = await Stage.open();
    const silent = new IdallocError('KAFKA_UNAVAILABLE', 'no broker');
    const host = await stage.host({ sampleBrokerClocks: () => Promise.reject(silent) });
    expect(await host.identity.acquire()).toMatchObject({ kind: 'failed', error: silent });
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  /** Owners of worker IDs 0 and 1, whose clocks are ahead of the host's by these amounts. */
  function putOwners(stage: Stage, host: Host, aheadMs: readonly number[]): void {
    moveCeilings(stage, host, [...aheadMs.map((ms) => ms + timing.reserveMs), ...[0, 0, 0].slice(aheadMs.length)]);
    for (const workerId of aheadMs.keys()) stage.etcd.tamper(keys.owner(workerId), Buffer.from('other'));
  }

  it('tolerates one other worker whose clock disagrees, but not two', async () => {
    for (const [aheadMs, expected] of [
      [[HOUR], { kind: 'held' }],
      [[-HOUR], { kind: 'held' }],
      [[HOUR, 0], { kind: 'held' }],
      [[-HOUR, -HOUR], { kind: 'refused', code: 'CLOCK_AHEAD' }],
      [[HOUR, HOUR], { kind: 'refused', code: 'CLOCK_BEHIND' }],
    ] as const) {
      const stage = await Stage.open();
      const host = await stage.host(sampleBrokerClocks(0));
      putOwners(stage, host, aheadMs);
      expect(await host.identity.acquire(), `others ${aheadMs} ms ahead`).toMatchObject(expected);
    }
  });

  it('does not mistake owners that were killed up to half a minute ago for a wrong clock', async () => {
    const { stage, host } = await opened();
    putOwners(stage, host, [-timing.ttlMs, -timing.ttlMs]);
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
  });

  it('checks the clock again after asking the brokers', async () => {
    const stage = await Stage.open();
    const host = await stage.host({
      sampleBrokerClocks: async () => {
        host.clock.verdict = { kind: 'eject', reason: 'CLOCK_FORWARD', detail: 'ahead' };
        return [answer('0', 0)];
      },
    });
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'CLOCK_FORWARD' });
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  it('refuses worker IDs at the end of the layout', async () => {
    const { stage, host } = await opened();
    host.clock.stepMs = tickStartMs(layout, layout.endTicks) - host.clock.read().wall + 1_000;
    for (const workerId of [0, 1, 2]) {
      stage.etcd.tamper(keys.ceiling(workerId), encodeCeiling({ ticks: ticks(layout.endTicks), nonce: 'end' }));
    }
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'LAYOUT_EXHAUSTED' });
  });

  it.each([
    ['a missing ceiling', keys.ceiling(1), undefined, 'NAMESPACE_DAMAGED'],
    ['an unreadable ceiling', keys.ceiling(1), Buffer.from('soon'), 'NAMESPACE_DAMAGED'],
    ['a missing descriptor', keys.descriptor, undefined, 'NAMESPACE_DAMAGED'],
    [
      'another pool',
      keys.descriptor,
      encodeDescriptor(descriptorOf({ pool: { first: 0, last: 1 } })),
      'NAMESPACE_MISMATCH',
    ],
  ])('%s stops it, and nothing is written', async (_what, key, value, code) => {
    const { stage, host } = await opened();
    stage.etcd.tamper(key, value);
    const before = stage.etcd.revision;
    await expect(host.identity.acquire()).rejects.toMatchObject({ code });
    expect([stage.etcd.revision, host.authority().ok]).toEqual([before, false]);
  });

  it('a descriptor replaced between read and claim makes the claim fail', async () => {
    const stage = await Stage.open();
    let replaced = false;
    const host = await stage.host({}, async (name) => {
      if (name === 'grantLease' && !replaced) {
        replaced = true;
        stage.etcd.tamper(keys.descriptor, encodeDescriptor(descriptorOf({ epochMs: 1 })));
      }
      return { fault: 'pass' };
    });
    expect(await host.identity.acquire()).toEqual({ kind: 'raced' });
    expect([stage.ceiling(0).ticks, host.authority().ok]).toEqual([0, false]);
    await expect(host.identity.acquire()).rejects.toMatchObject({ code: 'NAMESPACE_MISMATCH' });
  });

  it('an owner that appears between read and claim makes the claim fail', async () => {
    const stage = await Stage.open();
    const host = await stage.host({}, async (name) => {
      if (name === 'grantLease') stage.etcd.tamper(keys.owner(0), Buffer.from('other'));
      return { fault: 'pass' };
    });
    expect(await host.identity.acquire()).toEqual({ kind: 'raced' });
    expect(stage.etcd.peek(keys.owner(0))?.value.toString()).toBe('other');
    expect(stage.ceiling(0).ticks).toBe(0);
  });

  it('a ceiling raised between read and claim makes the claim fail', async () => {
    const stage = await Stage.open();
    let raised = false;
    const host = await stage.host({}, async (name) => {
      if (name === 'grantLease' && !raised) {
        raised = true;
        stage.etcd.tamper(keys.ceiling(0), encodeCeiling({ ticks: ticks(5_000_000_000), nonce: 'other' }));
      }
      return { fault: 'pass' };
    });
    expect(await host.identity.acquire()).toEqual({ kind: 'raced' });
    expect(stage.ceiling(0)).toEqual({ ticks: 5_000_000_000, nonce: 'other' });
  });

  it('a reservation is not used before its witness is acknowledged', async () => {
    const stage = await Stage.open();
    const port = stage.witness.port();
    const acknowledged = Promise.withResolvers<void>();
    const written: unknown[] = [];
    const host = await stage.host({
      witness: {
        ...port,
        write: async (entries) => {
          written.push(...entries);
          await acknowledged.promise;
          return await port.write(entries);
        },
      },
    });
    const acquiring = host.identity.acquire();
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    const revision = stage.etcd.peek(keys.ceiling(0))?.modRevision;
    const { uuid } = descriptorOf();
    const leaseId = stage.etcd.peek(keys.owner(0))?.leaseId;
    expect(written).toEqual([
      {
        put: {
          ...{ uuid, workerId: 0, fence: revision, leaseId, layout: descriptorOf() },
          ...{ ticks: stage.ceiling(0).ticks, modRevision: revision },
        },
      },
    ]);
    expect(host.authority().ok).toBe(false);
    acknowledged.resolve();
    expect(await acquiring).toEqual({ kind: 'held' });
    expect(host.authority().ok).toBe(true);
  });

  it('nothing is claimed unless the clock is steady', async () => {
    const { stage, host } = await opened();
    const before = stage.etcd.revision;
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_FROZEN', detail: 'it stands' };
    expect(await host.identity.acquire()).toEqual({ kind: 'refused', code: 'CLOCK_FROZEN', message: 'it stands' });
    host.clock.verdict = { kind: 'wait', untilWall: wallMs(host.clock.read().wall + 7) };
    expect(await host.identity.acquire()).toEqual({ kind: 'waiting', waitMs: 7 });
    expect(stage.etcd.revision).toBe(before);
  });

  it('a lease granted only after its revocation is revoked again', async () => {
    const stage = await Stage.open();
    const asked = Promise.withResolvers<void>();
    const granted = Promise.withResolvers<void>();
    const host = await stage.host({ newLeaseId: () => 77n }, async (name) => {
      if (name === 'grantLease') {
        asked.resolve();
        await granted.promise;
      }
      return { fault: 'pass' };
    });
    const acquiring = host.identity.acquire();
    await asked.promise;
    await host.identity.release();
    granted.resolve();
    expect(await acquiring).toEqual({ kind: 'stopped' });
    expect(stage.etcd.keepAlive(77n)).toEqual({ ttlSeconds: 0 });
    expect(host.authority().ok).toBe(false);
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  it('a static worker ID outside the pool is a configuration error', async () => {
    const stage = await Stage.open();
    await expect(stage.host({ staticWorkerId: 3 })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });

  it('a process that starts among many recent owners at its address waits once, for the whole delay', async () => {
    const stage = await Stage.open();
    for (let crash = 0; crash < 5; crash += 1) {
      const record = `{"assigned_worker_ip":"127.0.0.1","lease_ttl_seconds":30,"heartbeat_token":"t","granted_at":"${new Date(
        (await stage.host()).clock.read().wall - 1_000,
      ).toISOString()}"}`;
      stage.etcd.tamper(keys.owner(10 + crash), Buffer.from(record));
    }
    const host = await stage.host();
    expect(await host.identity.acquire()).toEqual({ kind: 'waiting', waitMs: 2_000 });
    stage.pass(1_500);
    expect(await host.identity.acquire()).toEqual({ kind: 'waiting', waitMs: 500 });
    stage.pass(500);
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
  });
});
