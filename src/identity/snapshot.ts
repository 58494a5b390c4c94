import { decodeCeiling } from '../codec/namespace-values.ts';
import type { Ticks } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { NamespaceKeys } from './keys.ts';
import type { EtcdPort, KeyValue } from './ports.ts';

/** A ceiling as it is stored: the nonce identifies the last raise, the revision the state. */
export interface StoredCeiling {
  readonly ticks: Ticks;
  readonly nonce: string;
  readonly modRevision: bigint;
}

/** A namespace at one revision. */
export interface Snapshot {
  readonly descriptor: KeyValue | undefined;
  readonly owners: ReadonlyMap<number, KeyValue>;
  readonly ceilings: ReadonlyMap<number, StoredCeiling>;
}

/** Decodes a stored ceiling. Throws NAMESPACE_DAMAGED when it is unreadable: that never means "start fresh". */
export function readCeiling(kv: KeyValue): StoredCeiling {
  try {
    return { ...decodeCeiling(kv.value), modRevision: kv.modRevision };
  } catch (error) {
    throw unreadable(kv, error);
  }
}

/** All of a namespace in one read. Throws NAMESPACE_DAMAGED for an unreadable ceiling, ETCD_UNAVAILABLE. */
export async function readSnapshot(etcd: EtcdPort, keys: NamespaceKeys): Promise<Snapshot> {
  const { kvs } = await etcd.range(keys.root);
  const owners = new Map<number, KeyValue>();
  const ceilings = new Map<number, StoredCeiling>();
  for (const kv of kvs) {
    const place = keys.parse(kv.key);
    if (place?.kind === 'owner') owners.set(place.workerId, kv);
    else if (place?.kind === 'ceiling') ceilings.set(place.workerId, readCeiling(kv));
  }
  return { descriptor: kvs.find(({ key }) => key === keys.descriptor), owners, ceilings };
}

/** Throws NAMESPACE_DAMAGED when any of these workers has no ceiling. */
export function requireCeilings(snapshot: Snapshot, workerIds: readonly number[], keys: NamespaceKeys): void {
  const missing = workerIds.filter((workerId) => !snapshot.ceilings.has(workerId));
  const [first] = missing;
  if (first === undefined) return;
  throw namespaceDamaged(`${missing.length} ceilings are missing, the first is ${keys.ceiling(first)}`);
}

/** The codec's error as NAMESPACE_DAMAGED, with the key concerned. */
export function unreadable(kv: KeyValue, error: unknown): IdallocError {
  const why = error instanceof IdallocError ? error.message : describeError(error);
  return new IdallocError('NAMESPACE_DAMAGED', `${kv.key}: ${why}`, { cause: error });
}

/** NAMESPACE_DAMAGED with its remedy. */
export function namespaceDamaged(what: string): IdallocError {
  const remedy =
    "Nothing is allocated on a guess: stop all workers of this datacenter, run 'idalloc namespace rebuild', " +
    'and start them again.';
  return new IdallocError('NAMESPACE_DAMAGED', `The namespace in etcd is damaged: ${what}. ${remedy}`);
}
