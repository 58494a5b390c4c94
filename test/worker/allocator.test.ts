import { describe, expect, it } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { decompose, tickStartMs } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { monoMs, type Reading, type Ticks, ticks, wallMs } from '../../src/core/units.ts';
import type { Authority } from '../../src/identity/state.ts';
import type { Allocation } from '../../src/pipeline/ports.ts';
import { LeasedAllocator } from '../../src/worker/allocator.ts';
import { GuardedClock } from '../../src/worker/guarded-clock.ts';
import { guardedReading } from '../support/guarded-reading.ts';

const layout = presetLayout('default');
/** The tick at which these tests begin. */
const T0 = 1_000_000;
const at = (tick: number) => tickStartMs(layout, ticks(tick));

interface Term {
  readonly workerId: number;
  readonly fence: bigint;
  readonly from: number;
  readonly to: number;
}

const TERM: Term = { workerId: 7, fence: 70n, from: T0 - 100, to: T0 + 25_000 };

/**
 * An allocator whose clock moves only while it sleeps (by the time requested), with an authority that tests can change.
 * `onSleep` runs as the sleep begins.
 */
function world(options: { readonly onSleep?: (world: World) => void; readonly term?: Term } = {}) {
  let reading: Reading = { wall: at(T0), mono: monoMs(5_000) };
  const clock = new GuardedClock(() => reading);
  const sleeps: number[] = [];
  let readings = 0;
  const its: World = {
    granted: options.term ?? TERM,
    move: (wallBy, monoBy = wallBy) => {
      reading = { wall: wallMs(reading.wall + wallBy), mono: monoMs(reading.mono + monoBy) };
    },
    resetAnchor: () => clock.resetAnchor(),
    sleeps,
    readings: () => readings,
    allocator: new LeasedAllocator({
      layout,
      datacenterId: 3,
      readClock: () => {
        readings += 1;
        return clock.read();
      },
      authority: () => authorityOf(its.granted),
      random: () => 0,
      sleep: async (delayMs) => {
        sleeps.push(delayMs);
        if (sleeps.length > 20_000) throw new Error('the allocator sleeps endlessly');
        if (options.onSleep) options.onSleep(its);
        else its.move(delayMs);
      },
    }),
  };
  return its;
}

interface World {
  granted: Term | { readonly code: 'NO_IDENTITY' | 'LEASE_SUSPENDED' };
  readonly move: (wallBy: number, monoBy?: number) => void;
  readonly resetAnchor: () => void;
  readonly sleeps: readonly number[];
  readonly readings: () => number;
  readonly allocator: LeasedAllocator;
}

function authorityOf(granted: World['granted']): Authority {
  if ('code' in granted) return { ok: false, code: granted.code, message: 'for a test' };
  const { workerId, fence, from, to } = granted;
  return { ok: true, workerId, fence, reservation: { from: ticks(from), to: ticks(to) } };
}

const idsOf = ({ ranges }: Allocation) => expandIds({ ranges, step: layout.step });
const ticksOf = (allocation: Allocation): Ticks[] => [
  ...new Set(idsOf(allocation).map((id) => decompose(layout, id).ticks)),
];

