import { encodeCeiling } from '../codec/ceiling.ts';
import { encodeLeaseRecord } from '../codec/lease-record.ts';
import { describeError, IdallocError } from '../errors.ts';
import { poolIds, requireDescriptor } from './namespace.ts';
import type { KeyValue } from './ports.ts';
import type { Attempt, Reign, Swap } from './reign.ts';
import type { IdentitySettings } from './settings.ts';
import { damaged, readSnapshot, requireCeilings, type Snapshot } from './snapshot.ts';

/** The worker IDs that this process may hold. */
export function candidatesOf({ namespace, staticWorkerId }: IdentitySettings): readonly number[] {
  return staticWorkerId === undefined ? poolIds(namespace.descriptor.pool) : [staticWorkerId];
}

/**
 * The namespace as it is now, with a ceiling for each candidate. Throws NAMESPACE_MISMATCH or NAMESPACE_DAMAGED when it
 * is no longer the one that was opened.
 */
export async function readNamespace(settings: IdentitySettings): Promise<Snapshot> {
  const { etcd, keys, namespace } = settings;
  const snapshot = await readSnapshot(etcd, keys);
  if (!snapshot.descriptor) throw damaged(`the descriptor ${keys.descriptor} is missing`);
  if (!snapshot.descriptor.value.equals(namespace.descriptorValue)) {
    requireDescriptor(snapshot.descriptor, namespace.descriptor);
    throw new IdallocError(
      'NAMESPACE_MISMATCH',
      `The namespace in etcd (${keys.descriptor}) was replaced while this worker ran. Stop all workers of it first.`,
    );
  }
  requireCeilings(snapshot, candidatesOf(settings), keys);
  return snapshot;
}

/** The transaction that makes a worker ID ours: nobody has it, nothing has changed since we read it. */
export async function sendClaim(settings: IdentitySettings, attempt: Attempt): Promise<void> {
  const { etcd, keys, namespace, timing, workerIp } = settings;
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
      { key: keys.descriptor, value: namespace.descriptorValue },
      { key: ceiling, modRevision: attempt.swap.comparedRevision },
    ],
    [
      { put: owner, value: record, leaseId: attempt.leaseId },
      { put: ceiling, value: encodeCeiling(attempt.swap) },
    ],
  );
}

/** The transaction that raises our ceiling: we own the worker ID still, and nobody has raised it since. */
export async function sendSwap(settings: IdentitySettings, reign: Reign, swap: Swap): Promise<void> {
  const { etcd, keys } = settings;
  const ceiling = keys.ceiling(reign.workerId);
  await etcd.transact(
    [
      { key: keys.owner(reign.workerId), createRevision: reign.fence },
      { key: ceiling, modRevision: swap.comparedRevision },
    ],
    [{ put: ceiling, value: encodeCeiling(swap) }],
  );
}

/** Sends a write whose answer decides nothing: success, failure and silence are all read back. */
export async function sendUndecided({ log }: IdentitySettings, write: Promise<void>): Promise<void> {
  try {
    await write;
  } catch (error) {
    log('warn', 'no answer to a write: reading back what became of it', { error: describeError(passing(error)) });
  }
}

/** The reign with all that is stored as ours usable, once whoever must agree has agreed; rejects as `confirm` does. */
export async function confirmed({ confirm }: IdentitySettings, reign: Reign): Promise<Reign> {
  const { workerId, fence, stored } = reign;
  if (stored.ticks === reign.reservation.to) return reign;
  const reservation = { from: reign.reservation.from, to: stored.ticks };
  await confirm?.({ workerId, fence, reservation, modRevision: stored.modRevision });
  return { ...reign, reservation };
}

/** The two keys that tell whose a worker ID is, at one revision. */
export async function readClaim(
  { etcd, keys }: IdentitySettings,
  workerId: number,
): Promise<{ owner: KeyValue | undefined; ceiling: KeyValue | undefined }> {
  const [owner, ceiling] = [keys.owner(workerId), keys.ceiling(workerId)];
  const found = await etcd.get([owner, ceiling]);
  return { owner: found.get(owner), ceiling: found.get(ceiling) };
}

/** Gives a lease back, with its owner key. Without an answer the lease runs out by itself. */
export async function revokeQuietly({ etcd, log }: IdentitySettings, leaseId: bigint): Promise<boolean> {
  try {
    await etcd.revokeLease(leaseId);
    return true;
  } catch (error) {
    log('warn', 'a lease was not given back and will run out by itself', {
      leaseId: String(leaseId),
      error: describeError(error),
    });
    return false;
  }
}

/** The fault as one that may pass; anything else (damage, a difference, a defect) is thrown on. */
export function passing(error: unknown): IdallocError {
  if (error instanceof IdallocError && error.retryable) return error;
  throw error;
}
