/**
 * Who keeps which copy.
 *
 * A partition is answered by the member of the group that owns it, and its owner needs a copy of that partition's
 * ledger: the index of every decision. A member that lacks the copy restores it first, which takes minutes in a large
 * partition. So the question is not only who owns what. It is who may own it now, and who prepares to own it next.
 *
 * The trap is that the obvious plans are each good for one moment only. A plan that is balanced moves partitions to a
 * member that has just arrived with an empty disk, and they are answered by nobody until it has read them. A plan that
 * moves nothing leaves a new member idle for ever. And a plan that depends on chance, or on the order in which members
 * happen to join, moves partitions at each rebalance, although nothing has changed.
 *
 * The idea is to separate the target from the present. The target is balanced, and sticky: members keep what they have
 * as far as their shares allow. Each partition then has an interim owner. It is the target owner if its copy is
 * complete. Otherwise the partition stays with a member whose copy is, while the target owner keeps a standby copy and
 * warms up (KIP-441). The next plans keep that promise: a warm-up is a claim as well, stronger than that of the present
 * owner. When it is complete, its member asks for another rebalance, and gets the partition then. Besides warm-ups,
 * each partition has as many standbys as the settings say, chosen so that many members can take over what one leaves.
 * Where members say in which zone they run, one standby at least is in another zone than the owner, so that the loss of
 * a zone is not the loss of a partition's copies.
 *
 * Plans are made by whoever leads the group, from what the members report as they join: what they own, keep and warm up
 * (their claims, with the generation in which they got them), how complete their copies are, and which partitions they
 * can't serve because they do not reach a broker. Reports are not from the same moment, so a copy that was complete
 * when its member reported counts as complete, though the log has grown a little since.
 *
 * The rules, in the order in which they win: no partition waits while some member could answer it; promises are kept;
 * shares differ by one at most; whatever can stay, stays; and the same members give the same plan, in any order.
 */

export interface PlanSettings {
  /** The number of partitions of the topic. */
  readonly partitions: number;
  /** Members besides the owner that keep a copy of each partition. */
  readonly standbys: number | 'all';
  /** Entries that a copy may lack for its member to own the partition immediately. */
  readonly acceptableLag: number;
}

/** Shares by member ID. */
export type Plan = ReadonlyMap<string, Share>;

/**
 * Plans the owner and the standbys of each partition.
 *
 * The target is balanced and sticky. A partition whose target owner has no complete copy stays with a member that has
 * one, while the target owner warms up as a standby (KIP-441). Later plans keep that promise: it gets the partition in
 * the first plan that finds its copy complete. The same members give the same plan, in any order.
 */
export function planGroup({ partitions, standbys, acceptableLag }: PlanSettings, members: readonly Candidate[]): Plan {
  const candidates = inOrder(members);
  const lags = new Lags(candidates, acceptableLag);
  const targets = assignSticky(partitions, candidates, lags);
  const owners = interimOwners(candidates, targets, lags);
  const count = standbys === 'all' ? Number.POSITIVE_INFINITY : standbys;
  const copying = chooseStandbys(candidates, owners, targets, lags, count);
  const all = Array.from(targets.keys());
  return new Map(
    candidates.map((candidate) => {
      const standbysOf = [...(copying.get(candidate) ?? [])].sort((one, other) => one - other);
      const share = {
        partitions: all.filter((partition) => owners[partition] === candidate),
        standbys: standbysOf,
        warmups: standbysOf.filter((partition) => targets[partition] === candidate),
      };
      return [candidate.memberId, share];
    }),
  );
}

/**
 * The interim owner of each partition, so that no partition waits for a restore or for a broker while another member
 * could serve it. Of the members that reach its brokers, or of all if none does:
 *
 * - The target owner, if it is caught up, or if no member is and it reaches them: then it restores the partition.
 * - Else the current owner, if it is caught up.
 * - Else the member that owns the fewest among those caught up.
 * - Else the member that owns the fewest among those that reach its brokers, which restores the partition.
 */
