import { encodeCeiling, encodeLeaseRecord } from '../codec/namespace-values.ts';
import { describeError, IdallocError } from '../errors.ts';
import { bindNamespace, clusterRefusal } from './bindings.ts';
import type { KeyValue, WitnessEntry } from './identity-ports.ts';
import { namespaceDamaged, readSnapshot, requireCeilings, type Snapshot } from './keys.ts';
import { type Namespace, poolIds, requireDescriptor } from './namespace.ts';
import type { IdentitySettings } from './state.ts';
import { type Attempt, type ReadBack, readBack, type Swap, type Term, withoutSwap } from './term.ts';
import { keyNameOf, othersThan, requireNoRival, requireNotRestored, requireUnused } from './witness.ts';

/** One write removes so many witnesses; a worker ID that changes hands quickly leaves thousands. */
const MAX_DROPS = 500;

/** The worker IDs that this process may hold. */
export function candidatesOf({ namespace, staticWorkerId }: IdentitySettings): readonly number[] {
  return staticWorkerId === undefined ? poolIds(namespace.descriptor.pool) : [staticWorkerId];
}

/** Throws CONFIG_INVALID for a static worker ID outside the pool. */
export function requireInPool({ namespace, staticWorkerId }: IdentitySettings): void {
  const { first, last } = namespace.descriptor.pool;
  const wanted = staticWorkerId ?? first;
  if (wanted >= first && wanted <= last) return;
  throw new IdallocError('CONFIG_INVALID', `WORKER_ID ${wanted} is outside the pool ${first}..${last}`);
}

/**
 * The namespace as it is now, with a ceiling for each candidate; the witness topic is read before etcd. It may have
 * been rebuilt since it was opened, and its bindings with it. Throws RESTORED when etcd was rolled back,
 * NAMESPACE_MISMATCH or NAMESPACE_DAMAGED when the namespace is not as configured, ETCD_UNAVAILABLE, KAFKA_UNAVAILABLE.
 */
export async function readNamespace(settings: IdentitySettings): Promise<{ namespace: Namespace; snapshot: Snapshot }> {
  const { etcd, witness, keys } = settings;
  const view = await witness.read();
  const snapshot = await readSnapshot(etcd, keys);
  if (!snapshot.descriptor) {
    requireUnused(view, settings.namespace.descriptor);
    throw namespaceDamaged(`the descriptor ${keys.descriptor} is missing`);
  }
  const descriptor = requireDescriptor(snapshot.descriptor, settings.namespace.descriptor);
  requireNotRestored(view, snapshot, descriptor);
  requireCeilings(snapshot, candidatesOf(settings), keys);
  await bindNamespace(etcd, settings.bindings);
  return { namespace: { descriptor, descriptorValue: snapshot.descriptor.value }, snapshot };
}

/** The transaction that makes a worker ID ours, if it has no owner and nothing has changed since we read it. */
export async function sendClaim(settings: IdentitySettings, attempt: Attempt): Promise<void> {
  const { etcd, keys, timing, workerIp } = settings;
  const [owner, ceiling] = [keys.owner(attempt.workerId), keys.ceiling(attempt.workerId)];
  const record = encodeLeaseRecord({
    assignedWorkerIp: workerIp,
    leaseTtlSeconds: timing.ttlMs / 1000,
    heartbeatToken: attempt.swap.nonce,
    grantedAtMs: attempt.sent.wall,
  });
  await etcd.transact(
    [
      { key: owner, createRevision: 0n },
      { key: keys.descriptor, value: attempt.namespace.descriptorValue },
      { key: ceiling, modRevision: attempt.swap.comparedRevision },
    ],
    [
      { put: owner, value: record, leaseId: attempt.leaseId },
      { put: ceiling, value: encodeCeiling(attempt.swap) },
    ],
  );
}

/**
 * The transaction that raises our ceiling, if we still own the worker ID and the ceiling has not changed. An etcd that
 * was rolled back repeats revisions; the namespace that is rebuilt after that has another descriptor, which keeps us
 * out.
 */
async function sendSwap(settings: IdentitySettings, term: Term, swap: Swap): Promise<void> {
  const { etcd, keys } = settings;
  const ceiling = keys.ceiling(term.workerId);
  await etcd.transact(
    [
      { key: keys.owner(term.workerId), createRevision: term.fence },
      { key: keys.descriptor, value: term.namespace.descriptorValue },
      { key: ceiling, modRevision: swap.comparedRevision },
    ],
    [{ put: ceiling, value: encodeCeiling(swap) }],
  );
}

/**
 * Sends a write whose response decides nothing: its outcome is read back after success, failure and silence alike.
 * Returns why it failed. Only a write that was answered, with ETCD_REFUSED as well, can't take effect later. The
 * adapter reports refusals.
 */
