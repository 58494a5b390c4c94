import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { encodeCeiling } from '../../src/codec/namespace-values.ts';
import { toTicks } from '../../src/core/layout.ts';
import { ticks, wallMs } from '../../src/core/units.ts';
import { type Fault, goodLink } from './fake-etcd.ts';
import { type Host, keys, layout, Stage, timing } from './stage.ts';

async function heldHost(changes: Parameters<Stage['host']>[0] = {}, link?: Parameters<Stage['host']>[1]) {
  const stage = await Stage.open();
  const host = await stage.host(changes, link);
  expect(await host.identity.acquire()).toEqual({ kind: 'held' });
  return { stage, host };
}

const wanted = (host: Host) => toTicks(layout, wallMs(host.clock.read().wall + timing.reserveMs));
const reservedTo = (host: Host) => {
  const authority = host.authority();
  return authority.ok ? authority.reservation.to : authority.code;
};

describe('a heartbeat', () => {
  it('raises the ceiling to 25 s after its keep-alive, and the reservation with it', async () => {
    const { stage, host } = await heldHost();
    const before = host.authority();
    stage.pass(timing.heartbeatMs);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(stage.ceiling(0).ticks).toBe(wanted(host));
    const to = wanted(host);
    expect(host.authority()).toEqual({ ...before, reservation: { from: 0, to } });
  });

  it.each<Fault>(['answer lost', 'asked twice', 'doubled'])(
    'a swap that meets "%s" is recognised by reading back',
    async (fault) => {
      const { stage, host } = await heldHost();
      stage.pass(timing.heartbeatMs);
      host.faults.set('transact', [fault]);
      expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
      expect(reservedTo(host)).toBe(wanted(host));
      stage.etcd.deliverLate();
      stage.pass(timing.heartbeatMs);
      expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
      expect(reservedTo(host)).toBe(wanted(host));
    },
  );

  it('a swap that has not arrived reserves nothing, and is recognised when it does', async () => {
    const { stage, host } = await heldHost();
    const before = reservedTo(host);
    stage.pass(timing.heartbeatMs);
    const first = wanted(host);
    host.faults.set('transact', ['late', 'request lost']);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(reservedTo(host)).toBe(before);
    stage.etcd.deliverLate();
    stage.pass(1_000);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(reservedTo(host)).toBe(first);
    expect(stage.ceiling(0).ticks).toBe(first);
  });

  it('a swap answered with success that is not in etcd reserves nothing', async () => {
    const { stage, host } = await heldHost();
    const before = reservedTo(host);
    stage.pass(timing.heartbeatMs);
    const { transact } = stage.etcd;
    stage.etcd.transact = () => ({ succeeded: true, revision: 99n });
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    stage.etcd.transact = transact;
    expect(reservedTo(host)).toBe(before);
  });

  it('a swap that took effect while its read-back failed is kept, and found later', async () => {
    const { stage, host } = await heldHost();
    const before = reservedTo(host);
    stage.pass(timing.heartbeatMs);
    host.faults.set('get', ['pass', 'request lost']);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'failed', error: { code: 'ETCD_UNAVAILABLE' } });
    expect(reservedTo(host)).toBe(before);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(reservedTo(host)).toBe(wanted(host));
  });

  it.each([
    ['has no answer', (host: Host) => host.faults.set('transact', Array<Fault>(200).fill('request lost')), () => {}],
    ['is refused', (_: Host, stage: Stage) => stage.etcd.fill(), (stage: Stage) => stage.etcd.free()],
    [
      'is refused after the first took effect',
      (_: Host, stage: Stage) => stage.etcd.fill(true),
      (stage: Stage) => stage.etcd.free(),
    ],
  ] as const)('however often a raise %s, the next one is sent, and counts', async (_, begin, end) => {
    const { stage, host } = await heldHost();
    begin(host, stage);
    for (let beat = 0; beat < 200; beat += 1) {
      stage.pass(100);
      expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    }
    expect(reservedTo(host)).not.toBe(wanted(host));
    end(stage);
    stage.pass(100);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(reservedTo(host)).toBe(wanted(host));
  });

  it.each([
    ['refused', (stage: Stage) => stage.etcd.fill()],
    [
      'answered without success',
      (stage: Stage) => {
        stage.etcd.transact = () => ({ succeeded: false, revision: 1n });
      },
    ],
  ] as const)('a raise without an answer is recognised when it arrives after many that were %s', async (_, begin) => {
    const { stage, host } = await heldHost();
    const { transact } = stage.etcd;
    stage.pass(timing.heartbeatMs);
    const first = wanted(host);
    host.faults.set('transact', ['late']);
    await host.identity.heartbeat();
    begin(stage);
    for (let beat = 0; beat < 200; beat += 1) {
      stage.pass(10);
      await host.identity.heartbeat();
    }
    stage.etcd.transact = transact;
    stage.etcd.free();
    stage.etcd.deliverLate();
    stage.etcd.fill();
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(reservedTo(host)).toBe(first);
  });

  it('of the raises without an answer, no more than the newest 64 are kept', async () => {
    const { stage, host } = await heldHost();
    host.faults.set('transact', Array<Fault>(65).fill('late'));
    for (let beat = 0; beat < 65; beat += 1) {
      stage.pass(100);
      await host.identity.heartbeat();
    }
    stage.etcd.deliverLate();
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost', code: 'LEASE_LOST' });
  });

  it('a ceiling never falls: a clock that went back raises nothing', async () => {
    const { stage, host } = await heldHost();
    const before = stage.ceiling(0);
    host.clock.stepMs = -9;
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(stage.ceiling(0)).toEqual(before);
    expect(reservedTo(host)).toBe(before.ticks);
  });

  it('while the clock must be waited for, keeps the lease alive and raises nothing', async () => {
    const { stage, host } = await heldHost();
    const before = stage.ceiling(0);
    stage.pass(timing.heartbeatMs);
    host.clock.verdict = { kind: 'wait', untilWall: wallMs(0) };
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(stage.ceiling(0)).toEqual(before);
    stage.pass(timing.refuseAfterMs - 1);
    expect(host.authority().ok).toBe(true);
  });

  it('an ejected clock revokes the lease with its owner key, and raises nothing', async () => {
    const { stage, host } = await heldHost();
    const before = stage.ceiling(0);
    stage.pass(timing.heartbeatMs);
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_BACKWARD', detail: 'by an hour' };
    const refusal = { code: 'CLOCK_BACKWARD', message: 'by an hour' };
    expect(await host.identity.heartbeat()).toEqual({ kind: 'ejected', ...refusal });
    expect(host.authority()).toEqual({ ok: false, ...refusal });
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
    expect(stage.ceiling(0)).toEqual(before);
  });

  it('an ejection is reported once the lease is revoked, so that its ID is free', async () => {
    const asked = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    const { host } = await heldHost({}, async (name) => {
      if (name === 'revokeLease') {
        asked.resolve();
        await answered.promise;
      }
      return await goodLink(name);
    });
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_BACKWARD', detail: 'by an hour' };
    const order: string[] = [];
    const beat = host.identity.heartbeat().then(({ kind }) => order.push(kind));
    await asked.promise;
    await nextTurn();
    order.push('revoked');
    answered.resolve();
    await beat;
    expect(order).toEqual(['revoked', 'ejected']);
  });

  it('a clock jump during it is reported as such, not as a silent etcd', async () => {
    let jumps: (() => void) | undefined;
    const { host } = await heldHost({}, async (name) => {
      jumps?.();
      return await goodLink(name);
    });
    jumps = () => {
      host.clock.stepMs = 3_600_000;
      host.clock.verdict = { kind: 'eject', reason: 'CLOCK_FORWARD', detail: 'by an hour' };
    };
    const before = host.states.length;
    await host.identity.heartbeat();
    expect(host.states.slice(before).map(({ mode, refusal }) => [mode, refusal?.code])).toEqual([
      ['suspended', 'CLOCK_FORWARD'],
    ]);
    expect(host.authority()).toEqual({ ok: false, code: 'CLOCK_FORWARD', message: 'by an hour' });
  });

  it('a raise is used only once it is witnessed, and the previous one stays usable', async () => {
    const stage = await Stage.open();
    const port = stage.witness.port();
    const acknowledged = Promise.withResolvers<void>();
    let writes = 0;
    const host = await stage.host({
      witness: {
        ...port,
        write: async (entries) => {
          writes += 1;
          if (writes > 1) await acknowledged.promise;
          return await port.write(entries);
        },
      },
    });
    await host.identity.acquire();
    const before = reservedTo(host);
    stage.pass(timing.heartbeatMs);
    const beating = host.identity.heartbeat();
    while (writes < 2) await Promise.resolve();
    expect([stage.ceiling(0).ticks, reservedTo(host)]).toEqual([wanted(host), before]);
    acknowledged.resolve();
    await beating;
    expect(reservedTo(host)).toBe(wanted(host));
  });

  it('runs one at a time', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.heartbeatMs);
    const before = stage.etcd.revision;
    const outcomes = await Promise.all([host.identity.heartbeat(), host.identity.heartbeat()]);
    expect(outcomes).toEqual([{ kind: 'held' }, { kind: 'stopped' }]);
    expect(stage.etcd.revision).toBe(before + 1n);
  });
});