function interimOwners(candidates: readonly Candidate[], targets: readonly Candidate[], lags: Lags): Candidate[] {
  const present = presentOwners(candidates);
  const choices = targets.map((target, partition): StandbyChoice => {
    const reaching = candidates.filter(({ unreached = [] }) => !unreached.includes(partition));
    const able = reaching.length === 0 ? candidates : reaching;
    const caughtUp = able.filter((one) => lags.isCaughtUp(one, partition));
    const first = [target, present.get(partition)].find((one) => one !== undefined && caughtUp.includes(one));
    if (first !== undefined) return { owner: first, others: [] };
    return { owner: undefined, others: caughtUp.length > 0 ? caughtUp : able.includes(target) ? [target] : able };
  });
  const owned = new Map(candidates.map((one) => [one, choices.filter(({ owner }) => owner === one).length]));
  const count = (one: Candidate) => owned.get(one) ?? 0;
  return choices.map(({ owner, others }, partition) => {
    if (owner !== undefined) return owner;
    const [standIn = targets[partition] as Candidate] = others.toSorted((one, other) => count(one) - count(other));
    owned.set(standIn, count(standIn) + 1);
    return standIn;
  });
}

/** Who owns a partition for now, or among whom the one with the fewest is chosen. */
interface StandbyChoice {
  readonly owner: Candidate | undefined;
  readonly others: readonly Candidate[];
}

/** The owners by the newest claims; within one generation the first member wins. */
function presentOwners(candidates: readonly Candidate[]): ReadonlyMap<number, Candidate> {
  const claims = candidates.flatMap((candidate) => candidate.claims.map((claim) => ({ candidate, ...claim })));
  const oldestFirst = claims.reverse().sort((one, other) => one.generation - other.generation);
  return new Map(
    oldestFirst.flatMap(({ candidate, partitions }) => partitions.map((partition) => [partition, candidate])),
  );
}

interface Keeper {
  readonly candidate: Candidate;
  readonly before: ReadonlySet<number>;
  readonly partitions: Set<number>;
  /** How many of its copies are of partitions of the same owner. */
  readonly ofOwner: Map<Candidate, number>;
}

/**
 * Chooses the standbys of each partition: `perPartition` members, or as many as there are.
 *
 * - Members that warm up are always among them, whatever `perPartition` is.
 * - Then members keep what they were standbys of before, up to their share. Without this first pass, the order in which
 *   partitions are dealt could give one away that its standby keeps, and back again in the next plan.
 * - Members with the most complete copies come first; all that are caught up are equal.
 * - Among equals: one in another zone than the owner, then one with less than its share, then one that was a standby
 *   before, then one with any copy, then the one with the fewest copies of the same owner, so that many can take over
 *   what an owner leaves, then the fewest.
 * - If all of them are in the owner's zone, since only there copies are complete, a member in another zone makes one
 *   more. A later plan, which finds that copy complete, needs those in the owner's zone no longer.
 */
