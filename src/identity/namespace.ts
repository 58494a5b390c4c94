import {
  compareDescriptors,
  type Descriptor,
  decodeDescriptor,
  encodeCeiling,
  encodeDescriptor,
} from '../codec/namespace-values.ts';
import { ticks } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { type Bindings, bindNamespace, claimDatacenter } from './bindings.ts';
import { type Compare, type EtcdPort, type KeyValue, tryTransact, type WitnessPort } from './identity-ports.ts';
import {
  type NamespaceKeys,
  namespaceDamaged,
  readSnapshot,
  requireCeilings,
  type Snapshot,
  unreadable,
} from './keys.ts';
import { requireNotRestored, requireUnused } from './witness.ts';

/** A namespace that matches the configuration; its descriptor's bytes are compared in every acquire. */
export interface Namespace {
  readonly descriptor: Descriptor;
  readonly descriptorValue: Buffer;
}

export interface OpenOptions {
  readonly etcd: EtcdPort;
  readonly witness: WitnessPort;
  readonly keys: NamespaceKeys;
  /** Its UUID is used if the namespace is created; otherwise the stored one remains. */
  readonly wanted: Descriptor;
  readonly bindings: Bindings;
  readonly newNonce: () => string;
}

/** Ceilings created in one transaction: one more comparison than this must still fit into etcd's 128. */
const CHUNK = 100;

/** Steps beyond one for each chunk: lost answers, lost races and the descriptor itself. */
const SPARE_STEPS = 20;

/**
 * Makes sure that the namespace exists and is the wanted one.
 *
 * The datacenter is claimed first, so that two namespaces never allocate its IDs. Then the ceilings are created, and
 * the descriptor last; both create-only, the ceilings only while there is no descriptor. So a descriptor means that all
 * ceilings exist, a crashed initialisation is resumed by the next worker, and of two different ones the first wins and
 * the other is rejected. A fresh read decides each step, never the answer to a write. The other bindings are settled
 * once the descriptor agrees.
 *
 * A used namespace that is gone or was rolled back is never recreated: RESTORED.
 * Throws also NAMESPACE_MISMATCH (naming each differing field), NAMESPACE_DAMAGED, ETCD_UNAVAILABLE, KAFKA_UNAVAILABLE.
 */
export async function openNamespace(options: OpenOptions): Promise<Namespace> {
  const { etcd, witness, keys, wanted, bindings, newNonce } = options;
  await claimDatacenter(etcd, bindings);
  const pool = poolIds(wanted.pool);
  const steps = Math.ceil(pool.length / CHUNK) + SPARE_STEPS;
  for (let step = 0; step < steps; step += 1) {
    const view = await witness.read();
    const snapshot = await readSnapshot(etcd, keys);
    if (snapshot.descriptor) {
      const descriptor = requireDescriptor(snapshot.descriptor, wanted);
      requireNotRestored(view, snapshot, descriptor);
      requireCeilings(snapshot, poolIds(descriptor.pool), keys);
      await bindNamespace(etcd, bindings);
      return { descriptor, descriptorValue: snapshot.descriptor.value };
    }
    requireUnused(view, wanted);
    rejectLeftovers(snapshot, keys);
    const missing = pool.filter((workerId) => !snapshot.ceilings.has(workerId)).slice(0, CHUNK);
    const absent: Compare = { key: keys.descriptor, createRevision: 0n };
    if (missing.length === 0) {
      const there = newestCeiling(snapshot, keys);
      await tryTransact(etcd, [absent, there], [{ put: keys.descriptor, value: encodeDescriptor(wanted) }]);
    } else {
      const value = encodeCeiling({ ticks: ticks(0), nonce: newNonce() });
      const ceilings = missing.map((workerId) => keys.ceiling(workerId));
      await tryTransact(
        etcd,
        [absent, ...ceilings.map((key) => ({ key, createRevision: 0n }))],
        ceilings.map((key) => ({ put: key, value })),
      );
    }
  }
  throw new IdallocError('ETCD_UNAVAILABLE', `the namespace ${keys.root} was not initialised in ${steps} steps`);
}

/**
 * A comparison that fails if any known ceiling is gone: an etcd that was rolled back meanwhile lacks the newest first.
 */
export function newestCeiling({ ceilings }: Pick<Snapshot, 'ceilings'>, keys: NamespaceKeys): Compare {
  const revisions = [...ceilings].map(([workerId, { modRevision }]) => ({ key: keys.ceiling(workerId), modRevision }));
  return revisions.reduce((newest, next) => (next.modRevision > newest.modRevision ? next : newest));
}

/** The worker IDs of a pool, lowest first. */
export function poolIds(pool: { readonly first: number; readonly last: number }): readonly number[] {
  return Array.from({ length: pool.last - pool.first + 1 }, (_, index) => pool.first + index);
}

/** Throws NAMESPACE_MISMATCH with each field that differs, and both its values. */
export function requireDescriptor(stored: KeyValue, wanted: Descriptor): Descriptor {
  const descriptor = readDescriptor(stored);
  const differences = compareDescriptors(descriptor, wanted);
  if (differences.length === 0) return descriptor;
  const listed = differences.map(({ field, stored: has, wanted: wants }) => `${field} is ${has}, configured ${wants}`);
  throw new IdallocError(
    'NAMESPACE_MISMATCH',
    `The namespace in etcd (${stored.key}) was created for another configuration: ${listed.join('; ')}. ` +
      'Configure what is stored, or use another DATACENTER_ID.',
  );
}

function readDescriptor(stored: KeyValue): Descriptor {
  try {
    return decodeDescriptor(stored.value);
  } catch (error) {
    throw unreadable(stored, error);
  }
}

/** A crashed initialisation leaves ceilings at 0. Anything more means a namespace in use that lost its descriptor. */
function rejectLeftovers(snapshot: Snapshot, keys: NamespaceKeys): void {
  const raised = [...snapshot.ceilings].find(([, ceiling]) => ceiling.ticks !== 0);
  if (raised) throw namespaceDamaged(`there is no descriptor, but ${keys.ceiling(raised[0])} is in use`);
  const [owner] = snapshot.owners.keys();
  if (owner !== undefined) throw namespaceDamaged(`there is no descriptor, but ${keys.owner(owner)} has an owner`);
}
