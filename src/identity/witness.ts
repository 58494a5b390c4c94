import type { Descriptor } from '../codec/namespace-values.ts';
import { type Witness, type WitnessName, type WitnessView, witnessKey } from '../codec/witness.ts';
import { type LayoutReference, layoutTitle } from '../core/layout-choice.ts';
import { IdallocError } from '../errors.ts';
import type { Snapshot } from './keys.ts';

/**
 * The witness guards against the one thing that comparisons in etcd can't see: etcd itself being rolled back, by a
 * restored backup or a lost data directory. Each term writes its reservations to the witness topic before it uses them,
 * so at every acquire etcd must show at least that much for each worker ID.
 *
 * The topic is read first, then etcd: everything in the topic was in etcd before, so a legitimate raise in between can
 * only make etcd's ceiling the higher one.
 */

/**
 * Throws RESTORED unless etcd, read after `view`, has everything that was witnessed. One missing reservation blocks all
 * worker IDs: etcd is restored as a whole, and then repeats revisions, and so fences that already belonged to others.
 * Throws NAMESPACE_DAMAGED for an unreadable record, NAMESPACE_MISMATCH for one of another layout.
 */
export function requireNotRestored(view: WitnessView, snapshot: Snapshot, stored: Descriptor): void {
  const { uuid } = stored;
  requireReadable(view);
  const foreign = foreignUuid(view, uuid);
  if (foreign !== undefined)
    throw restored(`it holds the namespace ${uuid}, but the witness topic names ${foreign}`, OTHERS);
  const own = view.witnesses.filter((witness) => witness.uuid === uuid);
  requireSameLayout(own, stored);
  for (const witness of own) {
    const lost = describeLoss(witness, snapshot);
    if (lost !== undefined) throw restored(lost);
  }
}

/** Throws RESTORED when etcd has no namespace although one was used, NAMESPACE_MISMATCH when it had another layout. */
export function requireUnused(view: WitnessView, wanted: Descriptor): void {
  requireReadable(view);
  const used = view.seal ?? view.witnesses[0]?.uuid;
  const valid = view.witnesses.filter(({ uuid }) => uuid === used);
  requireSameLayout(valid, wanted);
  if (used !== undefined) throw restored(`it holds no namespace, but the witness topic names ${used}`, OTHERS);
}

/**
 * Throws NAMESPACE_MISMATCH for a witness of another layout: its ticks are other times, and IDs of two layouts can be
 * equal. The caller decides which witnesses count.
 */
export function requireSameLayout(witnesses: readonly Witness[], wanted: Descriptor): void {
  const other = witnesses.find(({ layout }) => layout && layout.layoutFingerprint !== wanted.layoutFingerprint);
  if (other?.layout === undefined) return;
  const key = witnessKey(wanted.datacenterId, other).toString('latin1');
  throw otherLayout(`the witness topic has a reservation (record '${key}')`, other.layout, wanted);
}

/** NAMESPACE_MISMATCH: `what` is in another layout than the one that is wanted. */
export function otherLayout(what: string, found: LayoutReference, wanted: LayoutReference): IdallocError {
  return new IdallocError(
    'NAMESPACE_MISMATCH',
    `Layout ${layoutTitle(wanted)} is configured, but ${what} in layout ${layoutTitle(found)}, and IDs of two layouts can be ` +
      'equal. Set LAYOUT, LAYOUT_EPOCH_MS and the other LAYOUT_* as the workers had them. To move to another layout, use ' +
      'another ETCD_PREFIX and ID_SPACE, and new topics.',
  );
}

/** A reservation that has just been written to the witness topic, under the lease of its term. */
export interface NewReservation extends WitnessName {
  /** The term's writes that had no response before this one. */
  readonly silentWrites: number;
  /** The first tick that it covers. */
  readonly from: number;
}

/** The name under which a reservation is written: no earlier write under it can land after this one. */
export function keyNameOf({ uuid, workerId, fence, leaseId, silentWrites }: NewReservation): WitnessName {
  return { uuid, workerId, fence, leaseId: BigInt.asUintN(LEASE_BITS, leaseId + BigInt(silentWrites)) };
}