describe('the own deadline', () => {
  it('refuses authority after it even if no timer fired', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.refuseAfterMs - 1);
    expect(host.authority().ok).toBe(true);
    stage.pass(1);
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_SUSPENDED' });
    expect(host.identity.state.mode).toBe('suspended');
  });

  it('counts from before the keep-alive was sent, not from its answer', async () => {
    const stage = await Stage.open();
    const host = await stage.host({}, async (name) => {
      if (name === 'keepAlive') stage.pass(3_000);
      return { fault: 'pass' };
    });
    await host.identity.acquire();
    await host.identity.heartbeat();
    stage.pass(timing.refuseAfterMs - 3_000 - 1);
    expect(host.authority().ok).toBe(true);
    stage.pass(1);
    expect(host.authority().ok).toBe(false);
  });

  it('a keep-alive whose answer is lost does not move it', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.heartbeatMs);
    host.faults.set('keepAlive', ['answer lost']);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'failed' });
    stage.pass(timing.refuseAfterMs - timing.heartbeatMs);
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_SUSPENDED' });
  });

  it('is moved by one keep-alive and one read, whatever time the raise of the ceiling takes', async () => {
    const stage = await Stage.open();
    let slow = false;
    const host = await stage.host({}, async (name) => {
      if (slow && name === 'transact') await new Promise(() => undefined);
      return { fault: 'pass' };
    });
    await host.identity.acquire();
    slow = true;
    stage.pass(timing.heartbeatMs);
    void host.identity.heartbeat();
    await new Promise((resolve) => setImmediate(resolve));
    stage.pass(timing.refuseAfterMs - 1);
    expect(host.authority().ok).toBe(true);
    stage.pass(1);
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_SUSPENDED' });
  });

  it('a heartbeat without an answer to its read does not move it', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.heartbeatMs);
    host.faults.set('get', ['answer lost']);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'failed' });
    stage.pass(timing.refuseAfterMs - timing.heartbeatMs);
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_SUSPENDED' });
  });

  it('a wall clock that runs ahead brings it nearer', async () => {
    const { host } = await heldHost();
    host.clock.stepMs = timing.refuseAfterMs;
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_SUSPENDED' });
  });

  it('a heartbeat that takes longer than the deadline leaves the term suspended', async () => {
    const stage = await Stage.open();
    let slow = false;
    const host = await stage.host({}, async (name) => {
      if (slow && name === 'get') stage.pass(timing.refuseAfterMs);
      return { fault: 'pass' };
    });
    await host.identity.acquire();
    slow = true;
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect([host.identity.state.mode, host.authority().ok]).toEqual(['suspended', false]);
  });

  it('takes effect even if nothing is allocated', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.refuseAfterMs);
    host.identity.check(host.clock.read());
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended', refusal: { code: 'LEASE_SUSPENDED' } });
  });
});