function chooseStandbys(
  candidates: readonly Candidate[],
  owners: readonly Candidate[],
  targets: readonly Candidate[],
  lags: Lags,
  perPartition: number,
): ReadonlyMap<Candidate, ReadonlySet<number>> {
  const keepers = candidates.map(keeperOf);
  const others = owners.map((owner) => keepers.filter(({ candidate }) => candidate !== owner));
  const wanted = others.map(({ length }) => Math.min(perPartition, length));
  const part = wanted.reduce((sum, one) => sum + one, 0) / keepers.length;
  for (const keeper of keepers) {
    owners.forEach((owner, partition) => {
      if (targets[partition] === keeper.candidate && owner !== keeper.candidate) add(keeper, partition, owner);
    });
  }
  const isBestPlace = (keeper: Keeper, partition: number) => {
    const [owner, all] = [owners[partition] as Candidate, others[partition] ?? []];
    return isApart(keeper, owner) || !all.some((one) => isApart(one, owner));
  };
  const keeps = (keeper: Keeper, partition: number) => {
    const { candidate, before, partitions } = keeper;
    const isComplete = before.has(partition) && lags.isCaughtUp(candidate, partition);
    return isComplete && isBestPlace(keeper, partition) && partitions.size < Math.floor(part);
  };
  for (const isEligible of [keeps, () => true]) {
    for (const { owner, partition } of inTurn(owners)) {
      const able = others[partition] ?? [];
      const free = able.filter(({ partitions }) => !partitions.has(partition));
      const missing = Math.max(0, (wanted[partition] ?? 0) - (able.length - free.length));
      const eligible = free.filter((keeper) => isEligible(keeper, partition));
      const best = missing < eligible.length ? inPreference(eligible, partition, owner, lags, part) : eligible;
      for (const keeper of best.slice(0, missing)) add(keeper, partition, owner);
    }
  }
  for (const { owner, partition } of perPartition > 0 ? inTurn(owners) : []) {
    const apart = (others[partition] ?? []).filter((keeper) => isApart(keeper, owner));
    if (apart.some(({ partitions }) => partitions.has(partition))) continue;
    const [best] = inPreference(apart, partition, owner, lags, part);
    if (best !== undefined) add(best, partition, owner);
  }
  return new Map(keepers.map(({ candidate, partitions }) => [candidate, partitions]));
}

/** Whether a copy there survives the loss of the owner's zone; a member that does not say its zone may be anywhere. */
function isApart({ candidate }: Keeper, owner: Candidate): boolean {
  return candidate.zone === undefined || owner.zone === undefined || candidate.zone !== owner.zone;
}

/**
 * Partitions whose owners were standbys of the most come last: a new member can't be standby of what it owns itself.
 */
function inTurn(owners: readonly Candidate[]) {
  const before = new Map(owners.map((owner) => [owner, standbysBefore(owner).size]));
  const size = (owner: Candidate) => before.get(owner) ?? 0;
  return owners.map((owner, partition) => ({ owner, partition })).sort((x, y) => size(x.owner) - size(y.owner));
}

function standbysBefore({ claims }: Candidate): ReadonlySet<number> {
  return new Set(claims.flatMap(({ standbys }) => standbys));
}

function keeperOf(candidate: Candidate): Keeper {
  return { candidate, before: standbysBefore(candidate), partitions: new Set(), ofOwner: new Map() };
}

function add({ partitions, ofOwner }: Keeper, partition: number, owner: Candidate): void {
  partitions.add(partition);
  ofOwner.set(owner, (ofOwner.get(owner) ?? 0) + 1);
}

function inPreference(
  able: readonly Keeper[],
  partition: number,
  owner: Candidate,
  lags: Lags,
  part: number,
): Keeper[] {
  const rank = (keeper: Keeper, { candidate, before, partitions, ofOwner } = keeper) => [
    lags.isCaughtUp(candidate, partition) ? 0 : lags.of(candidate, partition),
    isApart(keeper, owner) ? 0 : 1,
    partitions.size < part ? 0 : 1,
    before.has(partition) ? 0 : 1,
    candidate.copies.has(partition) ? 0 : 1,
    ofOwner.get(owner) ?? 0,
    partitions.size,
  ];
  return able
    .map((keeper) => ({ keeper, rank: rank(keeper) }))
    .sort((one, other) => compareAll(one.rank, other.rank))
    .map(({ keeper }) => keeper);
}

/** Lexicographic order. */
function compareAll(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((value, i) => value !== other[i]);
  return at < 0 ? 0 : (one[at] ?? 0) - (other[at] ?? 0);
}

/** The partitions of the topic that a member has, as sorted lists. */
export interface Share {
  /** Partitions that it owns. */
  readonly partitions: readonly number[];
  /** Partitions of other members of which it keeps a copy. */
  readonly standbys: readonly number[];
  /** The standbys that it will own as soon as its copy is complete. */
  readonly warmups: readonly number[];
}

export const NOTHING: Share = { partitions: [], standbys: [], warmups: [] };

/** The partitions that a member has or had, with the generation of the group. */
export interface Claims extends Share {
  readonly generation: number;
}