describe('an allocation', () => {
  it('names the worker, fence and time that its IDs contain', async () => {
    const { allocator } = world();
    const [one] = await allocator.allocate([3]);
    expect(one).toMatchObject({ workerId: 7, fence: 70n, generatedAt: at(T0) });
    const parts = idsOf(one as Allocation).map((id) => decompose(layout, id));
    expect(parts.every(({ worker, datacenter }) => worker === 7 && datacenter === 3)).toBe(true);
  });

  it('is one for each count, in order, all IDs rising', async () => {
    const { allocator } = world();
    const all = [...(await allocator.allocate([5, 1, 4_096])), ...(await allocator.allocate([2]))];
    expect(all.map((one) => idsOf(one).length)).toEqual([5, 1, 4_096, 2]);
    const ids = all.flatMap(idsOf);
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => (a < b ? -1 : 1)));
  });

  it('shares no ID with others that wait at the same time', async () => {
    const { allocator } = world();
    const all = await Promise.all([60_000, 50_000, 70_000].map((count) => allocator.allocate([count])));
    const ids = all.flat().flatMap(idsOf);
    expect(ids).toHaveLength(180_000);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('a large batch', () => {
  it('of 100,000 is 25 ranges or a little more, and waits for its ticks without spinning', async () => {
    const { allocator, sleeps, readings } = world();
    const [batch] = await allocator.allocate([100_000]);
    const ids = idsOf(batch as Allocation);
    expect(new Set(ids).size).toBe(100_000);
    expect(batch?.ranges).toHaveLength(25);
    expect(ids).toEqual(ids.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(sleeps).toHaveLength(16); // the window of 10 ms gave the 9 past ticks; each further tick had to pass
    expect(readings()).toBe(sleeps.length + 1);
  });

  it('uses no future tick, and sleeps for at least a millisecond', async () => {
    const its = world();
    const [batch] = await its.allocator.allocate([100_000]);
    const used = ticksOf(batch as Allocation);
    expect(Math.max(...used)).toBe(T0 + 15);
    expect(Math.min(...its.sleeps)).toBeGreaterThanOrEqual(1);
  });

  it('takes all ticks that have passed when a timer fires late', async () => {
    const its = world({ onSleep: ({ move }) => move(8) });
    await its.allocator.allocate([100_000]);
    expect(its.sleeps).toHaveLength(2);
  });
});

describe('beside smaller ones that want every tick, a large batch', () => {
  /** Time passes by a millisecond, and in each a request for a whole tick comes before anything else. */
  async function saturated(count: number, milliseconds: number) {
    let nowMs = 0;
    const due: { readonly atMs: number; readonly wake: () => void }[] = [];
    const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
    const allocator = new LeasedAllocator({
      layout,
      datacenterId: 3,
      readClock: () => guardedReading({ wall: wallMs(at(T0) + nowMs), mono: monoMs(nowMs) }),
      authority: () => authorityOf(TERM),
      random: () => 0,
      sleep: (delayMs) => new Promise((wake) => due.push({ atMs: nowMs + delayMs, wake })),
    });
    const ids: bigint[] = [];
    let largeAtMs: number | undefined;
    const large = allocator.allocate([count]);
    void large.then(([batch]) => {
      largeAtMs = nowMs;
      ids.push(...idsOf(batch as Allocation));
    });
    let served = 0;
    for (; nowMs < milliseconds; nowMs += 1) {
      const present = due.splice(0); // sleeps that begin in this turn are not due yet
      void allocator.allocate([layout.sequencesPerTick]).then(([batch]) => {
        served += 1;
        ids.push(...idsOf(batch as Allocation));
      });
      for (const one of present) {
        if (one.atMs <= nowMs) one.wake();
        else due.push(one);
      }
      await turn();
    }
    return { ids, largeAtMs, served };
  }

  it('gets an eighth of the IDs, and they are served meanwhile', async () => {
    const { ids, largeAtMs, served } = await saturated(9 * 4_096 + 40 * 512, 100); // nine ticks are there at once
    expect(largeAtMs).toBeLessThanOrEqual(45);
    expect(served).toBeGreaterThan(50);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('a small batch', () => {
  it('gets its IDs immediately while a large one takes every tick that passes', async () => {
    const small: Promise<readonly Allocation[]>[] = [];
    const its = world({
      onSleep: ({ move, allocator }) => {
        small.push(allocator.allocate([1]));
        move(1);
      },
    });
    const [large] = await its.allocator.allocate([60_000]);
    expect(its.sleeps.length).toBe(small.length);
    const ids = [...idsOf(large as Allocation), ...(await Promise.all(small)).flat().flatMap(idsOf)];
    expect(new Set(ids).size).toBe(60_000 + small.length);
  });

  it('waits for its tick beside large ones where the layout can use no earlier tick', async () => {
    const sonyflake = presetLayout('sonyflake');
    let wall = tickStartMs(sonyflake, ticks(T0));
    const allocator = new LeasedAllocator({
      layout: sonyflake,
      datacenterId: 0,
      readClock: () => guardedReading({ wall, mono: monoMs(0) }),
      authority: () => authorityOf({ ...TERM, from: T0 - 1 }),
      random: () => 0,
      sleep: async (delayMs) => {
        wall = wallMs(wall + delayMs);
      },
    });
    const [batch] = await allocator.allocate([600]);
    expect(batch?.ranges.map(({ count }) => count)).toEqual([256, 256, 88]);
  });
});

describe('two IDs in a second', () => {
  const tiny = customLayout({ fields: 'timestamp:32,worker:1,sequence:1', tickMs: 1_000, epochMs: 0 });

  it('are shared by all callers in turn, and no ID is wasted', async () => {
    let wall = wallMs(T0 * 1_000 + 300);
    const woken: (() => void)[] = [];
    const allocator = new LeasedAllocator({
      layout: tiny,
      datacenterId: 0,
      readClock: () => guardedReading({ wall, mono: monoMs(0) }),
      authority: () => authorityOf({ ...TERM, workerId: 1, from: T0 - 1 }),
      random: () => 0,
      sleep: () => new Promise((resolve) => woken.push(resolve)),
    });
    const asked = [2, 1, 2, 1].map((count) => allocator.allocate([count]));
    for (let second = 1; second <= 3; second += 1) {
      wall = wallMs((T0 + second) * 1_000);
      for (const wake of woken.splice(0)) wake();
      for (let turn = 0; turn < 20; turn += 1) await undefined;
    }
    const ids = (await Promise.all(asked)).flat().flatMap(({ ranges }) => expandIds({ ranges, step: tiny.step }));
    expect(new Set(ids).size).toBe(6);
    expect(ids.map((id) => decompose(tiny, id).ticks - T0).sort()).toEqual([0, 0, 1, 1, 2, 2]);
  });
});

describe('a refusal', () => {
  it('comes from the authority, with its code', async () => {
    for (const code of ['NO_IDENTITY', 'LEASE_SUSPENDED'] as const) {
      const its = world();
      its.granted = { code };
      await expect(its.allocator.allocate([1])).rejects.toMatchObject({ code });
    }
  });

  it('fails a waiting batch when the authority ends meanwhile', async () => {
    const its = world({
      onSleep: (world) => {
        world.move(1);
        world.granted = { code: 'LEASE_SUSPENDED' };
      },
    });
    await expect(its.allocator.allocate([100_000])).rejects.toMatchObject({ code: 'LEASE_SUSPENDED' });
    expect(its.sleeps).toHaveLength(1);
  });

  it('comes from the clock, before anything is taken', async () => {
    const its = world();
    its.move(1);
    await its.allocator.allocate([1]);
    its.move(-10, 1);
    await expect(its.allocator.allocate([1])).rejects.toMatchObject({ code: 'CLOCK_BACKWARD' });
    its.move(1_000);
    await expect(its.allocator.allocate([1])).rejects.toMatchObject({ code: 'CLOCK_BACKWARD' });
  });

  it('fails a waiting batch when the clock goes back meanwhile', async () => {
    const its = world({ onSleep: ({ move }) => move(-10, 1) });
    await expect(its.allocator.allocate([100_000])).rejects.toMatchObject({ code: 'CLOCK_BACKWARD' });
  });

  it('is RESERVATION_EXHAUSTED when the reservation ends before the batch, however long it waits', async () => {
    const its = world({ term: { ...TERM, to: T0 + 3 } });
    await expect(its.allocator.allocate([100_000])).rejects.toMatchObject({ code: 'RESERVATION_EXHAUSTED' });
    expect(its.sleeps.length).toBeLessThan(5);
  });

  it('is LAYOUT_EXHAUSTED at the end of the layout', async () => {
    const its = world({ term: { ...TERM, to: layout.endTicks + 25_000 } });
    its.move(layout.endTicks - 1 - T0);
    its.resetAnchor();
    const [last] = await its.allocator.allocate([40_960]);
    expect(Math.max(...ticksOf(last as Allocation))).toBe(layout.endTicks - 1);
    its.move(5);
    await expect(its.allocator.allocate([1])).rejects.toMatchObject({ code: 'LAYOUT_EXHAUSTED' });
  });

  it('comes after a bounded wait when the reservation lies in the future', async () => {
    const its = world({ term: { ...TERM, from: T0 + 60_000, to: T0 + 90_000 }, onSleep: ({ move }) => move(1) });
    await expect(its.allocator.allocate([1])).rejects.toMatchObject({ code: 'RESERVATION_EXHAUSTED' });
    expect(its.sleeps.length).toBeLessThan(10);
  });
});

describe('a small step back', () => {
  it('is waited out, and nothing is allocated before the clock catches up', async () => {
    const its = world();
    await its.allocator.allocate([1]);
    its.move(-9, 0);
    const [batch] = await its.allocator.allocate([1]);
    expect(its.sleeps).toEqual([9]);
    expect(ticksOf(batch as Allocation)).toEqual([T0 - 9]);
    expect(batch?.generatedAt).toBe(at(T0));
  });
});

describe('terms', () => {
  it('a new one starts at its reservation, above all of the previous one', async () => {
    const its = world();
    const [before] = await its.allocator.allocate([10]);
    its.granted = { ...TERM, fence: 80n, from: T0 + 2, to: T0 + 25_000 };
    its.move(5);
    const [after] = await its.allocator.allocate([10]);
    expect(after).toMatchObject({ workerId: 7, fence: 80n });
    expect(ticksOf(after as Allocation)).toEqual([T0 + 2]);
    expect((idsOf(before as Allocation).at(-1) as bigint) < (idsOf(after as Allocation)[0] as bigint)).toBe(true);
  });

  it('a new one with another worker ID may use ticks that the old one used', async () => {
    const its = world();
    await its.allocator.allocate([10]);
    its.granted = { ...TERM, workerId: 8, fence: 80n, from: T0 - 50 };
    const [after] = await its.allocator.allocate([1]);
    expect(after).toMatchObject({ workerId: 8, fence: 80n });
    expect(decompose(layout, idsOf(after as Allocation)[0] as bigint)).toMatchObject({ worker: 8, ticks: T0 - 9 });
  });

  it('a new one under the same fence, as after a wipe of etcd, allocates IDs of its own worker ID', async () => {
    const its = world();
    await its.allocator.allocate([1]);
    its.granted = { ...TERM, workerId: 8 };
    const [batch] = await its.allocator.allocate([1]);
    expect(decompose(layout, batch?.ranges[0]?.first ?? 0n).worker).toBe(8);
  });

  it.each([
    ['the same worker ID', { fence: 80n }],
    ['another worker ID', { workerId: 8, fence: 80n }],
    ['another worker ID under the same fence, as after etcd was wiped', { workerId: 8 }],
  ])('two of them never share a batch (%s)', async (_, next) => {
    const its = world({
      onSleep: (world) => {
        world.move(1);
        world.granted = { ...TERM, ...next, from: T0 };
      },
    });
    await expect(its.allocator.allocate([100_000])).rejects.toMatchObject({ code: 'LEASE_LOST' });
  });

  it('one that is suspended and resumed continues where it stopped', async () => {
    const its = world();
    const [before] = await its.allocator.allocate([10]);
    its.granted = { code: 'LEASE_SUSPENDED' };
    await expect(its.allocator.allocate([1])).rejects.toMatchObject({ code: 'LEASE_SUSPENDED' });
    its.granted = TERM;
    const [after] = await its.allocator.allocate([1]);
    expect(idsOf(after as Allocation)[0]).toBe((idsOf(before as Allocation).at(-1) as bigint) + 1n);
  });

  it('an extended reservation is used immediately', async () => {
    const its = world({
      term: { ...TERM, to: T0 + 3 },
      onSleep: (world) => {
        world.move(1);
        world.granted = TERM;
      },
    });
    const [batch] = await its.allocator.allocate([100_000]);
    expect(idsOf(batch as Allocation)).toHaveLength(100_000);
  });
});
