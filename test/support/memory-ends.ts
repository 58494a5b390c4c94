import type { EndHead } from '../../src/codec/head-values.ts';
import type { EndChange, EndHeads, StoredEnd } from '../../src/ledger/end-heads.ts';
import type { EndEvents } from '../../src/ledger/ends.ts';

/** The heads of a ledger's partitions in memory, as etcd has them. */
export class MemoryEndHeads implements EndHeads {
  readonly #stored = new Map<number, StoredEnd>();
  #revision = 1n;
  /**
   * What happens to the calls: all are served unless a test says so. May throw before it, or do something meanwhile.
   */
  onRead: () => void = () => {};
  onSwap: (changes: readonly EndChange[]) => void = () => {};
  /** What the answer to a swap becomes, after it took effect; may throw. */
  onSwapped: (revision: bigint | undefined) => bigint | undefined = (revision) => revision;

  of(partition: number): EndHead | undefined {
    return this.#stored.get(partition)?.head;
  }

  /** Writes as another worker or an operator does; undefined deletes it. */
  put(partition: number, head: EndHead | undefined): void {
    this.#revision += 1n;
    if (head === undefined) this.#stored.delete(partition);
    else this.#stored.set(partition, { head, revision: this.#revision });
  }

  async read(partitions: readonly number[]): Promise<ReadonlyMap<number, StoredEnd>> {
    this.onRead();
    return new Map(
      partitions.map((partition) => [partition, this.#stored.get(partition) ?? { head: undefined, revision: 0n }]),
    );
  }

  async swap(changes: readonly EndChange[]): Promise<bigint | undefined> {
    this.onSwap(changes);
    const isSame = changes.every(
      ({ partition, revision }) => (this.#stored.get(partition)?.revision ?? 0n) === revision,
    );
    if (isSame) {
      this.#revision += 1n;
      for (const { partition, head } of changes) this.#stored.set(partition, { head, revision: this.#revision });
    }
    return this.onSwapped(isSame ? this.#revision : undefined);
  }
}

/** What becomes of the heads is not looked at. */
export const UNSEEN_ENDS: EndEvents = { raised: () => {}, lost: () => {} };
