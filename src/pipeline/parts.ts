import type { Layout } from '../core/layout.ts';
import { nameOf } from './decided.ts';
import type { Accepted, Intake } from './intake.ts';
import type { Later } from './later.ts';

/** Bounds of a part: what is decided by one append and answered together. */
export const PART_MAX_REQUESTS = 500;
/** A part keeps the generator busy for about so long: others wait for their turn meanwhile. */
const PART_MAX_GENERATOR_MS = 50;
/** However many IDs the layout has: where requests want them listed one by one, so many take 30 ms to encode. */
const PART_MAX_LISTED_IDS = 200_000;
/** A request that takes more than this share of a part holds others up by more than an append does. */
const LARGE_SHARE = 1 / 40;
/** Large requests are decided together up to this share: the small ones of their partition wait for so long at most. */
const LARGE_PART_SHARE = 1 / 8;

/** How many IDs the requests of a part may ask for together, 1 at the least; one that asks for more makes a part of its own. */
export function partMaxIds(layout: Layout): number {
  const perTick = layout.sequencesPerTick - layout.sequenceStartBelow + 1;
  const most = Math.floor((perTick * PART_MAX_GENERATOR_MS) / layout.tickMs);
  return Math.max(1, Math.min(PART_MAX_LISTED_IDS, most));
}

/** Whether requests that ask for so many IDs are to let others go before them. */
export function isLarge(layout: Layout, ids: number): boolean {
  return ids > partMaxIds(layout) * LARGE_SHARE;
}

export interface Cutting {
  readonly layout: Layout;
  /** How many IDs a request may take at most. */
  readonly idsFor: (accepted: Accepted) => number;
  /** Where large requests go. Without it they stay in their places, each in a part of its own or with others. */
  readonly later: Later | undefined;
}

/** Parts of one partition's requests, in order; those that were put off are in none. The last part may be empty. */
export function* cutIntoParts(intakes: Iterable<Intake>, cutting: Cutting): Generator<Intake[]> {
  let part: Intake[] = [];
  let ids = 0;
  const maxIds = partMaxIds(cutting.layout);
  for (const intake of intakes) {
    const asked = intake.kind === 'accepted' ? cutting.idsFor(intake) : 0;
    if (intake.kind === 'accepted' && isPutOff(intake, asked, cutting)) continue;
    if (part.length === PART_MAX_REQUESTS || (part.length > 0 && ids + asked > maxIds)) {
      yield part;
      part = [];
      ids = 0;
    }
    part.push(intake);
    ids += asked;
  }
  yield part;
}

/** Requests of one correlation ID are decided in the order in which they came, so those that follow a large one wait too. */
function isPutOff({ record, key }: Accepted, ids: number, { layout, later }: Cutting): boolean {
  if (later === undefined || (later.isEmpty && !isLarge(layout, ids))) return false;
  const name = nameOf(key);
  if (!isLarge(layout, ids) && !later.has(name)) return false;
  return later.take({ record, name, share: ids / (partMaxIds(layout) * LARGE_PART_SHARE) });
}
