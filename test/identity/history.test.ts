import { describe, expect, it } from 'vitest';
import { decodeCeiling } from '../../src/codec/namespace-values.ts';
import { anchorGuard, observe } from '../../src/core/clock-guard.ts';
import { toTicks } from '../../src/core/layout.ts';
import type { GuardedReading } from '../../src/identity/state.ts';
import { examplesOf } from '../support/examples.ts';
import { guardedReading } from '../support/guarded-reading.ts';
import type { Fault } from './fake-etcd.ts';
import { type Host, type HostClock, keys, layout, Stage } from './stage.ts';

const FAULTS: readonly Fault[] = ['request lost', 'answer lost', 'late', 'doubled', 'asked twice'];

/** A generator of pseudo-random numbers from a seed (xorshift, 32 bits). */
function seeded(seed: number): () => number {
  let state = (seed * 0x9e3779b1) | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** The clock guard of a host, with a new anchor after each ejection, as the runner does it. */
function guarded(clock: HostClock): () => GuardedReading {
  let guard = anchorGuard(clock.read());
  return () => {
    const reading = clock.read();
    const seen = observe(guard, reading);
    guard = seen.verdict.kind === 'eject' ? anchorGuard(reading) : seen.guard;
    return guardedReading(reading, seen.verdict);
  };
}

interface Reserved {
  readonly workerId: number;
  readonly fence: bigint;
  readonly from: number;
  readonly to: number;
}

/**
 * Three hosts compete for three worker IDs while messages are lost, doubled, late and delayed, processes pause, crash
 * and restart, and wall clocks step. After every action the whole history must still be correct.
 */
class History {
  readonly #random: () => number;
  readonly #stage: Stage;
  readonly #faultRate: number;
  readonly #onTheirWay: Array<() => void> = [];
  readonly #hosts: Array<{ host: Host; busy: boolean }> = [];
  readonly #reserved = new Map<string, Reserved>();
  /** Errors of places where a failed assertion would look like a fault of etcd. */
  readonly #faults: unknown[] = [];
  issuedTicks = 0;

  constructor(stage: Stage, seed: number) {
    this.#stage = stage;
    this.#random = seeded(seed);
    this.#faultRate = this.#random() < 0.5 ? 0.05 : 0.3;
    stage.etcd.onPut = (now, before) => {
      if (keys.parse(now.key)?.kind !== 'ceiling' || !before) return;
      if (decodeCeiling(now.value).ticks <= decodeCeiling(before.value).ticks) this.#faults.push(`${now.key} fell`);
    };
  }

  get terms(): number {
    return this.#reserved.size;
  }

  async run(actions: number): Promise<void> {
    for (const index of [0, 1, 2]) await this.#start(index);
    for (let action = 0; action < actions; action += 1) {
      await this.#act();
      await new Promise((resolve) => setImmediate(resolve));
      for (const { host } of this.#hosts) this.#issue(host);
      expect(this.#faults).toEqual([]);
    }
  }

  async #act(): Promise<void> {
    const index = this.#upTo(this.#hosts.length);
    const slot = this.#hosts[index];
    if (!slot) return;
    const dice = this.#random();
    if (dice < 0.55) this.#onTheirWay.splice(this.#upTo(this.#onTheirWay.length), 1)[0]?.();
    else if (dice < 0.8) this.#begin(slot);
    else if (dice < 0.94) this.#stage.pass(this.#random() * (this.#random() < 0.95 ? 1_000 : 40_000));
    else if (dice < 0.96) this.#stage.etcd.deliverLate(this.#upTo(this.#stage.etcd.lateCount));
    else if (dice < 0.97) slot.host.clock.stepMs += (this.#random() - 0.5) * (this.#random() < 0.5 ? 15 : 60_000);
    else if (dice < 0.985) void slot.host.identity.release();
    else await this.#start(index);
  }

  #upTo(count: number): number {
    return Math.floor(this.#random() * count);
  }

  /** Starts a step of a host, unless one is in progress. */
  #begin(slot: { host: Host; busy: boolean }): void {
    if (slot.busy) return;
    slot.busy = true;
    const { identity } = slot.host;
    const step = identity.state.workerId === undefined ? identity.acquire() : identity.heartbeat();
    step.then(
      () => {
        slot.busy = false;
      },
      (error: unknown) => this.#faults.push(error),
    );
  }

  /** A new process replaces one that crashed, whose messages may still arrive. */
  async #start(index: number): Promise<void> {
    const clock = this.#stage.newClock();
    const settings = { readClock: guarded(clock), random: this.#random };
    const link = async () => {
      await this.#travel();
      const fault = this.#random() < this.#faultRate ? FAULTS[this.#upTo(FAULTS.length)] : undefined;
      return { fault: fault ?? ('pass' as const), back: this.#travel() };
    };
    this.#hosts[index] = { host: await this.#stage.host(settings, link, clock), busy: false };
  }

  /** A message in flight, which arrives by a later action. */
  #travel(): Promise<void> {
    return new Promise((resolve) => this.#onTheirWay.push(resolve));
  }

  /** Uses the current tick, as an allocation would, and checks it against all earlier reservations. */
  #issue(host: Host): void {
    const now = host.clock.read();
    const authority = host.identity.authority(now);
    if (!authority.ok) return;
    const { workerId, fence, reservation } = authority;
    this.#reserve({ workerId, fence, ...reservation });
    const tick = toTicks(layout, now.wall);
    if (tick < reservation.from || tick >= reservation.to) return;
    expect(tick, 'an issued tick lies below the stored ceiling').toBeLessThan(this.#stage.ceiling(workerId).ticks);
    this.issuedTicks += 1;
  }

  /** Reservations of one worker ID follow each other in the order of their fences, so IDs rise across holders. */
  #reserve(now: Reserved): void {
    this.#reserved.set(`${now.workerId}/${now.fence}`, now);
    for (const other of this.#reserved.values()) {
      if (other.workerId !== now.workerId || other.fence === now.fence) continue;
      const [earlier, later] = other.fence < now.fence ? [other, now] : [now, other];
      expect(earlier.to, `worker ${now.workerId}: fences ${earlier.fence}, ${later.fence}`).toBeLessThanOrEqual(
        later.from,
      );
    }
  }
}

describe('a history under faults', () => {
  const seeds = examplesOf(Array.from({ length: 40 }, (_, index) => index + 1));

  it.each(seeds)('of seed %i keeps reservations apart, in order, and below ceilings that only rise', async (seed) => {
    const history = new History(await Stage.open(), seed);
    await history.run(2_000);
    expect(history.terms).toBeGreaterThan(3);
    expect(history.issuedTicks).toBeGreaterThan(20);
  });
});
