import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { EtcdLoss } from './etcd-loss.ts';
import type { Asked } from './history.ts';
import { Machine } from './machine.ts';
import { FAIR } from './network.ts';
import { MACHINES, PARTITIONS, REPLY_TOPICS } from './setting.ts';
import { type Surroundings, Worker } from './worker.ts';

interface Slot {
  readonly machine: Machine;
  worker: Worker | undefined;
}

/** Most batches are small; some take many ticks of the small layout. */
const COUNTS = [1, 3, 16, 40, 170] as const;

/** Everything that is done to the workers, and the client that asks them. Seeds differ in how often and how hard. */
export class Faults {
  readonly #around: Surroundings;
  readonly #slots: readonly Slot[];
  readonly #gapMs: number;
  readonly #actions: Array<(slot: Slot) => void>;
  readonly #made: Worker[] = [];
  #over = false;

  constructor(around: Surroundings) {
    this.#around = around;
    const { world } = around;
    this.#gapMs = world.rng.between(600, 4_000);
    const alone = world.rng.chance(0.2);
    this.#slots = Array.from({ length: alone ? 1 : MACHINES }, (_, i) => ({
      machine: new Machine(world, `m${i}`),
      worker: undefined,
    }));
    for (const slot of this.#slots) world.after(world.rng.between(0, 500), () => this.#start(slot));
    const all: ReadonlyArray<(slot: Slot) => void> = [
      (slot) => this.#crash(slot),
      (slot) => this.#freeze(slot),
      (slot) => this.#stepClock(slot),
      (slot) => this.#cut(slot, 'etcd', 20_000),
      (slot) => this.#cut(slot, 'kafka', 12_000),
      (slot) => this.#restart(slot),
      () => this.#blackout(),
      (slot) => this.#rejoinLedger(slot),
      () => this.#around.brokers.group.rebalance(),
      () => this.#around.store.expireOne(),
      () => this.#trim(),
      () => this.#changeWeather(),
    ];
    this.#actions = all.filter(() => world.rng.chance(0.7));
    if (world.rng.chance(0.2)) this.#actions.push(() => this.#truncate());
    if (world.rng.chance(0.2)) {
      const loss = new EtcdLoss(around, () => this.#blackout());
      this.#actions.push(() => loss.setBack());
    }
    this.#changeWeather();
    this.#repeat(this.#gapMs, () => {
      if (this.#actions.length > 0) world.rng.pick(this.#actions)(world.rng.pick(this.#slots));
    });
    this.#repeat(world.rng.between(200, 1_000), () => this.#ask());
  }

  /** From here on nothing fails any more, and whoever was down comes back; but retention is no fault. */
  heal(): void {
    const { world, network } = this.#around;
    world.note(() => 'faults end');
    this.#over = true;
    network.weather = FAIR;
    for (const { machine, worker } of this.#slots) {
      machine.stepMs = 0;
      worker?.process.cut.clear();
      worker?.process.thaw();
    }
    for (let asked = 0; asked < 8; asked += 1) this.#ask();
  }

  /** Every worker that is up can be asked about every partition. */
  allServe(): boolean {
    return this.#slots.every(({ worker }) => {
      if (worker === undefined || worker.process.dead) return false;
      return Array.from({ length: PARTITIONS }, (_, partition) => partition).every((at) => !worker.restores(at));
    });
  }

  /** The simulation is over and nobody looks any more. */
  discard(): void {
    for (const worker of this.#made) worker.discard();
  }

  #repeat(meanMs: number, run: () => void): void {
    const { world } = this.#around;
    world.after(world.rng.between(0, 2 * meanMs), () => {
      if (this.#over) return;
      run();
      this.#repeat(meanMs, run);
    });
  }

  #start(slot: Slot): void {
    if (slot.worker?.process.dead === false) throw new Error('two processes on one disk');
    const { world } = this.#around;
    const worker: Worker = new Worker(this.#around, slot.machine, () => slot.worker === worker && this.#crash(slot));
    slot.worker = worker;
    this.#made.push(worker);
    world.note(() => `${worker.process.name} starts`);
    // Worst for a worker alone: nobody else writes what would show it.
    if (!world.rng.chance(this.#slots.length === 1 ? 0.6 : 0.1)) return;
    world.after(world.rng.between(0, 40), () => {
      for (let partition = 0; partition < PARTITIONS; partition += 1) {
        if (worker.restores(partition)) this.#empty(partition);
      }
    });
  }

  #crash(slot: Slot): void {
    const { world } = this.#around;
    const { worker, machine } = slot;
    if (worker === undefined || worker.process.dead) return;
    worker.process.crash();
    const diskLost = world.rng.chance(0.4);
    if (diskLost) machine.loseDisk();
    world.note(() => `${worker.process.name} crashes${diskLost ? ' and loses its disk' : ''}`);
    world.after(world.rng.between(0, 5_000), () => this.#start(slot));
  }

  #blackout(): void {
    for (const slot of this.#slots) this.#crash(slot);
  }

  #rejoinLedger({ worker }: Slot): void {
    if (worker === undefined || !worker.process.running) return;
    this.#around.world.note(() => `${worker.process.name}: the reader's group is balanced anew`);
    worker.rejoinLedger();
  }

  #restart(slot: Slot): void {
    const { worker } = slot;
    if (worker === undefined || !worker.process.running || worker.stopping) return;
    this.#around.world.note(() => `${worker.process.name} is asked to stop`);
    void worker.stop().then(() => this.#start(slot));
  }

  #freeze({ worker, machine }: Slot): void {
    const { world } = this.#around;
    if (worker === undefined || !worker.process.running) return;
    const { process } = worker;
    const forMs = world.rng.chance(0.5) ? world.rng.between(5, 3_000) : world.rng.between(3_000, 25_000);
    const asleep = world.rng.chance(0.3);
    world.note(() => `${process.name} freezes for ${forMs.toFixed(0)} ms${asleep ? ', its monotonic clock too' : ''}`);
    process.freeze();
    const sinceMs = world.nowMs;
    world.after(forMs, () => {
      if (process.dead || process.running) return;
      if (asleep) machine.sleptMs += world.nowMs - sinceMs;
      world.note(() => `${process.name} goes on`);
      process.thaw();
    });
  }

  #stepClock({ machine }: Slot): void {
    const { rng } = this.#around.world;
    const sizeMs = rng.pick([12, 12, 100, 1_500, 1_500, 20_000]);
    machine.stepMs = rng.chance(0.2) ? 0 : machine.stepMs + rng.between(-sizeMs, sizeMs);
    this.#around.world.note(() => `the wall clock of ${machine.name} steps: off by ${machine.stepMs.toFixed(0)} ms`);
  }

  #cut({ worker }: Slot, link: 'etcd' | 'kafka', longestMs: number): void {
    const { world } = this.#around;
    if (worker === undefined) return;
    const { process } = worker;
    const forMs = world.rng.between(500, longestMs);
    world.note(() => `${process.name} is cut off from ${link} for ${forMs.toFixed(0)} ms`);
    process.cut.add(link);
    world.after(forMs, () => process.cut.delete(link));
  }

  #changeWeather(): void {
    const { rng } = this.#around.world;
    const share = (most: number): number => (rng.chance(0.4) ? 0 : rng.between(0, most));
    this.#around.network.weather = { lost: share(0.15), late: share(0.2), doubled: share(0.3) };
  }

  /** Best of all between an entry that decides and a later one under the same key. */
  #trim(): void {
    const { world, brokers, history } = this.#around;
    const partition = world.rng.below(PARTITIONS);
    const { low, high } = brokers.ledger.bounds(partition);
    const here = history.entries.filter((entry) => entry.partition === partition);
    const decided = new Map<string, number>();
    const between: number[] = [];
    for (const { correlationId, offset } of here) {
      const winner = decided.get(correlationId);
      if (winner === undefined) decided.set(correlationId, offset);
      else if (winner >= low) between.push(winner + 1);
    }
    const sly = between.length > 0 && world.rng.chance(0.8);
    brokers.trim(partition, sly ? world.rng.pick(between) : low + world.rng.below(high - low + 1));
  }

  /** Retention takes all of a partition: worst while somebody restores it. */
  #empty(partition: number): void {
    const { brokers } = this.#around;
    brokers.trim(partition, brokers.ledger.bounds(partition).high);
  }

  #truncate(): void {
    const { world, brokers } = this.#around;
    const partition = world.rng.below(PARTITIONS);
    const { low, high } = brokers.ledger.bounds(partition);
    brokers.truncate(partition, Math.max(low, high - world.rng.below(6)));
  }

  /** A new request, or one that was asked before, or one that abuses the correlation ID of another. */
  #ask(): void {
    const { world, brokers, history } = this.#around;
    const { rng } = world;
    const dice = rng.next();
    const before = history.requests.length > 0 && dice < 0.4 ? rng.pick(history.requests) : undefined;
    const fresh = { partition: rng.below(PARTITIONS), correlationId: `c${history.requests.length}` };
    const { partition, correlationId } = before ?? fresh;
    const kept =
      before !== undefined && dice < 0.32 ? before : { count: rng.pick(COUNTS), replyTopic: rng.pick(REPLY_TOPICS) };
    const { count, replyTopic } = kept;
    const key = Buffer.from(correlationId);
    const offset = brokers.ask(partition, { key, value: encodeIdRequest({ count, correlationId: key, replyTopic }) });
    const asked: Asked = { partition, offset, correlationId, count, replyTopic };
    history.requests.push(asked);
    world.note(() => `request ${partition}/${offset}: ${count} for ${correlationId} to ${replyTopic}`);
  }
}
