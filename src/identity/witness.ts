import type { Witness, WitnessName, WitnessView } from '../codec/witness.ts';
import { IdallocError } from '../errors.ts';
import type { Snapshot } from './snapshot.ts';

/**
 * The witness guards against the one thing that comparisons in etcd can't see: etcd itself being rolled back, by a restored
 * backup or a lost data directory. Each term writes its reservations to the witness topic before it uses them, so at
 * every acquire etcd must show at least that much for each worker ID.
 *
 * The topic is read first, then etcd: everything in the topic was in etcd before, so a legitimate raise in between can
 * only make etcd's ceiling the higher one.
 */

/**
 * Throws RESTORED unless etcd, read after `view`, has everything that was witnessed. One missing reservation blocks all
 * worker IDs: etcd is restored as a whole, and then repeats revisions, and so fences that already belonged to others.
 * Throws NAMESPACE_DAMAGED for an unreadable record.
 */
export function requireNotRestored(view: WitnessView, snapshot: Snapshot, uuid: string): void {
  requireReadable(view);
  const foreign = foreignUuid(view, uuid);
  if (foreign !== undefined)
    throw restored(`it holds the namespace ${uuid}, but the witness topic names ${foreign}`, OTHERS);
  for (const witness of view.witnesses) {
    if (witness.uuid !== uuid) continue;
    const lost = describeLoss(witness, snapshot);
    if (lost !== undefined) throw restored(lost);
  }
}

/** Throws RESTORED when etcd has no namespace although one was used. */
export function requireUnused(view: WitnessView): void {
  requireReadable(view);
  const used = view.seal ?? view.witnesses[0]?.uuid;
  if (used !== undefined) throw restored(`it holds no namespace, but the witness topic names ${used}`, OTHERS);
}

/** A reservation that has just been written to the witness topic. */
export interface NewReservation extends WitnessName {
  /** The first tick that it covers. */
  readonly from: number;
}

/**
 * Throws when the topic, read past the witness of `own`, shows that another term has reserved ticks of the same worker ID
 * above the start of ours, or that the namespace was rebuilt meanwhile. Of two that reserve the same ticks, the later in
 * the log sees the earlier one here, whatever etcd answered. LEASE_LOST for a later term, which may have started
 * legitimately while we waited for the topic. RESTORED for an earlier term, or another one under our fence, which etcd
 * must have forgotten, and for a rebuild.
 */
export function requireNoRival(view: WitnessView, own: NewReservation): void {
  const foreign = foreignUuid(view, own.uuid);
  if (foreign !== undefined) throw restored(`the namespace ${own.uuid} was replaced by ${foreign}`);
  const rival = otherTerms(view, own).find(({ ticks }) => ticks > own.from);
  if (rival === undefined) return;
  const what = `worker ID ${own.workerId} is reserved by another worker up to tick ${rival.ticks} (fence ${rival.fence}), by this one from ${own.from}`;
  throw rival.fence > own.fence ? new IdallocError('LEASE_LOST', what) : restored(what);
}

/** The witnesses of other terms of a worker ID; all of them ended before ours, once `requireNoRival` has passed. */
export function otherTerms(view: WitnessView, { uuid, workerId, fence, leaseId }: WitnessName): readonly Witness[] {
  return view.witnesses.filter(
    (witness) =>
      witness.uuid === uuid &&
      witness.workerId === workerId &&
      (witness.fence !== fence || witness.leaseId !== leaseId),
  );
}

/** Another UUID than ours that is valid. A rebuild's seal voids all witnesses of earlier namespaces, past and future. */
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

/** The other possible cause: this etcd never held the witnessed namespace. A rebuild would then take it from its workers. */
const OTHERS =
  ' But if workers on another etcd serve this datacenter of the ID space, set another DATACENTER_ID here and do not rebuild.';

function restored(what: string, otherwise = ''): IdallocError {
  return new IdallocError(
    'RESTORED',
    `etcd was rolled back: ${what}. New IDs could repeat old ones, so none are allocated: stop the workers of this datacenter that ` +
      `still serve (those that refuse can keep running and recover), and run 'idalloc namespace rebuild'.${otherwise}`,
  );
}
