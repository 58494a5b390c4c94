import { wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import { openNamespace } from '../../src/identity/namespace.ts';
import { isRestored } from '../../src/identity/protocol.ts';
import { floorOver, rebuildNamespace } from '../../src/identity/rebuild.ts';
import { KafkaClient } from './clients.ts';
import { Process } from './machine.ts';
import { descriptor, keys, layout, timing } from './setting.ts';
import type { Surroundings } from './worker.ts';

/** Backups that are kept, and how often one is made. */
const BACKUPS = 4;
const BACKUP_MS = 4_000;
/** How often the operator looks, and how long until somebody notices at first. */
const LOOK_MS = 5_000;
const MAX_CRASHES = 3;

/**
 * etcd that is set back, to an earlier backup or to nothing, while everybody goes on; and the operator, who rebuilds the
 * namespace with the real code, gets interrupted, tries again, and stops the workers only when that is asked for.
 */
export class EtcdLoss {
  readonly #around: Surroundings;
  readonly #stopWorkers: () => void;
  readonly #backups: Array<() => void> = [];
  #attempts = 0;
  #crashes = 0;
  #watched = false;

  constructor(around: Surroundings, stopWorkers: () => void) {
    this.#around = around;
    this.#stopWorkers = stopWorkers;
    this.#backUp();
  }

  setBack(): void {
    const { world, store, history } = this.#around;
    const restore = world.rng.chance(0.3) ? undefined : this.#backups[world.rng.below(this.#backups.length)];
    world.note(() => `etcd is ${restore ? 'restored from a backup' : 'wiped'}`);
    history.setBacks.push(world.tick());
    store.setBack(restore);
    if (this.#watched) return;
    this.#watched = true;
    world.after(world.rng.between(0, LOOK_MS), () => this.#look());
  }

  #backUp(): void {
    const { world, store } = this.#around;
    this.#backups.push(store.backUp());
    if (this.#backups.length > BACKUPS) this.#backups.shift();
    world.after(world.rng.between(0, 2 * BACKUP_MS), () => this.#backUp());
  }

  /** One look, and a rebuild where it is due; a process of its own, which may be killed half-way. */
  #look(): void {
    const { world } = this.#around;
    const { rng } = world;
    this.#attempts += 1;
    const process = new Process(world, `operator.${this.#attempts}`);
    let over = false;
    const next = (): void => {
      if (over) return;
      over = true;
      world.after(rng.between(0.5, 1.5) * LOOK_MS, () => this.#look());
    };
    if (this.#crashes < MAX_CRASHES && rng.chance(0.4)) {
      this.#crashes += 1;
      world.after(rng.between(0, 60), () => {
        world.note(() => `${process.name} is killed`);
        process.crash();
        next();
      });
    }
    this.#mend(process).then(next, (error: unknown) => {
      world.note(() => `${process.name}: ${error}`);
      if (!(error instanceof IdallocError)) this.#around.history.defects.push(String(error));
      if (error instanceof IdallocError && error.code === 'REBUILD_REFUSED') this.#stopWorkers();
      next();
    });
  }

  async #mend(process: Process): Promise<void> {
    const { world, network, brokers, store } = this.#around;
    const etcd = store.port(process, () => () => {});
    const witness = new KafkaClient(world, network, brokers, process).witness();
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
        floorOf: (remains) => floorOver(layout, { remains, ledger: undefined, now, reserveMs: timing.reserveMs }),
      });
      world.note(() => `${process.name} rebuilt the namespace from ${floor}`);
    }
  }
}
