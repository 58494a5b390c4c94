import { rmSync } from 'node:fs';
import { FileDisk } from './disk.ts';
import type { Slot } from './growth.ts';
import type { Surroundings } from './host.ts';

/** The number of backups that are kept, how often one is taken, and how often a machine gets a volume from one. */
const BACKUPS = 6;
const BACKUP_MS = 2_500;
const RESTORE_MS = 5_000;
/** How long a machine is down meanwhile. */
const DOWN_MS = { from: 100, to: 5_000 } as const;
/** The share of the machines that go on with the volume of another time or another machine; the others lose power. */
const RESTORED = 0.6;

interface Workers {
  readonly slots: readonly Slot[];
  /** Kills the process of a slot, changes its disk, and starts another one later. */
  readonly crash: (slot: Slot, change: () => void, backMs: number) => void;
}

/** Volumes with the index are restored from a snapshot of this or of another machine, or lose what was not synced. */
export class Volumes implements Disposable {
  readonly #around: Surroundings;
  readonly #workers: Workers;
  readonly #backups: string[] = [];
  #isOver = false;

  constructor(around: Surroundings, workers: Workers) {
    this.#around = around;
    this.#workers = workers;
    this.#backUp();
    this.#restore();
  }

  heal(): void {
    this.#isOver = true;
  }

  [Symbol.dispose](): void {
    for (const copy of this.#backups) rmSync(copy, { recursive: true, force: true });
  }

  #backUp(): void {
    this.#later(BACKUP_MS, () => {
      const { machine } = this.#around.world.rng.pick(this.#workers.slots);
      if (machine.disk instanceof FileDisk) this.#backups.push(machine.disk.snapshot());
      if (this.#backups.length > BACKUPS) rmSync(this.#backups.shift() as string, { recursive: true, force: true });
      this.#backUp();
    });
  }

  #restore(): void {
    this.#later(RESTORE_MS, () => {
      const { world, history } = this.#around;
      const { rng } = world;
      const slot = rng.pick(this.#workers.slots);
      const { machine } = slot;
      const change = (): void => {
        if (this.#backups.length === 0 || !rng.chance(RESTORED)) {
          machine.disk.losePower?.();
          world.note(() => `${machine.name} loses power`);
          return;
        }
        machine.restoreDisk(new FileDisk(rng.pick(this.#backups)));
        // What the processes before knew is not what the next ones know.
        history.damaged.push(`${machine.name}.volume`);
        history.volumes += 1;
        world.note(() => `the volume of ${machine.name} is restored from a backup`);
      };
      this.#workers.crash(slot, change, rng.between(DOWN_MS.from, DOWN_MS.to));
      this.#restore();
    });
  }

  #later(meanMs: number, run: () => void): void {
    const { world } = this.#around;
    world.after(world.rng.between(0, 2 * meanMs), () => {
      if (!this.#isOver) run();
    });
  }
}
