/** A transaction that was aborted: its producer, and the first offset that it wrote. */
export interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: number;
}

/**
 * Which batches of a partition belong to aborted transactions, for one pass in log order.
 *
 * A producer has one transaction at a time in a partition. An aborted one spans from the first offset that the broker
 * names for it to the next control batch of the same producer, which is the marker that ends it. Batches of other
 * producers may lie in between. A later transaction of the same producer is listed again if it was aborted.
 */
export class AbortedTransactions {
  /** Those not reached yet, the next one last. */
  readonly #ahead: AbortedTransaction[];
  readonly #open = new Set<bigint>();

  constructor(aborted: readonly AbortedTransaction[]) {
    this.#ahead = [...aborted].sort((a, b) => b.firstOffset - a.firstOffset);
  }

  /** Whether no further batch can be aborted, so that their producers need not be read. */
  get isEmpty(): boolean {
    return this.#ahead.length === 0 && this.#open.size === 0;
  }

  /** Whether a transactional batch was aborted. */
  includes(batch: { readonly producerId: bigint; readonly lastOffset: number }): boolean {
    this.#advance(batch.lastOffset);
    return this.#open.has(batch.producerId);
  }

  /** A control batch was reached. */
  end(batch: { readonly producerId: bigint; readonly lastOffset: number }): void {
    this.#advance(batch.lastOffset);
    this.#open.delete(batch.producerId);
  }

  #advance(offset: number): void {
    for (let next = this.#ahead.at(-1); next !== undefined && next.firstOffset <= offset; next = this.#ahead.at(-1)) {
      this.#open.add(next.producerId);
      this.#ahead.pop();
    }
  }
}
