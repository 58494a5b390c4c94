import type { Case } from './moves.ts';
import { RULE, type Rule, type World } from './state.ts';

/** A world in which the rule holds. */
export interface Example {
  readonly name: string;
  readonly rule: Rule;
  readonly world: World;
  /** Cases that must occur, or nothing was tested. */
  readonly sees: readonly Case[];
}

/** A mistake, and a small world in which it does harm. */
export interface Mutant extends Omit<Example, 'sees'> {
  readonly harm: string;
  /** Too far away for `npm test`. */
  readonly isDeep?: boolean;
}

const ONE: World = {
  workers: 2,
  claims: 2,
  raises: 1,
  ticks: 1,
  putBacks: 0,
  hasBackups: false,
  rebuilds: 0,
  silences: 0,
  crashes: 0,
};
const BACK: World = { ...ONE, raises: 0, putBacks: 1, hasBackups: true };
const REBUILT: World = { ...BACK, hasBackups: false, rebuilds: 1 };

function example(name: string, world: World, sees: readonly Case[], change: Partial<Rule> = {}): Example {
  return { name, rule: { ...RULE, ...change }, world, sees };
}

/** What `npm test` explores. */
export const QUICK: readonly Example[] = [
  example('leases that end at any time, swaps that come late', { ...ONE, ticks: 2 }, ['used', 'lost']),
  example('processes that crash', { ...ONE, raises: 0, crashes: 2 }, ['used', 'lost']),
  example('witnesses that land late', { ...ONE, silences: 1 }, ['used', 'lost']),
  example('an etcd that is put back', BACK, ['used', 'refused by the look', 'refused past the witness']),
  example('an etcd that is put back, without a look before a claim', BACK, ['refused past the witness'], {
    looks: false,
  }),
  example('a rebuild beside workers that run', { ...REBUILT, putBacks: 0 }, ['rebuilt', 'after a rebuild']),
  example('an etcd that is wiped, and a rebuild', REBUILT, ['rebuilt', 'after a rebuild']),
];

/** Minutes. */
export const DEEP: readonly Example[] = [
  example('three claims, two raises', { ...ONE, claims: 3, raises: 2, ticks: 2 }, ['used', 'lost']),
  example('an etcd that is put back, and a raise', { ...BACK, raises: 1, ticks: 2 }, ['refused past the witness']),
  example('an etcd that is put back, and witnesses that land late', { ...BACK, raises: 1, silences: 1 }, ['used']),
  example('an etcd that is put back, and a rebuild: backups', { ...REBUILT, hasBackups: true }, ['after a rebuild']),
  example('an etcd that is put back, and a rebuild: a raise', { ...REBUILT, raises: 1 }, ['after a rebuild']),
];

const mutant = (name: string, harm: string, change: Partial<Rule>, world: World): Mutant => {
  return { name, harm, rule: { ...RULE, ...change }, world };
};

export const MUTANTS: readonly Mutant[] = [
  mutant('a swap does not compare the ceiling', 'are granted', { comparesCeiling: false }, ONE),
  mutant('a term begins at its own clock', 'are granted', { begins: 'clock' }, ONE),
  mutant('the ceiling ends with the lease', 'are granted', { outlivesLease: false }, ONE),
  mutant('a swap is not read back', 'above every ceiling', { readsBack: false }, ONE),
  mutant('a reservation is used before its witness', 'used twice', { waits: false }, BACK),
  mutant('the topic is not read past the own witness', 'used twice', { readsPast: false }, BACK),
  {
    ...mutant(
      'a late witness has the name of a newer one',
      'used twice',
      { namesLate: false },
      { ...BACK, raises: 1, silences: 1 },
    ),
    isDeep: true,
  },
  mutant('a rebuild seals the topic at its end', 'below what is used', { seals: 'last' }, REBUILT),
  mutant('a rebuild counts the ceilings alone', 'below what is used', { countsWitnesses: false }, REBUILT),
  mutant(
    'a swap does not compare the namespace',
    'are granted',
    { comparesNamespace: false },
    { ...REBUILT, raises: 1 },
  ),
];
