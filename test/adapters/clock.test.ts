import { describe, expect, it } from 'vitest';
import { clockReader } from '../../src/adapters/clock.ts';

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