describe('resuming a suspended term', () => {
  async function suspended() {
    const { stage, host } = await heldHost();
    stage.pass(timing.refuseAfterMs + 5_000);
    expect(host.authority().ok).toBe(false);
    return { stage, host };
  }

  it('keeps the same fence when no other process held the worker ID', async () => {
    const { stage, host } = await suspended();
    const { fence } = host.identity.state;
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(host.authority()).toMatchObject({ ok: true, fence, reservation: { from: 0, to: stage.ceiling(0).ticks } });
    expect(host.states.map(({ mode }) => mode)).toEqual(['acquiring', 'held', 'suspended', 'held']);
  });

  it('is refused when the lease has expired', async () => {
    const { stage, host } = await suspended();
    stage.pass(timing.ttlMs);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost', code: 'LEASE_LOST' });
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_LOST' });
    expect(host.states.map(({ mode }) => mode).slice(-2)).toEqual(['lost', 'none']);
  });

  it.each(['the owner key', 'the ceiling'])(
    'is refused when %s was taken over while our lease lived',
    async (taken) => {
      const { stage, host } = await suspended();
      if (taken === 'the owner key') {
        const owner = stage.etcd.peek(keys.owner(0));
        stage.etcd.tamper(keys.owner(0), undefined);
        stage.etcd.tamper(keys.owner(0), owner?.value);
      } else {
        stage.etcd.tamper(keys.ceiling(0), encodeCeiling({ ticks: ticks(stage.ceiling(0).ticks + 1), nonce: 'other' }));
      }
      expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost', code: 'LEASE_LOST' });
      expect(host.authority().ok).toBe(false);
    },
  );

  it('gives the lease back when it is refused, so that the worker ID is free at once', async () => {
    const { stage, host } = await suspended();
    stage.etcd.tamper(keys.ceiling(0), encodeCeiling({ ticks: ticks(stage.ceiling(0).ticks + 1), nonce: 'other' }));
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost' });
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  it('is refused when the lease is gone, even if the owner key is still there', async () => {
    const { stage, host } = await suspended();
    const owner = stage.etcd.peek(keys.owner(0));
    stage.etcd.tamper(keys.owner(0), owner?.value);
    stage.etcd.revokeLease(owner?.leaseId ?? 0n);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost' });
  });

  it('is refused when the ceiling was rewritten, even with our own value', async () => {
    const { stage, host } = await suspended();
    const ours = stage.etcd.peek(keys.ceiling(0));
    stage.etcd.tamper(keys.ceiling(0), ours?.value);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost' });
  });

  it.each([
    ['missing', undefined, 'RESTORED'],
    ['unreadable', Buffer.from('?'), 'NAMESPACE_DAMAGED'],
  ])('a %s ceiling ends the term and prevents the next one', async (_what, value, code) => {
    const { stage, host } = await suspended();
    stage.etcd.tamper(keys.ceiling(0), value);
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost' });
    expect(stage.etcd.peek(keys.ceiling(0))?.value).toEqual(value);
    const next = await host.identity.acquire().catch((error: unknown) => error);
    expect(next).toMatchObject({ code });
  });

  it('after a loss the next term has a higher fence and a new reservation', async () => {
    const { stage, host } = await suspended();
    const first = host.identity.state.fence ?? 0n;
    const ceiling = stage.ceiling(0).ticks;
    stage.pass(timing.ttlMs);
    await host.identity.heartbeat();
    expect(await host.identity.acquire()).toEqual({ kind: 'held' });
    const authority = host.authority();
    expect(authority).toMatchObject({ ok: true, workerId: 0, reservation: { from: ceiling } });
    expect(authority.ok && authority.fence > first).toBe(true);
  });
});

describe('a process that was paused', () => {
  it('refuses until a heartbeat sent afterwards shows that it still holds the worker ID', async () => {
    const { stage, host } = await heldHost();
    const { fence } = host.identity.state;
    stage.pass(2_000);
    host.identity.paused(host.clock.read());
    expect(host.authority()).toMatchObject({ ok: false, code: 'PROCESS_PAUSED' });
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(host.authority()).toMatchObject({ ok: true, fence });
  });

  it('does not resume by a heartbeat sent before the pause', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.heartbeatMs);
    const beating = host.identity.heartbeat();
    stage.pass(2_000);
    host.identity.paused(host.clock.read());
    expect(await beating).toEqual({ kind: 'held' });
    expect(host.authority()).toMatchObject({ ok: false, code: 'PROCESS_PAUSED' });
    await host.identity.heartbeat();
    expect(host.authority().ok).toBe(true);
  });

  it('does not use an acquire sent before the pause', async () => {
    const stage = await Stage.open();
    const host = await stage.host({}, async (name) => {
      if (name === 'transact' && host.identity.state.workerId === undefined) {
        stage.pass(2_000);
        host.identity.paused(host.clock.read());
      }
      return { fault: 'pass' };
    });
    await host.identity.acquire();
    expect(host.authority()).toMatchObject({ ok: false, code: 'PROCESS_PAUSED' });
    await host.identity.heartbeat();
    expect(host.authority().ok).toBe(true);
  });

  it('reports etcd from the first heartbeat sent afterwards that fails, and the pause before that', async () => {
    const { stage, host } = await heldHost();
    const before = host.states.length;
    stage.pass(2_000);
    host.identity.paused(host.clock.read());
    host.faults.set('keepAlive', ['request lost', 'request lost']);
    for (let beat = 0; beat < 2; beat += 1) {
      expect(await host.identity.heartbeat()).toMatchObject({ kind: 'failed' });
      const message = expect.stringMatching(/process was paused, and etcd has not confirmed/);
      expect(host.authority()).toEqual({ ok: false, code: 'LEASE_SUSPENDED', message });
    }
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(host.states.slice(before).map(({ mode, refusal }) => [mode, refusal?.code])).toEqual([
      ['suspended', 'PROCESS_PAUSED'],
      ['suspended', 'LEASE_SUSPENDED'],
      ['held', undefined],
    ]);
  });

  it('does not report etcd for a heartbeat that was sent before the pause and failed in it', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.heartbeatMs);
    host.faults.set('keepAlive', ['request lost']);
    const beating = host.identity.heartbeat();
    stage.pass(2_000);
    host.identity.paused(host.clock.read());
    expect(await beating).toMatchObject({ kind: 'failed' });
    expect(host.authority()).toMatchObject({ ok: false, code: 'PROCESS_PAUSED' });
  });

  it('loses the worker ID when another process took it', async () => {
    const { stage, host } = await heldHost();
    stage.pass(2_000);
    host.identity.paused(host.clock.read());
    stage.etcd.tamper(keys.owner(0), undefined);
    stage.etcd.tamper(keys.owner(0), Buffer.from('other'));
    expect(await host.identity.heartbeat()).toMatchObject({ kind: 'lost' });
    expect(host.authority()).toMatchObject({ ok: false, code: 'LEASE_LOST' });
  });
});

