import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  anchorGuard,
  type ClockGuard,
  certainLeadMs,
  clockReader,
  driftInterval,
  driftVerdict,
  noDrift,
  observe,
  recordDrift,
  type Verdict,
} from '../../src/core/clock-guard.ts';
import { monoMs, type Reading, wallMs } from '../../src/core/units.ts';

const WALL = 1_780_416_300_000;
const MONO = 5_000.25;

/** A reading `wall` and `mono` milliseconds after the anchor, on the wall clock and on the monotonic one. */
const reading = (wall: number, mono: number): Reading => ({ wall: wallMs(WALL + wall), mono: monoMs(MONO + mono) });

/** Shows readings to a fresh guard, one after the other; each is [wall, mono] since the anchor. */
function watch(...readings: readonly (readonly [number, number])[]): Verdict[] {
  let guard: ClockGuard = anchorGuard(reading(0, 0));
  return readings.map(([wall, mono]) => {
    const seen = observe(guard, reading(wall, mono));
    guard = seen.guard;
    return seen.verdict;
  });
}

const kinds = (verdicts: readonly Verdict[]): string[] =>
  verdicts.map((verdict) => (verdict.kind === 'eject' ? verdict.reason : verdict.kind));

describe('the clock guard', () => {
  it('is steady while both clocks advance together, however the wall clock is rounded', () => {
    const gaps = fc.array(fc.double({ min: 0, max: 5000, noNaN: true }), { minLength: 1, maxLength: 50 });
    fc.assert(
      fc.property(gaps, (steps) => {
        let mono = 0;
        const verdicts = watch(
          ...steps.map((step): [number, number] => {
            mono += step;
            return [Math.floor(mono), mono];
          }),
        );
        expect(new Set(kinds(verdicts))).toEqual(new Set(['steady']));
      }),
    );
  });

  it('ejects on a step back of exactly 10 ms', () => {
    expect(kinds(watch([100, 100], [90, 100]))).toEqual(['steady', 'CLOCK_BACKWARD']);
  });

  it('waits out a step back of 9 ms until the wall clock shows its old time again', () => {
    const verdicts = watch([100, 100], [91, 100], [99, 108], [100, 109]);
    expect(kinds(verdicts)).toEqual(['steady', 'wait', 'wait', 'steady']);
    expect(verdicts[1]).toEqual({ kind: 'wait', untilWall: WALL + 100 });
    expect(verdicts[2]).toEqual({ kind: 'wait', untilWall: WALL + 100 });
  });

  it('ejects when small steps back add up to 10 ms below the highest time seen', () => {
    expect(kinds(watch([100, 100], [95, 100], [90, 100]))).toEqual(['steady', 'wait', 'CLOCK_BACKWARD']);
  });

  it('ejects on a step back of exactly 10 ms that hides behind the time passed', () => {
    expect(kinds(watch([100, 100], [590, 600]))).toEqual(['steady', 'CLOCK_BACKWARD']);
    expect(kinds(watch([100, 100], [591, 600]))).toEqual(['steady', 'steady']);
  });

  it('ejects on a step back of 10 ms or more, waits if the time passed hides it exactly, and ejects on no smaller one', () => {
    const wholeMs = fc.integer({ min: 0, max: 900 });
    fc.assert(
      fc.property(wholeMs, wholeMs, fc.integer({ min: 0, max: 900 }), (before, between, back) => {
        const [, verdict] = watch([before, before], [before + between - back, before + between]);
        const exactlyHidden = back >= 10 && back === between;
        expect(verdict?.kind === 'eject').toBe(back >= 10 && !exactlyHidden);
        expect(verdict?.kind === 'wait').toBe(exactlyHidden || (back < 10 && back > between));
      }),
    );
  });

  it('detects each step back of 10 ms or more, even if the time between two readings hides it exactly', () => {
    const wholeMs = fc.integer({ min: 0, max: 1_500 });
    const property = fc.property(wholeMs, wholeMs, fc.integer({ min: 10, max: 1_500 }), fc.boolean(), (...drawn) => {
      const [before, between, step, hidden] = drawn;
      const back = hidden ? Math.max(10, between) : step;
      const passed = hidden ? back : between;
      const wall = before + passed - back;
      const verdicts = watch([before, before], [wall, before + passed], [wall + 50, before + passed + 50]);
      expect(kinds(verdicts).at(-1)).toBe('CLOCK_BACKWARD');
      expect(verdicts[1]?.kind).not.toBe('steady');
    });
    fc.assert(property, { examples: [[100, 50, 50, true]] });
  });

  it('reports how far it went back, even if that was hidden exactly', () => {
    const [, doubt, verdict] = watch([100, 100], [100, 150.4], [130, 180.4]);
    expect(doubt).toEqual({ kind: 'wait', untilWall: WALL + 101 });
    const detail = 'the wall clock moved by 0 ms while 50.4 ms passed, which hides a step back';
    expect(verdict).toEqual({ kind: 'eject', reason: 'CLOCK_BACKWARD', detail });
  });

  it('ejects when the wall clock gained more than 1000 ms since the anchor, in one step or many', () => {
    expect(kinds(watch([1100, 100], [1101, 100]))).toEqual(['steady', 'CLOCK_FORWARD']);
    expect(kinds(watch([600, 100], [1200, 200], [1301, 300]))).toEqual(['steady', 'steady', 'CLOCK_FORWARD']);
  });

  it('ejects when the wall clock has stopped for exactly 1000 ms', () => {
    const stand = Array.from({ length: 125 }, (_, at) => [100, 100 + (at + 1) * 8] as const);
    const verdicts = kinds(watch([100, 100], ...stand));
    expect(verdicts.slice(0, -1).every((kind) => kind === 'steady')).toBe(true);
    expect(verdicts.at(-1)).toBe('CLOCK_FROZEN');
  });

  it('reports it as frozen after three equal readings, each at least 10 ms after the previous one', () => {
    expect(kinds(watch([100, 100], [100, 110], [100, 120]))).toEqual(['steady', 'wait', 'CLOCK_FROZEN']);
    expect(kinds(watch([100, 100], [100, 1100], [100, 1150]))).toEqual(['steady', 'wait', 'CLOCK_FROZEN']);
    expect(kinds(watch([100, 100], [100, 109.9]))).toEqual(['steady', 'steady']);
    expect(kinds(watch([100, 100], [101, 150]))).toEqual(['steady', 'CLOCK_BACKWARD']);
  });

  it('allocates nothing while a frozen clock looks the same as a step back', () => {
    const doubting = watch([100, 100], [100, 150], [100, 150.1], [100, 159.9], [100, 160]);
    expect(kinds(doubting)).toEqual(['steady', 'wait', 'wait', 'wait', 'CLOCK_FROZEN']);
  });

  it('does not trust a stopped clock again once it runs', () => {
    expect(kinds(watch([100, 100], [100, 150], [150, 150.1]))).toEqual(['steady', 'wait', 'CLOCK_BACKWARD']);
  });

  it('stays ejected, whatever the clocks show later, until it gets a new anchor', () => {
    let guard = observe(anchorGuard(reading(100, 100)), reading(0, 101)).guard;
    for (const later of [reading(200, 200), reading(5000, 5000)]) {
      const seen = observe(guard, later);
      expect(seen.verdict).toMatchObject({ kind: 'eject', reason: 'CLOCK_BACKWARD' });
      guard = seen.guard;
    }
    expect(observe(anchorGuard(reading(5000, 5000)), reading(5001, 5001)).verdict).toEqual({ kind: 'steady' });
  });

  it('reports by how much the clock is wrong', () => {
    const [verdict] = watch([-250, 3.5]);
    expect(verdict).toMatchObject({ detail: 'the wall clock went back by 250 ms' });
  });

  it('rejects readings that are not finite', () => {
    expect(() => anchorGuard(reading(Number.NaN, 0))).toThrow(RangeError);
    expect(() => observe(anchorGuard(reading(0, 0)), reading(1, Number.NaN))).toThrow(RangeError);
    expect(() => observe(anchorGuard(reading(0, 0)), reading(Number.POSITIVE_INFINITY, 1))).toThrow(RangeError);
  });
});

