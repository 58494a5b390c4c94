/**
 * What the identity needs from etcd: the few operations of a linearizable key-value store with leases. Every call
 * rejects with IdallocError ETCD_UNAVAILABLE (cause attached) when no endpoint answered in time; a rejected call may
 * still have taken effect, or may take effect later.
 */

/** A stored key as etcd shows it; leaseId is 0n for a key outside any lease. */
export interface KeyValue {
  readonly key: string;
  readonly value: Buffer;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly leaseId: bigint;
}

/** Equality only. createRevision 0n says that the key is absent. */
export type Compare =
  | { readonly key: string; readonly createRevision: bigint }
  | { readonly key: string; readonly modRevision: bigint }
  | { readonly key: string; readonly value: Buffer };

export type Operation =
  | { readonly put: string; readonly value: Buffer; readonly leaseId?: bigint }
  | { readonly delete: string };

export interface EtcdPort {
  /** Linearizable read of all keys that start with prefix, at one revision, ordered by key. */
  range(prefix: string): Promise<{ revision: bigint; kvs: readonly KeyValue[] }>;
  /** The keys that exist, read in one transaction; at most 128 keys. */
  get(keys: readonly string[]): Promise<ReadonlyMap<string, KeyValue>>;
  /** All operations when all comparisons hold, else none; at most 128 of each. May throw though it took effect. */
  transact(
    compares: readonly Compare[],
    operations: readonly Operation[],
  ): Promise<{ succeeded: boolean; revision: bigint }>;
  /** The caller chooses the ID, so a repeated grant is harmless. */
  grantLease(leaseId: bigint, ttlSeconds: number): Promise<void>;
  /** Renews the lease; 0 seconds: the lease is gone. */
  keepAlive(leaseId: bigint): Promise<{ ttlSeconds: number }>;
  /** Ends the lease and deletes its keys; a lease that is gone is fine. */
  revokeLease(leaseId: bigint): Promise<void>;
}