/** Whether a record has one of the names of a term. */
function isOfTerm({ fence, leaseId }: Witness, own: NewReservation): boolean {
  return fence === own.fence && BigInt.asUintN(LEASE_BITS, leaseId - own.leaseId) <= BigInt(own.silentWrites);
}

const LEASE_BITS = 63;

/**
 * Throws when the topic, read past the witness of `own`, shows that another term has reserved ticks of the same worker
 * ID above the start of ours, or that the namespace was rebuilt meanwhile. Of two that reserve the same ticks, the
 * later in the log sees the earlier one here, whatever etcd answered. LEASE_LOST for a later term, which may have
 * started legitimately while we waited for the topic. RESTORED for an earlier term, or another one under our fence,
 * which etcd must have forgotten, and for a rebuild.
 */
export function requireNoRival(view: WitnessView, own: NewReservation): void {
  const foreign = foreignUuid(view, own.uuid);
  if (foreign !== undefined) throw restored(`the namespace ${own.uuid} was replaced by ${foreign}`);
  const rival = othersThan(view, own).find((other) => other.ticks > own.from && !isOfTerm(other, own));
  if (rival === undefined) return;
  const what = `worker ID ${own.workerId} is reserved by another worker up to tick ${rival.ticks} (fence ${rival.fence}), by this one from ${own.from}`;
  throw rival.fence > own.fence ? new IdallocError('LEASE_LOST', what) : restored(what);
}

/**
 * The witnesses of a worker ID under other names. Once `requireNoRival` has passed, they are of terms that have ended,
 * or of this one's earlier writes.
 */
export function othersThan(view: WitnessView, { uuid, workerId, fence, leaseId }: WitnessName): readonly Witness[] {
  return view.witnesses.filter(
    (witness) =>
      witness.uuid === uuid &&
      witness.workerId === workerId &&
      (witness.fence !== fence || witness.leaseId !== leaseId),
  );
}

/**
 * Another UUID than ours that is valid. A rebuild's seal voids all witnesses of earlier namespaces, past and future.
 */
function foreignUuid({ seal, witnesses }: WitnessView, uuid: string): string | undefined {
  if (seal !== undefined) return seal === uuid ? undefined : seal;
  return witnesses.find((witness) => witness.uuid !== uuid)?.uuid;
}

function describeLoss({ workerId, ticks, modRevision }: Witness, { ceilings }: Snapshot): string | undefined {
  const stored = ceilings.get(workerId);
  if (stored === undefined)
    return `it has no ceiling for worker ID ${workerId}, which was reserved up to tick ${ticks}`;
  if (stored.ticks < ticks)
    return `its ceiling of worker ID ${workerId} is tick ${stored.ticks}, but was ${ticks} before`;
  if (stored.modRevision < modRevision) {
    return `its ceiling of worker ID ${workerId} has revision ${stored.modRevision}, but had ${modRevision} before`;
  }
  return undefined;
}

function requireReadable({ unreadable }: WitnessView): void {
  const [first] = unreadable;
  if (first === undefined) return;
  throw new IdallocError(
    'NAMESPACE_DAMAGED',
    `The witness topic has ${unreadable.length} unreadable records; the first has key '${first.key}' and value '${first.value}'. Another program ` +
      "or a newer release wrote to it: stop all workers and run 'idalloc namespace rebuild' of the newest release in use.",
  );
}

/**
 * The other possible cause: this etcd never held the witnessed namespace. A rebuild would then take it from its
 * workers.
 */
const OTHERS =
  ' But if workers on another etcd serve this datacenter of the ID space, set another DATACENTER_ID here and do not rebuild.';

function restored(what: string, otherwise = ''): IdallocError {
  return new IdallocError(
    'RESTORED',
    `etcd was rolled back: ${what}. New IDs could repeat old ones, so none are allocated: stop the workers of this datacenter that ` +
      `still serve (those that refuse can keep running and recover), and run 'idalloc namespace rebuild'.${otherwise}`,
  );
}
