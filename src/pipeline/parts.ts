import type { Layout } from '../core/layout.ts';
import { type Deferrals, originalBulk } from './deferred.ts';
import type { Accepted, Intake } from './intake.ts';
import type { RequestRecord } from './ports.ts';

/** The size limit of a part: the requests that are decided by one append and answered together. */
export const PART_MAX_REQUESTS = 500;
/** A part keeps the generator busy for at most about this long; others wait for it. */
const PART_MAX_GENERATOR_MS = 50;
/** Whatever the layout: when requests want IDs listed one by one, this many take 30 ms to encode. */
const PART_MAX_LISTED_IDS = 200_000;
/** A request above this share of a part delays others by more than an append does. */
const LARGE_SHARE = 1 / 40;
/** Large requests are decided together up to this share, which bounds how long small ones wait for them. */
const LARGE_PART_SHARE = 1 / 8;

/** The most IDs that the requests of a part may request together, at least 1; a request for more gets a separate part. */
export function partMaxIds(layout: Layout): number {
  const perTick = layout.sequencesPerTick - layout.sequenceStartBelow + 1;
  const most = Math.floor((perTick * PART_MAX_GENERATOR_MS) / layout.tickMs);
  return Math.max(1, Math.min(PART_MAX_LISTED_IDS, most));
}

/** Whether a request for this many IDs lets others go first. */
export function isLarge(layout: Layout, ids: number): boolean {
  return ids > partMaxIds(layout) * LARGE_SHARE;
}

export interface Cutting {
  readonly layout: Layout;
  /** The most IDs that a request may take. */
  readonly idsFor: (accepted: Accepted) => number;
  /** Where large requests go; if absent, they stay in their places. */
  readonly deferrals?: Deferrals | undefined;
  /** Only the large requests are wanted. */
  readonly onlyLarge?: boolean;
}

/** Cuts the requests of one partition into parts, in order, without those that are left to the other lane. */
export function* cutIntoParts(intakes: Iterable<Intake>, cutting: Cutting): Generator<Intake[]> {
  const { layout, onlyLarge = false } = cutting;
  let part: Intake[] = [];
  let ids = 0;
  const large = new Set<string>(); // the keys of the part's large requests: those with the same key get one batch
  const maxIds = partMaxIds(layout) * (onlyLarge ? LARGE_PART_SHARE : 1);
  for (const intake of intakes) {
    const asked = intake.kind === 'accepted' ? cutting.idsFor(intake) : 0;
    const isAskingMuch = isLarge(layout, asked);
    const isForLater = isAskingMuch || (onlyLarge && originalBulk(intake.record) !== undefined);
    const name = intake.kind === 'accepted' && isAskingMuch ? intake.name : undefined;
    if (isForLater ? defer(intake.record, cutting) : onlyLarge && isCertain(intake)) continue;
    let taken = name !== undefined && large.has(name) ? 0 : asked;
    const isFull = part.length === PART_MAX_REQUESTS || ids + taken > maxIds;
    if (isFull && part.length > 0) {
      yield part;
      part = [];
      ids = 0;
      large.clear();
      taken = asked;
    }
    part.push(intake);
    ids += taken;
    if (name !== undefined) large.add(name);
  }
  yield part;
}

/** Whether a request that is not large here was not large for the other lane either: a registry may have failed since. */
function isCertain(intake: Intake): boolean {
  return intake.kind === 'accepted' || intake.code !== 'SCHEMA_REGISTRY_UNAVAILABLE';
}

function defer(record: RequestRecord, { deferrals }: Cutting): boolean {
  deferrals?.take(record);
  return deferrals !== undefined;
}
