import { describe, expect, it } from 'vitest';
import { MAX_PAUSE_MS } from '../../src/core/clock-guard.ts';
import { monoMs, type Reading, wallMs } from '../../src/core/units.ts';
import type { AllocatorOptions } from '../../src/worker/allocator.ts';
import { GuardedClock } from '../../src/worker/guarded-clock.ts';
import { WorkerStage } from '../support/worker-stage.ts';

/** A guarded clock that the test reads and moves, with the pauses that it reports. */
function world() {
  let reading: Reading = { wall: wallMs(1_780_416_300_000), mono: monoMs(5_000) };
  const clock = new GuardedClock(() => reading);
  const pauses: number[] = [];
  const start = reading;
  clock.onPause(({ mono }) => pauses.push(mono - start.mono));
  const pass = (wallBy: number, monoBy = wallBy) => {
    reading = { wall: wallMs(reading.wall + wallBy), mono: monoMs(reading.mono + monoBy) };
    return clock.read().verdict;
  };
  return { clock, pauses, pass };
}

describe('the clock of a worker', () => {
  it('reports a pause of the process before it returns the reading', () => {
    const { pass, pauses } = world();
    pass(50);
    pass(MAX_PAUSE_MS + 1);
    expect(pauses).toEqual([50 + MAX_PAUSE_MS + 1]);
    pass(50);
    expect(pauses).toHaveLength(1);
  });

  it('does not report garbage collection or a busy machine as a pause', () => {
    const { pass, pauses } = world();
    for (const ms of [50, 300, 50, 1_000, MAX_PAUSE_MS]) pass(ms);
    expect(pauses).toEqual([]);
  });

  it('measures a pause by the clock that advanced more', () => {
    const { pass, pauses } = world();
    expect(pass(1_060, 200)).toEqual({ kind: 'steady' });
    expect(pauses).toHaveLength(1);
  });

  it('reports a jump of the wall clock as such, not as a pause', () => {
    const { pass, pauses } = world();
    expect(pass(3_600_000, 50)).toMatchObject({ kind: 'eject', reason: 'CLOCK_FORWARD' });
    expect(pass(50)).toMatchObject({ kind: 'eject', reason: 'CLOCK_FORWARD' });
    expect(pauses).toEqual([]);
  });

  it("is trusted once a broker's clock agrees, until it is ejected", () => {
    const { clock, pass } = world();
    expect(clock.trusted()).toBeUndefined();
    const sent = wallMs(0);
    clock.recordDrift({ broker: '0', sent, received: sent, appended: sent });
    expect(clock.trusted()).toBe(clock.read().reading.wall);
    pass(3_600_000, 50);
    expect(clock.trusted()).toBeUndefined();
  });

  it('shows the drift against a broker until it has not answered for ten minutes', () => {
    const { clock, pass } = world();
    const sent = wallMs(0);
    const heard = (broker: string) => clock.recordDrift({ broker, sent, received: sent, appended: sent });
    heard('0');
    pass(599_999);
    heard('1');
    expect(clock.driftByBroker().map(([broker]) => broker)).toEqual(['0', '1']);
    pass(1);
    expect(clock.driftByBroker().map(([broker]) => broker)).toEqual(['1']);
  });

  it('forgets the drift when its anchor is reset', () => {
    const { clock, pass } = world();
    const sent = wallMs(0);
    clock.recordDrift({ broker: '0', sent, received: sent, appended: wallMs(5_000) });
    expect(pass(50)).toMatchObject({ kind: 'eject', reason: 'CLOCK_DRIFT' });
    clock.resetAnchor();
    expect(pass(50)).toEqual({ kind: 'steady' });
    expect(clock.drift()).toBeUndefined();
  });
});

describe('the clock by which a worker allocates', () => {
  it('is the guarded one: it is ejected by a step back that nobody has read yet', async () => {
    const stage = new WorkerStage();
    const { runtime } = stage;
    stage.start({}, 'instance');
    await stage.pass(10_000);
    const { readClock } = stage.allocators.get('instance') as AllocatorOptions;
    expect(readClock().verdict).toEqual({ kind: 'steady' });
    const wallMs = runtime.wallMs.bind(runtime);
    runtime.wallMs = () => wallMs() - 20;
    expect(readClock().verdict).toMatchObject({ kind: 'eject', reason: 'CLOCK_BACKWARD' });
    await stage.stop();
  });

  it('has a type of its own: an allocator with a plain clock does not compile', () => {
    const reading: Reading = { wall: wallMs(1), mono: monoMs(1) };
    // @ts-expect-error no guard has judged this reading
    const readClock: AllocatorOptions['readClock'] = () => ({ reading, verdict: { kind: 'steady' } });
    expect(readClock().reading).toBe(reading);
  });
});
