import type { Witness, WitnessName, WitnessView } from '../codec/witness.ts';
import { IdallocError } from '../errors.ts';

/**
 * The few operations that the identity needs from etcd: those of a linearizable key-value store with leases. Every call
 * rejects with IdallocError ETCD_UNAVAILABLE (cause attached) when it was not answered in time: it may have taken
 * effect, or may take effect later. It rejects with ETCD_REFUSED when etcd answered that it does not do it: it may have
 * taken effect, but can't later.
 */

/** A stored key as etcd shows it; leaseId is 0n for a key outside any lease. */
export interface KeyValue {
  readonly key: string;
  readonly value: Buffer;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly leaseId: bigint;
}

/** Equality only. createRevision 0n means that the key is absent. */
export type Compare =
  | { readonly key: string; readonly createRevision: bigint }
  | { readonly key: string; readonly modRevision: bigint }
  | { readonly key: string; readonly value: Buffer };

export type KeyOperation =
  | { readonly put: string; readonly value: Buffer; readonly leaseId?: bigint }
  | { readonly delete: string };

/** The keys from `from` on, at most `limit`. */
export interface KeyPage {
  readonly from: string;
  readonly limit: number;
}

/** How many operations, and how many comparisons, etcd takes in one transaction, unless it is told otherwise. */
export const MAX_OPERATIONS = 128;

export interface EtcdPort {
  /** Linearizable read of all keys that start with prefix, or of a page of them, at one revision, ordered by key. */
  range(prefix: string, page?: KeyPage): Promise<{ revision: bigint; kvs: readonly KeyValue[] }>;
  /** The keys that exist, read in one transaction; at most MAX_OPERATIONS. */
  get(keys: readonly string[]): Promise<ReadonlyMap<string, KeyValue>>;
  /** Applies all operations if all comparisons hold, else none; MAX_OPERATIONS of each. May throw and take effect. */
  transact(
    compares: readonly Compare[],
    operations: readonly KeyOperation[],
  ): Promise<{ succeeded: boolean; revision: bigint }>;
  /** The caller chooses the ID, so a repeated grant is harmless. */
  grantLease(leaseId: bigint, ttlSeconds: number): Promise<void>;
  /** Renews the lease; 0 seconds means that the lease is gone. */
  keepAlive(leaseId: bigint): Promise<{ ttlSeconds: number }>;
  /** Ends the lease and deletes its keys; succeeds for a lease that is already gone. */
  revokeLease(leaseId: bigint): Promise<void>;
}

/**
 * All keys that start with `prefix`, ordered by key, in pages of `limit` that fit into one answer. Each page is
 * linearizable, but one page may be of a later revision than the one before.
 */
export async function* pagesOf(
  etcd: Pick<EtcdPort, 'range'>,
  prefix: string,
  limit: number,
): AsyncGenerator<KeyValue, void> {
  for (let from = prefix; ; ) {
    const { kvs } = await etcd.range(prefix, { from, limit });
    yield* kvs;
    const last = kvs.at(-1);
    if (last === undefined || kvs.length < limit) return;
    from = `${last.key}\0`;
  }
}

/**
 * An entry to write to the witness topic: a witness, the removal of one, the UUID of the only valid namespace, or the
 * removal of the record under a raw key.
 */
export type WitnessEntry =
  | { readonly put: Witness }
  | { readonly drop: WitnessName }
  | { readonly seal: string }
  | { readonly clear: string };

/**
 * The witness topic of one datacenter: an ordered, replicated log that shares no fate with etcd. Both calls reject with
 * IdallocError KAFKA_UNAVAILABLE when the brokers did not answer in time; a write may still take effect later.
 */
export interface WitnessPort {
  /** Returns everything that was written before the call, and maybe more. */
  read(): Promise<WitnessView>;
  /**
   * Writes up to 2,000 entries together, and returns the content of the topic at some moment after them. So of two
   * writers at least one sees what the other wrote.
   */
  write(entries: readonly WitnessEntry[]): Promise<WitnessView>;
}

/**
 * A write whose outcome is read back afterwards. Without a response it may have taken effect or not. Rejects with
 * ETCD_REFUSED.
 */
export async function tryTransact(
  etcd: Pick<EtcdPort, 'transact'>,
  compares: readonly Compare[],
  operations: readonly KeyOperation[],
): Promise<void> {
  try {
    await etcd.transact(compares, operations);
  } catch (error) {
    if (!(error instanceof IdallocError && error.code === 'ETCD_UNAVAILABLE')) throw error;
  }
}
