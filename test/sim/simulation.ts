import { decodeLedgerEntry, decodeLedgerKey } from '../../src/codec/ledger-entry.ts';
import { checkHistory, type Fault } from './checker.ts';
import { Store } from './etcd.ts';
import { Faults } from './faults.ts';
import { emptyHistory, type History } from './history.ts';
import { Brokers } from './kafka.ts';
import { Network } from './network.ts';
import { sealed, settled, World } from './world.ts';

/** How long things go wrong, and how long it may take to answer everything afterwards. */
const FAULTS_MS = 45_000;
const HEALING_MS = 300_000;

export interface Outcome {
  readonly seed: number;
  readonly faults: readonly Fault[];
  readonly history: History;
  readonly events: number;
  readonly trace: readonly string[];
}

/** Plays one history and checks it. The same seed gives the same history, event for event. */
export function simulate(seed: number, options: { readonly traced?: boolean } = {}): Promise<Outcome> {
  return sealed(
    async () => {
      const world = new World(seed, options.traced ?? false);
      const history = emptyHistory();
      const network = new Network(world);
      const store = new Store(world, network, history);
      const brokers = new Brokers(world, history);
      brokers.onAppend = recorder(world, history);
      const faults = new Faults({ world, network, store, brokers, history });
      await world.run(FAULTS_MS, () => false);
      faults.heal();
      const healed = await world.run(FAULTS_MS + HEALING_MS, () => brokers.allDone() && faults.allServe());
      if (healed) history.healedMs = world.nowMs - FAULTS_MS;
      const outcome = {
        seed,
        faults: checkHistory(history),
        history,
        events: world.events,
        trace: [...(world.trace ?? [])],
      };
      faults.discard();
      await settled();
      return outcome;
    },
    options.traced ? 20 : 0,
  );
}

/** Writes the decisions that land in the ledger into the history; markers decide nothing. */
function recorder(world: World, history: History): Brokers['onAppend'] {
  return (partition, baseOffset, entries) => {
    for (const [i, { key, value }] of entries.entries()) {
      const entry = decodeLedgerEntry(value as Buffer);
      if (entry.kind === 'marker') continue;
      const { count, replyTopic, batch, requestOffset, end } = entry;
      const correlationId = decodeLedgerKey(key as Buffer).toString('latin1');
      const place = { order: world.tick(), partition, offset: baseOffset + i, requestOffset, end };
      history.entries.push({ ...place, correlationId, count, replyTopic, batch });
    }
  };
}
