import { describeError } from '../../src/errors.ts';
import { Brokers } from './brokers.ts';
import { checkHistory, type Fault } from './checker.ts';
import { Store } from './etcd.ts';
import { Faults } from './faults.ts';
import { finalTopics } from './final-topics.ts';
import { emptyHistory, type History } from './history.ts';
import { Network } from './network.ts';
import { faultsMsOf, needsSequences, type Scenario, scenarioOf } from './scenario.ts';
import { sealed, World } from './world.ts';

/** How long it may take to answer everything once the faults are over. */
const HEALING_MS = 300_000;
const LOOK_MS = 200;

export interface Outcome {
  readonly seed: number;
  readonly faults: readonly Fault[];
  readonly history: History;
  readonly events: number;
  readonly trace: readonly string[];
}

export interface SimulationOptions {
  readonly traced?: boolean;
  readonly scenario?: Scenario | undefined;
}

/** Simulates one history and checks it. The same seed and scenario produce the same history, event for event. */
export async function simulate(seed: number, options: SimulationOptions = {}): Promise<Outcome> {
  const run = await sealed(
    async () => {
      const world = new World(seed, options.traced ?? false);
      const history = emptyHistory(world.layout);
      const network = new Network(world);
      const store = new Store(world, network, history);
      const brokers = new Brokers(world, history);
      const scenario = options.scenario ?? scenarioOf(world.rng, seed);
      world.hasSequences ||= needsSequences(scenario);
      using faults = new Faults({ world, network, store, brokers, history, scenario });
      try {
        const faultsMs = faultsMsOf(scenario);
        await world.run(faultsMs, () => false);
        faults.heal();
        const look = (): void => {
          history.missing = faults.missing();
          world.after(LOOK_MS, look);
        };
        look();
        const healed = await world.run(faultsMs + HEALING_MS, () => history.missing.length === 0);
        if (healed) history.healedMs = world.nowMs - faultsMs;
      } catch (error) {
        history.defects.push(`an uncaught error: ${describeError(error)}`);
      }
      brokers.count();
      const { events, trace = [] } = world;
      history.topics = finalTopics(brokers);
      return { seed, history, events, trace: [...trace] };
    },
    options.traced ? 20 : 0,
  );
  return { ...run, faults: checkHistory(run.history) };
}
