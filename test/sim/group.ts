import { PARTITIONS } from './setting.ts';
import type { World } from './world.ts';

/** What a member is told: its generation, and the partitions that it has in it. */
export interface Assignment {
  readonly generation: number;
  readonly partitions: readonly number[];
}

const SESSION_MS = 10_000;

/**
 * The coordinator of the request group. Harsher than Kafka's: a new generation begins at once, and members of the old
 * one go on until a heartbeat tells them, so that two of them often believe to have the same partition.
 */
export class Group {
  readonly #world: World;
  readonly #seenMs = new Map<string, number>();
  readonly #owners: Array<string | undefined> = Array.from({ length: PARTITIONS }, () => undefined);
  readonly #committed: number[] = Array.from({ length: PARTITIONS }, () => 0);
  /** The highest offset that was ever committed: a commit that comes late may lower the present one. */
  readonly furthest: number[] = Array.from({ length: PARTITIONS }, () => 0);
  #generation = 0;

  constructor(world: World) {
    this.#world = world;
  }

  join(member: string): Assignment {
    this.#expire();
    const known = this.#seenMs.has(member);
    this.#seenMs.set(member, this.#world.nowMs);
    if (!known) this.rebalance();
    return {
      generation: this.#generation,
      partitions: [...this.#owners.keys()].filter((at) => this.#owners[at] === member),
    };
  }

  leave(member: string): void {
    if (this.#seenMs.delete(member)) this.rebalance();
  }

  /** False: there is another generation, so join again. */
  heartbeat(member: string, generation: number): boolean {
    this.#expire();
    if (!this.#seenMs.has(member)) return false;
    this.#seenMs.set(member, this.#world.nowMs);
    return generation === this.#generation;
  }

  /** Fenced as Kafka does it: by member and generation, whoever has the partition. */
  commit(member: string, generation: number, offsets: ReadonlyMap<number, number>): boolean {
    this.#expire();
    if (!this.#seenMs.has(member) || generation !== this.#generation) return false;
    for (const [partition, offset] of offsets) {
      this.#committed[partition] = offset;
      this.furthest[partition] = Math.max(offset, this.furthest[partition] ?? 0);
    }
    return true;
  }

  committed(partition: number): number {
    return this.#committed[partition] ?? 0;
  }

  /** A new generation, with the partitions dealt out anew. */
  rebalance(): void {
    this.#generation += 1;
    const members = [...this.#seenMs.keys()];
    for (const at of this.#owners.keys()) {
      this.#owners[at] = members.length === 0 ? undefined : this.#world.rng.pick(members);
    }
    this.#world.note(() => `group: generation ${this.#generation}, partitions of ${this.#owners.join(', ')}`);
  }

  #expire(): void {
    for (const [member, seenMs] of this.#seenMs) {
      if (this.#world.nowMs - seenMs > SESSION_MS) this.leave(member);
    }
  }
}