describe('releasing the identity', () => {
  it('refuses immediately, before etcd has answered, and frees the worker ID', async () => {
    const { stage, host } = await heldHost();
    const released = host.identity.release();
    expect(host.authority().ok).toBe(false);
    expect(await released).toBe(true);
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
    expect(stage.ceiling(0).ticks).toBe(wanted(host));
  });

  it('reports when etcd did not confirm it, and does not throw', async () => {
    const { host } = await heldHost();
    host.faults.set('revokeLease', ['request lost']);
    expect(await host.identity.release()).toBe(false);
    expect(host.authority().ok).toBe(false);
  });

  it('a swap of ours that arrives after it changes nothing', async () => {
    const { stage, host } = await heldHost();
    const before = stage.ceiling(0);
    stage.pass(timing.heartbeatMs);
    host.faults.set('transact', ['late']);
    await host.identity.heartbeat();
    await host.identity.release();
    stage.etcd.deliverLate();
    expect(stage.ceiling(0)).toEqual(before);
  });

  it('ends a heartbeat in flight without effect', async () => {
    const { stage, host } = await heldHost();
    stage.pass(timing.heartbeatMs);
    const beating = host.identity.heartbeat();
    await host.identity.release();
    expect(await beating).toEqual({ kind: 'stopped' });
    expect(host.identity.state.mode).toBe('none');
  });
});
