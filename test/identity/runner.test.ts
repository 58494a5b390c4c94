import { afterEach, describe, expect, it } from 'vitest';
import { encodeCeiling } from '../../src/codec/namespace-values.ts';
import { toTicks } from '../../src/core/layout.ts';
import { wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import { IdentityRunner } from '../../src/identity/runner.ts';
import { guardedReading } from '../support/guarded-reading.ts';
import type { Fault } from './fake-etcd.ts';
import { type Host, keys, layout, Stage, timing } from './stage.ts';

/** Timers on the stage's time line: `pass` fires them in order and lets everything that they start settle. */
class Timers {
  readonly #stage: Stage;
  readonly #waiting = new Set<{ atMs: number; fire: () => void }>();

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  sleep = (ms: number, signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      const timer = { atMs: this.#stage.nowMs + ms, fire: resolve };
      const end = () => {
        this.#waiting.delete(timer);
        resolve();
      };
      if (signal.aborted) return end();
      this.#waiting.add(timer);
      signal.addEventListener('abort', end, { once: true });
    });

  async pass(ms: number): Promise<void> {
    const untilMs = this.#stage.nowMs + ms;
    await settle();
    for (;;) {
      const next = [...this.#waiting].sort((a, b) => a.atMs - b.atMs)[0];
      if (!next || next.atMs > untilMs) break;
      this.#stage.nowMs = next.atMs;
      this.#waiting.delete(next);
      next.fire();
      await settle();
    }
    this.#stage.nowMs = untilMs;
    await settle();
  }

  get count(): number {
    return this.#waiting.size;
  }
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

/** What a test runs, which is stopped after it. */
let kept: { readonly stop: AbortController; readonly done: Promise<unknown> } | undefined;

afterEach(async () => {
  kept?.stop.abort();
  if (kept !== undefined) expect(await kept.done).toBe('stopped');
  kept = undefined;
});

async function opened(): Promise<{ readonly stage: Stage; readonly host: Host }> {
  const stage = await Stage.open();
  return { stage, host: await stage.host() };
}

async function running(onStage?: Stage, asHost?: Host, measureDrift = async () => {}) {
  const stage = onStage ?? (await Stage.open());
  const host = asHost ?? (await stage.host());
  const timers = new Timers(stage);
  const stop = new AbortController();
  const anchors: number[] = [];
  const runner = new IdentityRunner({
    identity: host.identity,
    timing,
    readClock: () => guardedReading(host.clock.read(), host.clock.verdict),
    resetClockAnchor: () => anchors.push(stage.nowMs),
    measureDrift,
    sleep: timers.sleep,
    random: () => 0.5,
    releaseLimitMs: 2_000,
  });
  const done = runner.run(stop.signal).then(
    () => 'stopped' as const,
    (error: unknown) => error,
  );
  kept = { stop, done };
  await timers.pass(0);
  return { stage, host, timers, stop, runner, done, anchors };
}

describe('keeping an identity', () => {
  it('acquires immediately and holds it by heartbeats for as long as etcd answers', async () => {
    const { host, timers } = await running();
    const { fence } = host.identity.state;
    await timers.pass(120_000);
    expect(host.authority()).toMatchObject({ ok: true, fence });
    expect(host.states.map(({ mode }) => mode)).toEqual(['acquiring', 'held']);
  });

  it('waits for a ceiling that is ahead in short steps, without holding a lease', async () => {
    const stage = await Stage.open();
    const host = await stage.host({ staticWorkerId: 1 });
    const ahead = toTicks(layout, wallMs(host.clock.read().wall + 20_000));
    stage.etcd.tamper(keys.ceiling(1), encodeCeiling({ ticks: ahead, nonce: 'other' }));
    const { timers } = await running(stage, host);
    await timers.pass(19_000);
    expect(stage.etcd.peek(keys.owner(1))).toBeUndefined();
    await timers.pass(1_000);
    expect(host.authority().ok).toBe(true);
  });

  it('a failed heartbeat is repeated each second, so that a single failure stops nothing', async () => {
    const { host, timers } = await running();
    host.faults.set('keepAlive', Array<Fault>(4).fill('request lost'));
    await timers.pass(60_000);
    expect(host.states.map(({ mode }) => mode)).toEqual(['acquiring', 'held']);
  });

  it('a heartbeat without an answer for 4 s is repeated in time for the own deadline', async () => {
    const stage = await Stage.open();
    let silentUntilMs = 0;
    const host: Host = await stage.host({}, async () => {
      if (stage.nowMs >= silentUntilMs) return { fault: 'pass' };
      await timers.sleep(4_000, new AbortController().signal);
      return { fault: 'request lost' };
    });
    const { timers } = await running(stage, host);
    silentUntilMs = timing.heartbeatMs + 4_000;
    await timers.pass(60_000);
    expect(host.states.map(({ mode }) => mode)).toEqual(['acquiring', 'held']);
  });

  it('a deadline between two checks of the patrol takes effect on time', async () => {
    const stage = await Stage.open();
    const lateMs = 130;
    const host = await stage.host({}, async (name) => {
      if (name === 'range') stage.pass(lateMs);
      return { fault: name === 'keepAlive' ? 'request lost' : 'pass' };
    });
    const { timers } = await running(stage, host);
    await timers.pass(lateMs + timing.refuseAfterMs - 1);
    expect(host.states.at(-1)).toMatchObject({ mode: 'held' });
    await timers.pass(1);
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended' });
  });

  it('an outage of etcd suspends after 15 s, and the same identity resumes', async () => {
    const { host, timers } = await running();
    const { fence } = host.identity.state;
    host.faults.set('keepAlive', Array<Fault>(10).fill('request lost'));
    await timers.pass(timing.refuseAfterMs);
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended' });
    await timers.pass(10_000);
    expect(host.authority()).toMatchObject({ ok: true, fence });
  });

  it('the deadline takes effect on time even if the heartbeat in flight never ends', async () => {
    const stage = await Stage.open();
    let silent = false;
    const host = await stage.host({}, async () => {
      if (silent) await new Promise(() => {});
      return { fault: 'pass' };
    });
    const { timers, stop, done } = await running(stage, host);
    silent = true;
    await timers.pass(timing.refuseAfterMs);
    expect(host.states.at(-1)).toMatchObject({ mode: 'suspended' });
    stop.abort();
    await timers.pass(2_000);
    expect(await done).toBe('stopped');
  });

  it('an etcd that refuses writes is asked about once a second, and the same term resumes within 2 s of the repair', async () => {
    const stage = await Stage.open();
    let calls = 0;
    const host = await stage.host({}, async (name) => {
      if (name === 'transact') calls += 1;
      return { fault: 'pass' };
    });
    const { timers } = await running(stage, host);
    const { fence } = host.identity.state;
    stage.etcd.fill();
    await timers.pass(timing.reserveMs + timing.heartbeatMs);
    expect(host.authority()).toMatchObject({ ok: false, code: 'RESERVATION_EXHAUSTED' });
    calls = 0;
    await timers.pass(120_000);
    expect(calls).toBeGreaterThan(100);
    expect(calls).toBeLessThanOrEqual(121);
    stage.etcd.free();
    await timers.pass(2_000);
    expect(host.authority()).toMatchObject({ ok: true, fence });
  });

  it.each([false, true])(
    'a worker that starts while etcd refuses writes asks about once a second, and holds a worker ID within 2 s of the repair (one write applied: %s)',
    async (appliesOne) => {
      const stage = await Stage.open();
      let grants = 0;
      const host = await stage.host({}, async (name) => {
        if (name === 'grantLease') grants += 1;
        return { fault: 'pass' };
      });
      stage.etcd.fill(appliesOne);
      const { timers } = await running(stage, host);
      await timers.pass(120_000);
      expect(host.authority()).toMatchObject({ code: 'NO_IDENTITY', message: expect.stringContaining('ETCD_REFUSED') });
      expect(grants).toBeGreaterThan(100);
      expect(grants).toBeLessThanOrEqual(121);
      stage.etcd.free();
      await timers.pass(2_000);
      expect(host.authority().ok).toBe(true);
    },
  );

  it('a worker whose claims are refused, though its leases are granted, says so and sends about one a second', async () => {
    const { stage, host } = await opened();
    const { transact } = stage.etcd;
    let claims = 0;
    stage.etcd.transact = () => {
      claims += 1;
      throw new IdallocError('ETCD_REFUSED', 'permission denied');
    };
    const { timers } = await running(stage, host);
    await timers.pass(60_000);
    expect(host.authority()).toMatchObject({
      code: 'NO_IDENTITY',
      message: expect.stringContaining('permission denied'),
    });
    expect(claims).toBeGreaterThan(50);
    expect(claims).toBeLessThanOrEqual(61);
    stage.etcd.transact = transact;
    await timers.pass(2_000);
    expect(host.authority().ok).toBe(true);
  });

  it('a lost identity is replaced by a new term', async () => {
    const { stage, host, timers } = await running();
    stage.etcd.tamper(keys.owner(0), undefined);
    await timers.pass(timing.heartbeatMs + 2_000);
    expect(host.states.map(({ mode }) => mode)).toEqual(['acquiring', 'held', 'lost', 'none', 'acquiring', 'held']);
  });

  it('an ejected clock releases the identity within 50 ms; once steady, it is watched for 1.5 s before the next acquire', async () => {
    const { stage, host, timers, anchors } = await running();
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_BACKWARD', detail: 'back' };
    await timers.pass(50);
    expect(host.authority()).toMatchObject({ ok: false, code: 'CLOCK_BACKWARD' });
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
    expect(anchors).toEqual([50]);
    host.clock.verdict = { kind: 'steady' };
    await timers.pass(1_499);
    expect(host.authority().ok).toBe(false);
    await timers.pass(1);
    expect(host.authority().ok).toBe(true);
  });

  it('a clock that goes wrong again is watched for 1.5 s from then on', async () => {
    const { host, timers } = await running();
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_BACKWARD', detail: 'back' };
    await timers.pass(1_000);
    host.clock.verdict = { kind: 'steady' };
    await timers.pass(1_000);
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_FROZEN', detail: 'stands' };
    await timers.pass(50);
    expect(host.authority()).toMatchObject({ ok: false, code: 'CLOCK_FROZEN' });
    host.clock.verdict = { kind: 'steady' };
    await timers.pass(1_400);
    expect(host.authority().ok).toBe(false);
    await timers.pass(100);
    expect(host.authority().ok).toBe(true);
  });

  it('a clock jump is reported as such, even if by its time the deadline has passed', async () => {
    const { host, timers } = await running();
    host.clock.stepMs = 3_600_000;
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_FORWARD', detail: 'ahead' };
    await timers.pass(50);
    expect(host.states.map(({ mode }) => mode)).toEqual(['acquiring', 'held', 'none']);
  });

  it('asks the brokers for the time each minute while it holds an identity, and stops even if none answers', async () => {
    const { stage, host } = await opened();
    const asked: number[] = [];
    const answers = [() => Promise.resolve(), () => Promise.reject(new Error('no broker'))];
    const { timers, stop, done } = await running(stage, host, () => {
      asked.push(stage.nowMs);
      return answers.shift()?.() ?? new Promise(() => {});
    });
    await timers.pass(130_000);
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_DRIFT', detail: 'off' };
    await timers.pass(55_000);
    expect(asked).toEqual([60_000, 120_000]);
    host.clock.verdict = { kind: 'steady' };
    await timers.pass(60_000);
    expect(asked).toEqual([60_000, 120_000, 240_000]);
    stop.abort();
    expect(await done).toBe('stopped');
    expect(timers.count).toBe(0);
  });

  it('a paused process asks etcd immediately, and resumes the same identity', async () => {
    const { host, timers } = await running();
    const { fence } = host.identity.state;
    await timers.pass(1_000);
    host.identity.paused(host.clock.read());
    expect(host.authority()).toMatchObject({ ok: false, code: 'PROCESS_PAUSED' });
    await timers.pass(50);
    expect(host.authority()).toMatchObject({ ok: true, fence });
  });

  it('a call of `wake` makes an ejection take effect immediately', async () => {
    const { stage, host, timers, runner } = await running();
    host.clock.verdict = { kind: 'eject', reason: 'CLOCK_FORWARD', detail: 'ahead' };
    runner.wake();
    await timers.pass(0);
    expect(stage.etcd.peek(keys.owner(0))).toBeUndefined();
  });

  it('backs off while the pool is exhausted, up to 5 s', async () => {
    const stage = await Stage.open();
    for (const workerId of [0, 1, 2]) stage.etcd.tamper(keys.owner(workerId), Buffer.from('busy'));
    const reads: number[] = [];
    const host = await stage.host({}, async (name) => {
      if (name === 'range') reads.push(stage.nowMs);
      return { fault: 'pass' };
    });
    const { timers } = await running(stage, host);
    await timers.pass(20_000);
    expect(reads).toEqual([0, 375, 1_125, 2_625, 5_625, 9_375, 13_125, 16_875]);
    expect(host.authority()).toMatchObject({ ok: false, code: 'POOL_EXHAUSTED' });
  });

  it('stopping releases the identity and leaves no timer', async () => {
    const { stage, host, timers, stop, done } = await running();
    stop.abort();
    expect(await done).toBe('stopped');
    expect([stage.etcd.peek(keys.owner(0)), timers.count]).toEqual([undefined, 0]);
    expect(host.authority()).toMatchObject({ ok: false, message: expect.stringContaining('stopping') });
  });

  it('stopping ends within its limit even if etcd is silent', async () => {
    const stage = await Stage.open();
    const host = await stage.host({}, async (name) => {
      if (name === 'revokeLease') await new Promise(() => {});
      return { fault: 'pass' };
    });
    const { timers, stop, done } = await running(stage, host);
    stop.abort();
    await timers.pass(2_000);
    expect(await done).toBe('stopped');
    expect(host.authority().ok).toBe(false);
  });

  it('a damaged namespace makes it reject', async () => {
    const { stage, host } = await opened();
    stage.etcd.tamper(keys.ceiling(2), undefined);
    const { timers, done } = await running(stage, host);
    kept = undefined; // it has ended by itself
    expect(await done).toMatchObject({ code: 'NAMESPACE_DAMAGED' });
    expect(timers.count).toBe(0);
  });
});
