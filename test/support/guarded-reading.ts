import type { Verdict } from '../../src/core/clock-guard.ts';
import type { Reading } from '../../src/core/units.ts';
import type { GuardedReading } from '../../src/identity/state.ts';

/** A reading with this verdict, as a guard gives it: steady by default. */
export function guardedReading(reading: Reading, verdict: Verdict = { kind: 'steady' }): GuardedReading {
  return { reading, verdict } as GuardedReading;
}
