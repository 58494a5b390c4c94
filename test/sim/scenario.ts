import type { Rng } from './rng.ts';
import { GROWTH_MACHINES, MACHINES, PARTITIONS } from './setting.ts';

/** The scenarios of some simulations; --scenario selects one. */
export const SCENARIOS = {
  'etcd-loss': 'etcd is rolled back, to a backup or to nothing',
  'late-witness': 'etcd is rolled back while the witness of a reservation is in flight',
  'slow-readers': 'etcd is rolled back while readers of the witness topic are behind',
  'overtaken-witness': 'witnesses of reservations arrive after later ones',
  'lost-claim': 'etcd loses the claim of a worker ID, while other workers acquire one',
  retention: 'the ledger is trimmed at the worst offsets and times',
  aging: 'requests and entries are trimmed by age, with the required retention',
  'lost-tail': 'the ledger loses its tail, or is recreated, after a worker has read it',
  'lost-requests': 'requests, the ledger or both lose their tails, while a worker is cut off or frozen',
  failover:
    'Kafka is replaced by a copy that lags, one at other offsets, or an empty cluster, which an operator adopts',
  'two-owners': 'a worker is frozen, cut off or late between a swap and its append, which others complete',
  'lost-heads': 'etcd is rolled back, to a backup or to nothing, while numbers are given out',
  'each-loses': 'etcd and the ledger lose what they have, in turns, without other faults',
  'both-memories': 'etcd and the ledger lose the same decisions',
  volumes: 'volumes with the index are restored from backups, of any machine, or lose what was not synced',
  'take-over': 'owners are killed while others have complete copies, without other faults',
  'cut-off': 'one worker at a time is cut off from one broker, without other faults',
  clocks: 'wall clocks step by small amounts, just before requests arrive',
  mixed: 'workers have different configurations, and race for the namespace',
  asleep: 'machines sleep while answers to their heartbeats are on the way, without other faults',
  'full-etcd': 'etcd refuses writes for a while, as at its quota, without other faults',
  drift: 'clocks drift under workers that serve HTTP only, without other faults',
  growth: 'a second pair of topics takes over from the first, in one namespace',
  replays: 'an operator reads requests again, time after time',
} as const;
export type Scenario = keyof typeof SCENARIOS;

/** One of so many seeds has clocks that drift, which takes longer than all other faults. */
const SEEDS_WITH_DRIFT = 53;
const DRIFTING = 31;
/** How long faults occur; a clock that drifts is compared with the brokers' once a minute. */
const FAULTS_MS = 45_000;
const DRIFT_MS = 170_000;

export function faultsMsOf(scenario: Scenario | undefined): number {
  return scenario === 'drift' ? DRIFT_MS : FAULTS_MS;
}

/**
 * The share of random simulations with each scenario; the rest have none. Replays come beside other scenarios, in some
 * seeds.
 */
const SHARES: readonly (readonly [Scenario, number])[] = [
  ['etcd-loss', 0.11],
  ['lost-heads', 0.04],
  ['late-witness', 0.05],
  ['slow-readers', 0.05],
  ['lost-claim', 0.05],
  ['retention', 0.08],
  ['volumes', 0.02],
  ['aging', 0.06],
  ['two-owners', 0.02],
  ['lost-tail', 0.06],
  ['take-over', 0.05],
  ['clocks', 0.05],
  ['mixed', 0.05],
  ['growth', 0.05],
  ['lost-requests', 0.06],
  ['cut-off', 0.04],
  ['overtaken-witness', 0.03],
  ['full-etcd', 0.03],
  ['asleep', 0.02],
  ['failover', 0.04],
  ['each-loses', 0.02],
  ['both-memories', 0.01],
];

export function scenarioOf(rng: Rng, seed: number): Scenario | undefined {
  let dice = rng.next();
  if (seed % SEEDS_WITH_DRIFT === DRIFTING) return 'drift';
  for (const [scenario, share] of SHARES) {
    dice -= share;
    if (dice < 0) return scenario;
  }
  return undefined;
}

export function needsSequences(scenario: Scenario | undefined): boolean {
  return scenario !== undefined && NUMBERING.has(scenario);
}

export function isScenario(name: string): name is Scenario {
  return Object.hasOwn(SCENARIOS, name);
}

const AIMED: ReadonlySet<Scenario> = new Set([
  'late-witness',
  'lost-claim',
  'clocks',
  'lost-tail',
  'lost-requests',
  'failover',
  'volumes',
  'two-owners',
  'both-memories',
  'replays',
]);
/** The scenarios in which clients always want numbers, and an operator changes sequences. */
const NUMBERING: ReadonlySet<Scenario> = new Set([
  'failover',
  'volumes',
  'two-owners',
  'lost-heads',
  'both-memories',
  'each-loses',
  'replays',
]);
const CALM: ReadonlySet<Scenario> = new Set(['take-over', 'cut-off', 'asleep', 'full-etcd', 'each-loses', 'drift']);
const LOSING: ReadonlySet<Scenario> = new Set([
  'etcd-loss',
  'late-witness',
  'slow-readers',
  'lost-claim',
  'lost-heads',
  'both-memories',
  'each-loses',
]);

/** Whether the ledger may lose what was decided. Not where etcd does: what both have lost is promised by nobody. */
export function mayLoseLedger(scenario: Scenario | undefined): boolean {
  return !keepsItsTime(scenario) && !losesEtcd(scenario);
}

export function losesEtcd(scenario: Scenario | undefined): boolean {
  return scenario !== undefined && LOSING.has(scenario);
}

/** Whether the ledger keeps everything, or at least as long as it should. */
export function keepsItsTime(scenario: Scenario | undefined): boolean {
  return scenario === 'aging' || scenario === 'take-over' || scenario === 'replays';
}

/** Whether the scenario needs so many steps that other faults must be rare. */
export function isAimed(scenario: Scenario | undefined): boolean {
  return scenario !== undefined && AIMED.has(scenario);
}

/** Whether it has its own faults only. */
export function isCalm(scenario: Scenario | undefined): boolean {
  return scenario !== undefined && CALM.has(scenario);
}

/** In two of thirteen seeds a machine is gone for good, where any other one can do its work. */
const SEEDS_OF_GONE = 13;
const GONE_SEEDS: readonly number[] = [4, 7];

export function losesMachine(seed: number, scenario: Scenario | undefined): boolean {
  const isOfItsOwn = isAimed(scenario) || isCalm(scenario) || scenario === 'mixed' || scenario === 'growth';
  return GONE_SEEDS.includes(seed % SEEDS_OF_GONE) && !isOfItsOwn;
}

/** The share of simulations with one worker: no other worker's entries reveal what it missed. */
export function aloneIn(scenario: Scenario | undefined): number {
  if (scenario === 'mixed' || scenario === 'lost-claim' || scenario === 'take-over') return 0;
  return scenario === 'retention' ? 0.6 : 0.2;
}

/** The number of machines: as many as partitions, if each worker must serve. */
export function machinesIn(scenario: Scenario | undefined): number {
  if (scenario === 'growth') return GROWTH_MACHINES;
  return scenario === 'lost-claim' ? PARTITIONS : MACHINES;
}
