import { decodeEndHead, type EndHead, encodeEndHead } from '../codec/head-values.ts';
import { IdallocError } from '../errors.ts';

/** What etcd has of a partition, and the revision with which that was written; 0n for nothing. */
export interface StoredEnd {
  readonly head: EndHead | undefined;
  readonly revision: bigint;
  /** NAMESPACE_DAMAGED, if no worker wrote it. */
  readonly damage?: IdallocError;
}

/** A head to write if the one before still has this revision. */
export interface EndChange {
  readonly partition: number;
  readonly revision: bigint;
  readonly head: EndHead;
}

/** How far each partition of the ledger had gone, in a store that shares no fate with the log. */
export interface EndHeads {
  /** Rejects with ETCD_UNAVAILABLE or ETCD_REFUSED. */
  read(partitions: readonly number[]): Promise<ReadonlyMap<number, StoredEnd>>;
  /**
   * Writes all of them or none; resolves with their revision, undefined if any has changed meanwhile. Rejects with
   * ETCD_UNAVAILABLE or ETCD_REFUSED, when they may have been written.
   */
  swap(changes: readonly EndChange[]): Promise<bigint | undefined>;
}

/** The operations of etcd that this needs; `identity/ports` explains them. */
interface Etcd {
  get(keys: readonly string[]): Promise<ReadonlyMap<string, { readonly value: Buffer; readonly modRevision: bigint }>>;
  transact(
    compares: readonly { readonly key: string; readonly modRevision: bigint }[],
    operations: readonly { readonly put: string; readonly value: Buffer }[],
  ): Promise<{ succeeded: boolean; revision: bigint }>;
}

/** Heads in one call of etcd, which takes 128 operations. */
export const MAX_ENDS = 100;

const NOTHING: StoredEnd = { head: undefined, revision: 0n };

/** The heads in etcd, each under its own key. */
export class EtcdEndHeads implements EndHeads {
  readonly #etcd: Etcd;
  readonly #keyOf: (partition: number) => string;

  constructor(etcd: Etcd, keyOf: (partition: number) => string) {
    this.#etcd = etcd;
    this.#keyOf = keyOf;
  }

  async read(partitions: readonly number[]): Promise<ReadonlyMap<number, StoredEnd>> {
    const found = new Map<number, StoredEnd>();
    for (let from = 0; from < partitions.length; from += MAX_ENDS) {
      const some = partitions.slice(from, from + MAX_ENDS);
      const stored = await this.#etcd.get(some.map(this.#keyOf));
      for (const partition of some) {
        const key = this.#keyOf(partition);
        const kv = stored.get(key);
        found.set(partition, kv === undefined ? NOTHING : storedIn(key, kv));
      }
    }
    return found;
  }

  async swap(changes: readonly EndChange[]): Promise<bigint | undefined> {
    const { succeeded, revision } = await this.#etcd.transact(
      changes.map(({ partition, revision: modRevision }) => ({ key: this.#keyOf(partition), modRevision })),
      changes.map(({ partition, head }) => ({ put: this.#keyOf(partition), value: encodeEndHead(head) })),
    );
    return succeeded ? revision : undefined;
  }
}

function storedIn(key: string, { value, modRevision: revision }: { value: Buffer; modRevision: bigint }): StoredEnd {
  try {
    return { head: decodeEndHead(key, value), revision };
  } catch (error) {
    if (error instanceof IdallocError) return { head: undefined, revision, damage: error };
    throw error;
  }
}
