import { type Ticks, type WallMs, wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import { openNamespace } from '../../src/identity/namespace.ts';
import type { WitnessPort } from '../../src/identity/ports.ts';
import { isRestored } from '../../src/identity/protocol.ts';
import { floorOver, type Remains, rebuildNamespace } from '../../src/identity/rebuild.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { ledgerTail } from '../../src/worker/ledger-tail.ts';
import { startWitness } from '../../src/worker/witness-side.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import type { Place } from './host.ts';
import { Machine, type Process } from './machine.ts';
import { runtimeOf } from './runtime.ts';
import { descriptor, keys, layout, timing, WITNESS } from './setting.ts';

/** Backups that are kept, and how often one is made. */
const BACKUPS = 4;
const BACKUP_MS = 4_000;
/** How often the operator looks, and how long until somebody notices at first. */
const LOOK_MS = 5_000;
/** A worker gives up a witness that is not there by then. */
const MAX_HELD_MS = 2_500;
/** About so long a rebuild takes. */
const REBUILD_MS = 60;
const OPERATOR = 'operator';
const MAX_CRASHES = 3;

/**
 * etcd that is set back, to an earlier backup or to nothing, while everybody goes on; and the operator, who rebuilds the
 * namespace with the real code, gets interrupted, tries again, and stops the workers only when that is asked for.
 */
export class EtcdLoss {
  readonly #place: Place;
  readonly #stopWorkers: () => void;
  readonly #backups: Array<() => void> = [];
  readonly #machine: Machine;
  #attempts = 0;
  #crashes = 0;
  #watched = false;

  constructor(place: Place, stopWorkers: () => void) {
    this.#place = place;
    this.#stopWorkers = stopWorkers;
    this.#machine = new Machine(place.world, OPERATOR);
    this.#backUp();
    if (place.world.rng.chance(0.5)) this.#waitForWitness();
  }

  setBack(): void {
    const { rng } = this.#place.world;
    this.#setBack(rng.chance(0.5) ? undefined : this.#backups[rng.below(this.#backups.length)]);
    // Whoever brings a backup back may start all workers anew as well.
    if (rng.chance(0.3)) this.#stopWorkers();
    this.#watch(rng.between(0, LOOK_MS));
  }

  /** Worst of all: a worker has reserved, and its witness comes while the namespace is rebuilt already. */
  #waitForWitness(): void {
    const { world, brokers, history } = this.#place;
    const { rng } = world;
    const { network, recorder } = brokers;
    const forMs = rng.between(100, MAX_HELD_MS);
    recorder.onProduce = (process, topic, batch) => {
      const isOurs = topic === WITNESS && !process.startsWith(OPERATOR) && history.grants.length > 0;
      if (!isOurs || this.#watched || recordsOf(batch)[0]?.value === null || !rng.chance(0.3)) return;
      world.note(() => `the witness of ${process} is held for ${forMs.toFixed(0)} ms`);
      network.script = (call, way) => {
        network.script = () => undefined;
        return call === 'produce' && way === 'there' ? forMs : undefined;
      };
      this.#watched = true;
      const landsMs = world.nowMs + forMs;
      world.after(rng.between(0, 2), () => {
        this.#setBack(undefined);
        world.after(rng.between(0, forMs), () => this.#look(landsMs + rng.between(5, 50)));
      });
    };
  }

  #setBack(restore: (() => void) | undefined): void {
    const { world, store, history } = this.#place;
    world.note(() => `etcd is ${restore ? 'restored from a backup' : 'wiped'}`);
    history.setBacks.push(world.tick());
    store.setBack(restore);
  }

  #watch(inMs: number): void {
    if (this.#watched) return;
    this.#watched = true;
    this.#place.world.after(inMs, () => this.#look());
  }

  #backUp(): void {
    const { world, store } = this.#place;
    this.#backups.push(store.backUp());
    if (this.#backups.length > BACKUPS) this.#backups.shift();
    world.after(world.rng.between(0, 2 * BACKUP_MS), () => this.#backUp());
  }

  /**
   * One look, and a rebuild where it is due; a process of its own, which may be killed half-way. With `untilMs` it stands
   * still in between, until then, and is not killed.
   */
  #look(untilMs?: number): void {
    const { world } = this.#place;
    const { rng } = world;
    this.#attempts += 1;
    const process = this.#machine.start();
    let over = false;
    const next = (): void => {
      if (over) return;
      over = true;
      world.after(rng.between(0.5, 1.5) * LOOK_MS, () => this.#look());
    };
    if (untilMs === undefined && this.#crashes < MAX_CRASHES && rng.chance(0.4)) {
      this.#crashes += 1;
      world.after(rng.between(0, REBUILD_MS), () => {
        world.note(() => `${process.name} is killed`);
        process.crash();
        next();
      });
    }
    if (untilMs !== undefined || rng.chance(0.5)) this.#holdUp(process, untilMs);
    this.#mend(process).then(next, (error: unknown) => {
      world.note(() => `${process.name}: ${error}`);
      if (!(error instanceof IdallocError)) this.#place.history.defects.push(String(error));
      if (error instanceof IdallocError && error.code === 'REBUILD_REFUSED') this.#stopWorkers();
      next();
    });
  }

  /** It stands still for a while, anywhere in what it does. */
  #holdUp(process: Process, untilMs?: number): void {
    const { world } = this.#place;
    const { rng } = world;
    world.after(rng.between(0, REBUILD_MS), () => {
      process.freeze();
      world.after(untilMs === undefined ? rng.between(0, MAX_HELD_MS) : untilMs - world.nowMs, () => process.thaw());
    });
  }

  async #mend(process: Process): Promise<void> {
    const { world, brokers } = this.#place;
    const { config } = brokers;
    const runtime = runtimeOf(world, this.#machine, process);
    const dialer = brokers.dialer(process, () => {});
    const cluster = new Cluster({ dialer, seeds: brokers.kafka.seeds, runtime });
    const tail = ledgerTail(cluster, runtime, () => {});
    try {
      await this.#rebuild(process, startWitness({ config, cluster, runtime, tail }));
    } finally {
      await tail.close();
      await cluster.close();
    }
  }

  #floorOf(remains: Remains, now: WallMs): Ticks {
    const { world, history } = this.#place;
    const floor = floorOver(layout, { remains, ledger: undefined, now, reserveMs: timing.reserveMs });
    const known = new Map<string, number>();
    for (const { workerId, fence, ticks } of remains.view.witnesses) {
      const reign = `${workerId}/${fence}`;
      known.set(reign, Math.max(ticks, known.get(reign) ?? 0));
    }
    history.rebuilds.push({ order: world.tick(), floor, known });
    return floor;
  }

  async #rebuild(process: Process, witness: WitnessPort): Promise<void> {
    const { world, brokers, store } = this.#place;
    const etcd = store.port(process, () => () => {});
    const uuid = `00000000-0000-4000-8000-${String(this.#attempts).padStart(12, '0')}`;
    const wanted = { ...descriptor, uuid };
    try {
      await openNamespace(etcd, witness, keys, wanted, () => process.name.replace('.', '-'));
    } catch (error) {
      const damaged = error instanceof IdallocError && error.code === 'NAMESPACE_DAMAGED';
      if (!isRestored(error) && !damaged) throw error;
      const now = wallMs(brokers.nowMs());
      const { floor } = await rebuildNamespace({
        etcd,
        witness,
        keys,
        wanted,
        floorOf: (remains) => this.#floorOf(remains, now),
      });
      world.note(() => `${process.name} rebuilt the namespace from ${floor}`);
    }
  }
}
