import { type Mutant, patch } from './mutant.ts';

/** Bugs in what the brokers' clocks, and records without an age, show of the past. */
export const CLOCK_MUTANTS: readonly Mutant[] = [
  {
    name: "a broker's clock alone shows when an entry was appended",
    scenario: 'retention',
    // Most simulations use the index in memory; the real one has its own tests.
    patches: [
      patch(
        'test/support/memory-index.ts',
        'const timeMs = Math.max(appendedAtMs, generatedAtMs ?? 0);',
        'const timeMs = appendedAtMs;',
      ),
    ],
  },
  {
    name: 'a copy of a request gets no entry',
    patches: [
      patch('src/pipeline/age.ts', 'if (decided.entries < MAX_ENTRIES && isCopy(accepted, decided)) return true;', ''),
    ],
  },
  {
    name: 'a copy in the part of its request is not covered',
    patches: [
      patch('src/pipeline/decide.ts', 'twin.through = accepted.record.offset;', 'void accepted.record.offset;'),
    ],
  },
  {
    name: 'a broker that is asked first is judged alone',
    patches: [
      patch('src/worker/identity-holder.ts', 'if (driftAtStart(samples) === undefined)', 'if (samples.length < 0)'),
    ],
  },
];
