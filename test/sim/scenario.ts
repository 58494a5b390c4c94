import type { Rng } from './rng.ts';

/** What happens in some simulations, and can be asked for. */
export const SCENARIOS = {
  'etcd-loss': 'etcd is set back, to a backup or to nothing',
  'late-witness': 'the same, while the witness of a reservation is on its way',
  'slow-readers': 'the same, while readers of the witness topic are behind',
  retention: 'the ledger loses its head where it matters most',
  mixed: 'workers are configured differently',
} as const;
export type Scenario = keyof typeof SCENARIOS;

/** In so many simulations nobody asked for, by scenario; in the rest none of them happens. */
const SHARES: readonly (readonly [Scenario, number])[] = [
  ['etcd-loss', 0.15],
  ['late-witness', 0.05],
  ['slow-readers', 0.05],
  ['retention', 0.1],
  ['mixed', 0.1],
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

export function losesEtcd(scenario: Scenario | undefined): boolean {
  return scenario === 'etcd-loss' || scenario === 'late-witness' || scenario === 'slow-readers';
}
