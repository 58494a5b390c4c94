import { partitionIn } from '../support/fake-kafka/view.ts';
import type { Brokers } from './brokers.ts';
import type { Clients } from './clients.ts';
import type { Disk } from './disk.ts';
import type { Host, Surroundings } from './host.ts';
import { Machine } from './machine.ts';
import { FIRST, type Pair, pairAt, SECOND, STRAYS } from './pairs.ts';
import { GROWTH_MACHINES } from './setting.ts';

/** A machine, with its current or last process. */
export interface Slot {
  readonly machine: Machine;
  host: Host | undefined;
  /** Whether no process is started here any more. */
  isRetired: boolean;
}

interface Others {
  readonly clients: Clients;
  /** The workers of the first pair. */
  readonly served: readonly Slot[];
  readonly newDisk: () => Disk;
  readonly start: (slot: Slot) => void;
}

/** When the second pair is added, and how long after that clients start and complete their move. */
const BEGIN_MS = { from: 2_000, to: 12_000 } as const;
const MOVE_MS = { from: 500, to: 8_000 } as const;
const MOVED_MS = { from: 8_000, to: 22_000 } as const;
/** The time within which the workers of the second pair start, and the one that must be refused. */
const START_MS = { from: 50, to: 500 } as const;
const STRAY_MS = { from: 0, to: 15_000 } as const;
/** By then, transactions that clients left open have ended. */
const SETTLE_MS = 4_000;
const LOOK_MS = 500;
/** By then, whoever can serve does. */
const IDLE_MS = 90_000;

/**
 * The change to more partitions: a second pair of topics is added to the namespace while the first serves, clients
 * move, the first is drained, and its workers stop. A worker with the group or the ledger of another request topic
 * tries to join.
 */
export class Growth {
  /** The workers of the second pair, and the worker with a wrong configuration. */
  readonly slots: readonly Slot[];
  readonly #around: Surroundings;
  readonly #others: Others;
  #isDone = false;

  constructor(around: Surroundings, others: Others) {
    const { world } = around;
    const { rng } = world;
    this.#around = around;
    this.#others = others;
    const stray = rng.pick(STRAYS);
    this.slots = Array.from({ length: GROWTH_MACHINES + 1 }, (_, i) => {
      const number = others.served.length + i;
      const machine = new Machine(world, `m${number}`, number + 1, others.newDisk);
      machine.isStray = i === GROWTH_MACHINES;
      machine.pair = machine.isStray ? stray : SECOND;
      return { machine, host: undefined, isRetired: false };
    });
    world.after(rng.between(BEGIN_MS.from, BEGIN_MS.to), () => this.#begin());
  }

  /** What is left to do. */
  missing(): string[] {
    return this.#isDone ? [] : ['the first pair is not retired'];
  }

  /**
   * Starts once a worker has allocated, or later has a worker ID though nobody asks for IDs any more: its bindings are
   * then stored, so a wrong configuration can't be bound first.
   */
  #begin(): void {
    const { world, brokers, history } = this.#around;
    const { rng } = world;
    const { clients } = this.#others;
    const isBound = history.grants.length > 0 || (world.nowMs > IDLE_MS && history.ceilings.length > 0);
    if (!isBound) {
      world.after(LOOK_MS, () => this.#begin());
      return;
    }
    brokers.grow();
    this.#startOnceKnown();
    world.after(rng.between(MOVE_MS.from, MOVE_MS.to), () => clients.moveTo([FIRST, SECOND]));
    world.after(rng.between(MOVED_MS.from, MOVED_MS.to), () => {
      world.note(() => 'all clients have moved to the second pair');
      clients.moveTo([SECOND]);
      world.after(SETTLE_MS, () => this.#tend());
    });
  }

  /** A broker that does not know the topics yet would report to a worker that they don't exist. */
  #startOnceKnown(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    if (!areKnown(brokers)) {
      world.after(LOOK_MS, () => this.#startOnceKnown());
      return;
    }
    for (const slot of this.slots) {
      const within = slot.machine.isStray ? STRAY_MS : START_MS;
      world.after(rng.between(within.from, within.to), () => this.#others.start(slot));
    }
  }

  /**
   * Stops the first pair's workers when it is drained, as far as faults allow. They start again if a record arrives
   * late, such as a second copy of a forwarded request.
   */
  #tend(): void {
    const { world, brokers } = this.#around;
    const { served, start } = this.#others;
    const drained = isDrained(brokers, FIRST);
    for (const slot of served) {
      const { host } = slot;
      const isDown = host === undefined || host.process.dead;
      const wasRetired = slot.isRetired;
      slot.isRetired = drained;
      if (drained && host?.process.running && !host.stopping) void host.stop();
      if (!drained && isDown && (wasRetired || host?.stopping)) start(slot);
    }
    const isDone = drained && served.every(({ host }) => host === undefined || host.process.dead);
    if (isDone !== this.#isDone)
      world.note(() => `the first pair ${isDone ? 'is' : 'is not'} drained, its workers down`);
    this.#isDone = isDone;
    world.after(LOOK_MS, () => this.#tend());
  }
}

/** Whether readers see all requests of a pair, and all of them are answered and committed. */
function isDrained({ cluster, recorder }: Brokers, pair: Pair): boolean {
  const { partitions = [] } = cluster.topics.get(pair.requests) ?? {};
  const isSeen = partitions.every(({ log, highWatermark }) => log.end === highWatermark);
  return isSeen && recorder.missing().every(({ partition }) => pairAt(partition) !== pair);
}

/** Whether every broker knows all topics of the second pair and of workers with a wrong configuration. */
function areKnown({ cluster, nodes }: Brokers): boolean {
  const topics = [SECOND, ...STRAYS].flatMap(({ requests, ledger, deadLetters }) => [requests, ledger, deadLetters]);
  return nodes.every((node) => topics.every((topic) => partitionIn(cluster.broker(node).view, topic, 0) !== undefined));
}
