import { type Mutant, patch } from './mutant.ts';

/** Bugs in what the brokers' clocks, and records without an age, show of the past. */
export const CLOCK_MUTANTS: readonly Mutant[] = [
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
];