export async function sendIgnoringResponse(
  { log }: IdentitySettings,
  write: Promise<void>,
): Promise<IdallocError | undefined> {
  try {
    await write;
    return undefined;
  } catch (thrown) {
    const error = asRetryable(thrown);
    const isAnswered = error.code === 'ETCD_REFUSED';
    const what = isAnswered ? 'etcd refused a write' : 'no response to a write';
    log(isAnswered ? 'debug' : 'warn', `${what}: reading back whether it took effect`, { error: describeError(error) });
    return error;
  }
}

/** Sends a raise of our ceiling, if there is one, and reads back whose the worker ID is. `attempted` knows the swap. */
export async function raiseAndReadBack(
  settings: IdentitySettings,
  attempted: Term,
  swap: Swap | undefined,
): Promise<ReadBack> {
  const error = swap && (await sendIgnoringResponse(settings, sendSwap(settings, attempted, swap)));
  const isAnswered = error === undefined || error.code === 'ETCD_REFUSED';
  const { owner, ceiling } = await readClaim(settings, attempted.workerId);
  const found = readBack(attempted, owner, ceiling);
  return found.kind === 'ours' && swap && isAnswered ? { ...found, term: withoutSwap(found.term, swap) } : found;
}

/**
 * The term with its stored ceiling usable, once the witness topic holds it too. Rejects with KAFKA_UNAVAILABLE, and as
 * `requireNoRival` does; the caller then counts a silent write, so that the next one has another key. The witnesses of
 * earlier terms and keys are removed, some at a time, by later writes: only after ours has been read together with
 * them.
 */
export async function withWitness({ witness }: IdentitySettings, term: Term): Promise<Term> {
  const { workerId, fence, leaseId, silentWrites, stored, reservation } = term;
  const { descriptor } = term.namespace;
  if (stored.ticks === reservation.to) return term;
  const own = { uuid: descriptor.uuid, workerId, fence, leaseId, silentWrites, from: reservation.from };
  const name = keyNameOf(own);
  const put: WitnessEntry = {
    put: { ...name, ticks: stored.ticks, modRevision: stored.modRevision, layout: descriptor },
  };
  const drops = term.superseded.slice(0, MAX_DROPS).map((drop) => ({ drop }));
  const view = await witness.write([put, ...drops]);
  requireNoRival(view, own);
  return { ...term, reservation: { from: reservation.from, to: stored.ticks }, superseded: othersThan(view, name) };
}

/**
 * The two keys that say who holds a worker ID, at one revision. Throws CLUSTER_CHANGED if the namespace has another
 * cluster since.
 */
export async function readClaim(
  { etcd, keys, bindings }: IdentitySettings,
  workerId: number,
): Promise<{ owner: KeyValue | undefined; ceiling: KeyValue | undefined }> {
  const [owner, ceiling] = [keys.owner(workerId), keys.ceiling(workerId)];
  const found = await etcd.get([owner, ceiling, ...(bindings.cluster ? [bindings.cluster.key] : [])]);
  const changed = clusterRefusal(bindings, found);
  if (changed !== undefined) throw changed;
  return { owner: found.get(owner), ceiling: found.get(ceiling) };
}

/** Revokes a lease, which deletes its owner key. Without a response the lease expires. */
export async function revokeQuietly({ etcd, log }: IdentitySettings, leaseId: bigint): Promise<boolean> {
  try {
    await etcd.revokeLease(leaseId);
    return true;
  } catch (error) {
    log('warn', 'a lease could not be revoked and will expire', {
      leaseId: String(leaseId),
      error: describeError(error),
    });
    return false;
  }
}

/**
 * The code of an error that an operator's command ends: etcd was rolled back, or Kafka is another cluster. No worker
 * exits because of that. Undefined for any other error.
 */
export function operatorsCode(error: unknown): 'RESTORED' | 'CLUSTER_CHANGED' | undefined {
  const code = error instanceof IdallocError ? error.code : undefined;
  return code === 'RESTORED' || code === 'CLUSTER_CHANGED' ? code : undefined;
}

/** The code with which this error ends a term; undefined when the term may continue. */
export function lossCode(error: unknown): 'LEASE_LOST' | ReturnType<typeof operatorsCode> {
  const code = operatorsCode(error);
  if (code !== undefined) return code;
  const lost = error instanceof IdallocError && (error.code === 'LEASE_LOST' || error.code === 'NAMESPACE_DAMAGED');
  return lost ? 'LEASE_LOST' : undefined;
}

/** Returns a retryable error; rethrows anything else (damage, a mismatch, a bug). */
export function asRetryable(error: unknown): IdallocError {
  if (error instanceof IdallocError && error.retryable) return error;
  throw error;
}