/** A member that can get partitions. */
export interface Candidate {
  readonly memberId: string;
  /** Stable across restarts, so that members are ordered the same way in every generation. */
  readonly instanceId?: string | undefined;
  readonly claims: readonly Claims[];
  readonly copies: CopyReport;
  /** Partitions that it can't serve now, since it does not reach a broker that leads them. */
  readonly unreached?: readonly number[] | undefined;
  /** Where it runs; undefined if it did not say. */
  readonly zone?: string | undefined;
}

/**
 * Assigns the partitions 0 to `partitions` - 1 of one topic, and returns the owner of each.
 *
 * - Balanced: the members' counts differ by at most one.
 * - Sticky: a claimed partition goes to the claim of the highest generation, and within a generation to the member that
 *   was promised it as a warm-up. Only as many partitions change owner as balance requires: first those that an earlier
 *   owner claims too, so that a returning member gets back what it had, then those with the smallest lag at a member
 *   with room.
 * - An unclaimed partition goes to the member with room that has the smallest lag.
 * - Deterministic: the same members in the same order get the same partitions.
 */
export function assignSticky(partitions: number, candidates: readonly Candidate[], lags: Lags): Candidate[] {
  if (candidates.length === 0) return [];
  const seats = seat(partitions, candidates);
  const claimants = claimantsOf(partitions, seats);
  claimants.forEach(([owner], partition) => {
    owner?.held.push(partition);
  });
  setQuotas(partitions, seats);
  const free = claimants.flatMap((claiming, partition) => (claiming.length === 0 ? [partition] : []));
  for (const seat of seats) returnToEarlierOwners(seat, claimants);
  for (const seat of seats) free.push(...releaseSurplus(seat, seats, lags));
  distribute(free, seats, lags);
  return ownersOf(partitions, seats);
}

interface Seat {
  readonly candidate: Candidate;
  readonly held: number[];
  quota: number;
}

function seat(partitions: number, candidates: readonly Candidate[]): Seat[] {
  const quota = Math.floor(partitions / candidates.length);
  return candidates.map((candidate) => ({ candidate, held: [], quota }));
}

/** Sorted by names that survive a restart. */
export function inOrder(candidates: readonly Candidate[]): Candidate[] {
  const nameOf = ({ instanceId, memberId }: Candidate) => instanceId ?? memberId;
  return candidates.toSorted(
    (one, other) => compare(nameOf(one), nameOf(other)) || compare(one.memberId, other.memberId),
  );
}

/** By code units, whatever the locale. */
function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

/**
 * The claimants of each partition, each once: newest generation first, then promised warm-ups, then order of members.
 */
function claimantsOf(partitions: number, seats: readonly Seat[]): Seat[][] {
  const claims = seats.flatMap((seat) =>
    seat.candidate.claims.flatMap(({ generation, warmups, partitions: owned }) => [
      { seat, generation, isPromised: true, claimed: warmups },
      { seat, generation, isPromised: false, claimed: owned },
    ]),
  );
  const claimants: Seat[][] = Array.from({ length: partitions }, () => []);
  const newestFirst = claims.toSorted(
    (one, other) => other.generation - one.generation || Number(other.isPromised) - Number(one.isPromised),
  );
  for (const { seat, claimed } of newestFirst) {
    for (const partition of claimed) {
      if (claimants[partition]?.includes(seat) === false) claimants[partition].push(seat);
    }
  }
  return claimants;
}

/** Members that hold most get one of the remainder each, so that they keep what they have. */
function setQuotas(partitions: number, seats: readonly Seat[]): void {
  const byHeld = seats.toSorted((one, other) => other.held.length - one.held.length);
  for (const seat of byHeld.slice(0, partitions % seats.length)) seat.quota += 1;
}

const room = ({ quota, held }: Seat) => quota - held.length;