describe('broker drift', () => {
  /** Answers of brokers against which our clock is ahead by `ahead` ms; each answer takes 20 ms. */
  const answers = (...ahead: readonly number[]) =>
    ahead.reduce((state, ms, broker) => {
      const sent = wallMs(WALL);
      const sample = { broker: `${broker}`, sent, received: wallMs(WALL + 20), appended: wallMs(WALL + 10 - ms) };
      return recordDrift(state, sample);
    }, noDrift);
  const kindOf = (...ahead: readonly number[]): string => kinds([driftVerdict(answers(...ahead))])[0] ?? '';

  it.each([
    ['ahead by the least that it can be', -70, -60, 60],
    ['behind by the least that it can be', 60, 70, -60],
    ['right while it may be', -1, 60, 0],
  ])("counts a broker's clock as %s", (_, lowMs, highMs, leadMs) => {
    expect(certainLeadMs({ lowMs, highMs })).toBe(leadMs);
  });

  it('is unknown before the first answer, and steady', () => {
    expect(driftInterval(noDrift)).toBeUndefined();
    expect(driftVerdict(noDrift)).toEqual({ kind: 'steady' });
  });

  it('lies between the sending and the receipt of an answer', () => {
    expect(driftInterval(answers(0))).toEqual({ lowMs: -10, highMs: 10 });
    expect(driftInterval(answers(700))).toEqual({ lowMs: 690, highMs: 710 });
  });

  it('ejects only when the whole interval is beyond 1000 ms, on either side', () => {
    expect(kindOf(1010)).toBe('steady');
    expect(kindOf(1011)).toBe('CLOCK_DRIFT');
    expect(kindOf(-1010)).toBe('steady');
    expect(kindOf(-1011)).toBe('CLOCK_DRIFT');
  });

  it('is judged by the median broker: one that is off, or one of two, does not eject', () => {
    expect(kindOf(0, 5000, 0)).toBe('steady');
    expect(kindOf(5000, 0)).toBe('steady');
    expect(kindOf(5000, 0, 5000)).toBe('CLOCK_DRIFT');
    expect(kindOf(-5000, 0, -5000, -5000)).toBe('CLOCK_DRIFT');
  });

  it('counts the last answer of each broker alone', () => {
    const sent = wallMs(WALL);
    const later = { broker: '0', sent, received: sent, appended: sent };
    expect(driftVerdict(recordDrift(answers(5000), later))).toEqual({ kind: 'steady' });
  });

  it('ignores answers without a usable time', () => {
    const sent = wallMs(WALL);
    for (const useless of [
      { sent, received: sent, appended: wallMs(-1) },
      { sent, received: wallMs(WALL - 1), appended: sent },
      { sent, received: sent, appended: wallMs(Number.NaN) },
    ]) {
      expect(recordDrift(noDrift, { broker: '0', ...useless })).toBe(noDrift);
    }
  });

  it('remembers 64 brokers at most, the ones heard from last', () => {
    const sent = wallMs(WALL);
    const full = answers(...Array.from({ length: 64 }, () => 0));
    const again = recordDrift(full, { broker: '0', sent, received: sent, appended: sent });
    const more = recordDrift(again, { broker: 'new', sent, received: sent, appended: sent });
    const kept = [...Array.from({ length: 62 }, (_, at) => `${at + 2}`), '0', 'new'];
    expect([...more.brokers.keys()]).toEqual(kept);
  });
});

/** A clock that returns the given readings one after another. */
const scripted = (values: readonly number[]) => {
  const left = [...values];
  return () => left.shift() ?? Number.NaN;
};

describe('reading both clocks', () => {
  it('takes the first pair that was read within 1 ms', () => {
    expect(clockReader(scripted([1_000]), scripted([5, 6]))()).toEqual({ wall: 1_000, mono: 5 });
  });

  it('reads again when the process was paused between the two clocks', () => {
    const read = clockReader(scripted([1_000, 1_040]), scripted([5, 45, 45.1, 45.2]));
    expect(read()).toEqual({ wall: 1_040, mono: 45.1 });
  });

  it('takes the closest of three pairs when it is paused each time', () => {
    const read = clockReader(scripted([1_000, 1_040, 1_060]), scripted([5, 45, 45, 50, 60, 90]));
    expect(read()).toEqual({ wall: 1_040, mono: 45 });
  });
});
