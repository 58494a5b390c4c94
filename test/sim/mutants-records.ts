import { type Mutant, patch } from './mutant.ts';

/** Bugs in what shows the past of a record without an age. */
export const RECORD_MUTANTS: readonly Mutant[] = [
  {
    name: 'a copy of a request gets no entry',
    patches: [
      patch('src/pipeline/age.ts', 'if (decided.entries < MAX_ENTRIES && isCopy(accepted, decided)) return true;', ''),
    ],
  },
];
