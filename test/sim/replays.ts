import { prospectOf, requireEmptyGroup, setBack } from '../../src/cli/replay/group.ts';
import { requireAnswered } from '../../src/cli/replay/plan.ts';
import { ledgerWriter } from '../../src/cli/sequence/sequence-session.ts';
import { describeError, IdallocError } from '../../src/errors.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import type { Surroundings } from './host.ts';
import { Machine, type Process } from './machine.ts';
import { OPERATOR } from './operator.ts';
import { configOf, FIRST } from './pairs.ts';
import { runtimeOf } from './runtime.ts';
import { isCalm, type Scenario } from './scenario.ts';
import { LOW_COUNT } from './setting.ts';

/** In one of so many seeds an operator replays, beside the other faults. */
const SEEDS_WITH_REPLAYS = 7;
/** When the first replay begins, and the time between two. */
const FIRST_MS = { from: 4_000, to: 10_000 } as const;
const NEXT_MS = { from: 2_000, to: 8_000 } as const;
/**
 * Workers that were stopped leave the group soon; the others once their sessions are over. Most operators wait for
 * that.
 */
const STOPPING_MS = { from: 200, to: 3_000 } as const;
const LOOK_MS = 500;
const MOST_LOOKS = 40;
const PATIENT = 0.9;
const AGAIN_MS = { from: 500, to: 2_500 } as const;
const MOST_TRIES = 6;
/** The share of commands that are killed, and within what time: about as long as one takes. */
const KILLED = 0.15;
const KILLED_MS = 1_500;
/** The share that decides what was refused, and that reads everything again. */
const DECIDING = 0.2;
const WHOLE = 0.3;

/**
 * Scenarios without replays: where a tail of the requests is lost, offsets that are moved decide what is read, and a
 * pair of topics that is drained has no workers that would read it again.
 */
const WITHOUT: ReadonlySet<Scenario | undefined> = new Set<Scenario>(['lost-requests', 'growth']);

/** Whether an operator replays. */
export function hasReplays({ world, scenario }: Pick<Surroundings, 'world' | 'scenario'>): boolean {
  if (scenario === 'replays') return true;
  return world.seed % SEEDS_WITH_REPLAYS === 4 && !isCalm(scenario) && !WITHOUT.has(scenario);
}

/** The workers, as Replays needs them. */
interface Workers {
  /** Stops them, some by a kill, and starts none until `release`. */
  readonly hold: () => void;
  readonly release: () => void;
}

/**
 * An operator replays: stops the workers, gives the command, with the real code, until it succeeds or he gives up, and
 * starts them again.
 */
export class Replays {
  readonly #around: Surroundings;
  readonly #workers: Workers;
  readonly #machine: Machine;
  #isOver = false;
  #running: Process | undefined;
  /** By partition: the offset up to which requests are read again. */
  readonly #due = new Map<number, number>();

  constructor(around: Surroundings, workers: Workers) {
    const { world, history } = around;
    this.#around = around;
    this.#workers = workers;
    this.#machine = new Machine(world, `${OPERATOR}-of-replays`);
    if (world.rng.chance(0.5)) {
      world.isCountLow = true;
      history.lowestCount = LOW_COUNT;
    }
    this.#later(FIRST_MS);
  }

  /** Ends a command that is running, and starts the workers. */
  heal(): void {
    this.#isOver = true;
    this.#running?.crash();
    this.#workers.release();
  }

  missing(): string[] {
    const { brokers } = this.#around;
    return [...this.#due].flatMap(([partition, to]) => {
      const { high } = brokers.bounds('requests', partition);
      const isRead = high < to || (brokers.committed(partition) ?? 0) >= to;
      return isRead ? [] : [`requests ${partition} are not read again up to ${to}`];
    });
  }

  #later({ from, to }: { readonly from: number; readonly to: number }): void {
    const { world } = this.#around;
    world.after(world.rng.between(from, to), () => {
      if (this.#isOver) return;
      world.note(() => 'an operator stops the workers, to replay');
      this.#workers.hold();
      // From now on, workers allow more.
      world.isCountLow = false;
      this.#attemptIn(STOPPING_MS, 1);
    });
  }

  #attemptIn({ from, to }: { readonly from: number; readonly to: number }, tries: number): void {
    const { world } = this.#around;
    const looks = world.rng.chance(PATIENT) ? MOST_LOOKS : 0;
    world.after(world.rng.between(from, to), () => this.#attemptOnceEmpty(tries, looks));
  }

  /** Looks so many times whether the group has members. */
  #attemptOnceEmpty(tries: number, looks: number): void {
    const { world, brokers } = this.#around;
    if (this.#isOver) return;
    const isEmpty = brokers.cluster.groups.get(FIRST.group)?.state === 'Empty';
    if (isEmpty || looks === 0) this.#attempt(tries);
    else world.after(LOOK_MS, () => this.#attemptOnceEmpty(tries, looks - 1));
  }

  #attempt(tries: number): void {
    const { world, history } = this.#around;
    const { rng } = world;
    const process = this.#machine.start();
    this.#running = process;
    const ended = (isDone: boolean): void => {
      if (process.dead) return;
      process.crash();
      if (!isDone && tries < MOST_TRIES && rng.chance(PATIENT)) this.#attemptIn(AGAIN_MS, tries + 1);
      else {
        this.#workers.release();
        this.#later(NEXT_MS);
      }
    };
    if (rng.chance(KILLED)) {
      world.after(rng.between(0, KILLED_MS), () => {
        world.note(() => `${process.name} is killed`);
        ended(false);
      });
    }
    this.#replay(process).then(
      () => ended(true),
      (error: unknown) => {
        world.note(() => `${process.name}: ${error}`);
        const isExpected = error instanceof IdallocError || error instanceof KafkaError;
        if (!isExpected) history.defects.push(`a replay: ${describeError(error)}`);
        // Workers must answer first what waits.
        ended(error instanceof IdallocError && error.code === 'REPLAY_REFUSED');
      },
    );
  }

  /** `idalloc replay`, without its questions and its report. */
  async #replay(process: Process): Promise<void> {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const config = configOf(brokers.config, FIRST);
    const runtime = runtimeOf(world, this.#machine, process);
    const cluster = new Cluster({ dialer: brokers.dialer(process, []), seeds: brokers.kafka.seeds, runtime });
    const source = { cluster, runtime };
    const context = { stop: new AbortController().signal };
    const [decideRefused, share] = [rng.chance(DECIDING), rng.chance(WHOLE) ? 0 : rng.next()];
    const wanted = (partition: number) => Math.floor(share * (brokers.committed(partition) ?? 0));
    try {
      await requireEmptyGroup(source, config.groupId);
      const prospect = await prospectOf({ source, config, context }, wanted, 0);
      const { plan } = prospect;
      requireAnswered(plan, decideRefused);
      const stated = decideRefused ? plan.map((one) => ({ ...one, below: 0 })) : plan;
      await setBack(source, config, { ...prospect, plan: stated }, ledgerWriter(source, config.topics));
      for (const { partition, to } of plan) this.#due.set(partition, to);
    } finally {
      await cluster.close();
    }
  }
}
