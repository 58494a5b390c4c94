import type { Rng } from './rng.ts';
import { GROWTH_MACHINES, MACHINES, PARTITIONS } from './setting.ts';

/** What happens in some simulations, and can be asked for. */
export const SCENARIOS = {
  'etcd-loss': 'etcd is set back, to a backup or to nothing',
  'late-witness': 'the same, while the witness of a reservation is on its way',
  'slow-readers': 'the same, while readers of the witness topic are behind',
  'lost-claim': 'etcd forgets that a worker ID was taken, while others want one',
  retention: 'the ledger loses its head where it matters most',
  aging: 'requests and ledger lose what is too old, and the ledger keeps its time',
  'lost-tail': 'the ledger loses its tail, or is recreated, after a worker has read it',
  'take-over': 'owners are killed while others have complete copies, and nothing else fails',
  clocks: 'wall clocks step, by little, and right before requests come',
  mixed: 'workers are configured differently, and race for the namespace',
  growth: 'a second pair of topics takes over from the first, in one namespace',
} as const;
export type Scenario = keyof typeof SCENARIOS;

/** The share of random simulations with each scenario; the rest have none. */
const SHARES: readonly (readonly [Scenario, number])[] = [
  ['etcd-loss', 0.15],
  ['late-witness', 0.05],
  ['slow-readers', 0.05],
  ['lost-claim', 0.05],
  ['retention', 0.1],
  ['aging', 0.08],
  ['lost-tail', 0.06],
  ['take-over', 0.05],
  ['clocks', 0.05],
  ['mixed', 0.05],
  ['growth', 0.05],
];

export function scenarioOf(rng: Rng): Scenario | undefined {
  let dice = rng.next();
  for (const [scenario, share] of SHARES) {
    dice -= share;
    if (dice < 0) return scenario;
  }
  return undefined;
}

export function isScenario(name: string): name is Scenario {
  return Object.hasOwn(SCENARIOS, name);
}

const AIMED: ReadonlySet<Scenario> = new Set(['late-witness', 'lost-claim', 'clocks', 'lost-tail']);
const LOSING: ReadonlySet<Scenario> = new Set(['etcd-loss', 'late-witness', 'slow-readers', 'lost-claim']);

export function losesEtcd(scenario: Scenario | undefined): boolean {
  return scenario !== undefined && LOSING.has(scenario);
}

/** Whether the ledger keeps all that it has, or for as long as it should. */
export function keepsItsTime(scenario: Scenario | undefined): boolean {
  return scenario === 'aging' || scenario === 'take-over';
}

/** Whether it takes so many steps that other faults must be rare. */
export function isAimed(scenario: Scenario | undefined): boolean {
  return scenario !== undefined && AIMED.has(scenario);
}

/** The share of simulations with one worker: no other worker's entries reveal what it missed. */
export function aloneIn(scenario: Scenario | undefined): number {
  if (scenario === 'mixed' || scenario === 'lost-claim' || scenario === 'take-over') return 0;
  return scenario === 'retention' ? 0.6 : 0.2;
}

/** As many as there are partitions, if each must serve. */
export function machinesIn(scenario: Scenario | undefined): number {
  if (scenario === 'growth') return GROWTH_MACHINES;
  return scenario === 'lost-claim' ? PARTITIONS : MACHINES;
}