/** Gives partitions above a member's quota to earlier owners with room. */
function returnToEarlierOwners(seat: Seat, claimants: readonly (readonly Seat[])[]): void {
  for (const partition of seat.held.toReversed()) {
    if (room(seat) >= 0) return;
    const owner = claimants[partition]?.find((one) => one !== seat && room(one) > 0);
    if (owner === undefined) continue;
    seat.held.splice(seat.held.indexOf(partition), 1);
    owner.held.push(partition);
  }
}

/** Takes from a member the partitions above its quota, those first in which members with room lag least. */
function releaseSurplus(seat: Seat, seats: readonly Seat[], lags: Lags): number[] {
  const roomy = seats.filter((one) => room(one) > 0);
  const leastLag = (partition: number) => Math.min(...roomy.map(({ candidate }) => lags.of(candidate, partition)));
  if (room(seat) < 0) seat.held.sort((one, other) => leastLag(other) - leastLag(one));
  return seat.held.splice(seat.quota);
}

/**
 * Gives each partition to the member with the smallest lag; of several to the one with the most room, then to the
 * first.
 */
function distribute(free: readonly number[], seats: readonly Seat[], lags: Lags): void {
  for (const partition of fewestCopiesFirst(free, seats, lags)) {
    const lag = ({ candidate }: Seat) => lags.of(candidate, partition);
    const [best] = seats
      .filter((seat) => room(seat) > 0)
      .sort((one, other) => lag(one) - lag(other) || room(other) - room(one));
    best?.held.push(partition);
  }
}

/** So that the member with the only copy of a partition still has room for it. Partitions without a copy come last. */
function fewestCopiesFirst(free: readonly number[], seats: readonly Seat[], lags: Lags): number[] {
  const copies = (partition: number) =>
    seats.filter(({ candidate }) => lags.isCaughtUp(candidate, partition)).length || Number.POSITIVE_INFINITY;
  const counted = free.map((partition) => ({ partition, copies: copies(partition) }));
  return counted
    .sort((one, other) => (one.copies === other.copies ? one.partition - other.partition : one.copies - other.copies))
    .map(({ partition }) => partition);
}

function ownersOf(partitions: number, seats: readonly Seat[]): Candidate[] {
  const owners = new Array<Candidate>(partitions);
  for (const { candidate, held } of seats) for (const partition of held) owners[partition] = candidate;
  return owners;
}

/** How complete a member's copy of one partition is, in offsets of its log. */
export interface Copy {
  /** The offset after the last entry of the copy. */
  readonly end: number;
  /** The end of the log when the member last looked. */
  readonly logEnd: number;
}

/** By partition. */
export type CopyReport = ReadonlyMap<number, Copy>;

interface Holder {
  readonly copies: CopyReport;
}

/** Entries that may be appended to a partition between the reports of the first and the last member that joins. */
const WHILE_JOINING = 100_000;

/**
 * How many entries the members' copies lack. The end of a log is the highest that a member reports. A member without a
 * copy lacks the whole log, so of a short log every member is caught up.
 */
export class Lags {
  readonly #acceptableLag: number;
  readonly #logEnds = new Map<number, number>();

  constructor(holders: readonly Holder[], acceptableLag: number) {
    this.#acceptableLag = acceptableLag;
    for (const [partition, { logEnd }] of holders.flatMap(({ copies }) => [...copies])) {
      this.#logEnds.set(partition, Math.max(logEnd, this.#logEnds.get(partition) ?? 0));
    }
  }

  of({ copies }: Holder, partition: number): number {
    return (this.#logEnds.get(partition) ?? 0) - (copies.get(partition)?.end ?? 0);
  }

  /**
   * Members don't report at the same moment: of a growing log, one that joined earlier saw less. So a copy that was
   * complete when its member reported may lack what was appended while the others joined.
   */
  isCaughtUp(holder: Holder, partition: number): boolean {
    const lag = this.of(holder, partition);
    if (lag <= this.#acceptableLag) return true;
    const copy = holder.copies.get(partition);
    return copy !== undefined && copy.logEnd - copy.end <= this.#acceptableLag && lag <= WHILE_JOINING;
  }
}
