import { isCopy, needsRenewal } from './age.ts';
import { charged, wouldRefuse } from './charges.ts';
import type { Decision } from './decision.ts';
import { type DecidingDraft, type DraftDeps, type Prepared, renewalOf, type Undecided, write } from './drafts.ts';
import { type Accepted, hasTwins } from './intake.ts';
import { type RulingDeps, refusedUnknown, route, settled } from './rulings.ts';

/** The dependencies of `decide`. */
export interface DecisionDeps extends RulingDeps, DraftDeps {
  /** The partitions that have a ledger. Requests of others are forwarded. */
  readonly partitions: number;
}

/**
 * How often a part is decided, until what was found in vain to be old is renewed: each time, another writer was first.
 */
const MAX_TRIES = 3;

/** A request and its place in the part. */
interface Due {
  readonly at: number;
  readonly accepted: Accepted;
}

/**
 * Decides a bounded number of requests for IDs of one partition: look up, admit, allocate, append, settle. Runs in the
 * partition's turn; returns one decision for each request, in order. Requests for numbers of another partition are
 * forwarded.
 *
 * The look-up comes before every check, so a known request always gets its batch. The decision is what the ledger holds
 * after settling, never what this worker tried to write. A decision that proves old is renewed.
 */
export async function decide(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
  prepared?: Prepared,
): Promise<Decision[]> {
  const decisions = new Array<Decision | undefined>(part.length);
  let due: readonly Due[] = part.map((accepted, at) => ({ at, accepted }));
  for (let tries = 1; due.length > 0; tries += 1) {
    await decideDue(deps, partition, due, decisions, { prepared, isLast: tries === MAX_TRIES });
    due = due.filter(({ at }) => decisions[at] === undefined);
  }
  return decisions as Decision[];
}

/** Decides all but those whose decision, by another writer, must be renewed; `isLast`: those as well. */
async function decideDue(
  deps: DecisionDeps,
  partition: number,
  due: readonly Due[],
  decisions: (Decision | undefined)[],
  { prepared, isLast }: { readonly prepared: Prepared | undefined; readonly isLast: boolean },
): Promise<void> {
  const view = { end: deps.index.end(partition), through: deps.index.through(partition) };
  const answeredBelow = deps.index.answeredBelow(partition);
  const life = deps.ledger.life(partition);
  const accepteds = due.map(({ accepted }) => accepted);
  const known = await deps.ledger.decided(partition, accepteds);
  const drafted = hasTwins(accepteds) ? new Map<string, Undecided>() : undefined;
  const drafts: Undecided[] = [];
  const renewals = new Map<string, DecidingDraft>();
  for (const { at, accepted } of due) {
    const { name } = accepted;
    const decided = known.get(name);
    const twin = drafted?.get(name);
    if (twin !== undefined) {
      if (twin.accepted.hash.equals(accepted.hash) && isCopy(accepted, twin)) twin.through = accepted.record.offset;
      continue;
    }
    if (decided !== undefined) {
      if (needsRenewal(deps, accepted, decided)) renewals.set(name, renewalOf(accepted, decided, view));
      continue;
    }
    decisions[at] =
      route(deps, partition, accepted, answeredBelow) ??
      refusedUnknown(deps, partition, accepted) ??
      charged(deps, partition, accepted); // Last, because passing takes from the quota.
    if (decisions[at] !== undefined) continue;
    const draft: Undecided = { accepted, through: accepted.record.offset, offset: undefined, first: undefined };
    drafted?.set(name, draft);
    drafts.push(draft);
  }
  await write(deps, partition, { view, life }, drafts, [...renewals.values()], prepared);
  const lost = drafts.filter(({ first }) => first === undefined);
  const winners = await deps.ledger.decided(
    partition,
    lost.map(({ accepted }) => accepted),
  );
  let next = 0; // of the drafts, which follow the order of their requests
  for (const { at, accepted } of due) {
    const own = drafts[next]?.accepted === accepted ? drafts[next++] : undefined;
    const draft = own ?? drafted?.get(accepted.name);
    // An entry may become readable long after its append: it is known now, and is renewed at the next try.
    const winner = winners.get(accepted.name);
    if (!isLast && winner !== undefined && needsRenewal(deps, accepted, winner)) continue;
    const found = winner ?? draft?.first ?? known.get(accepted.name);
    decisions[at] ??= settled(deps, partition, accepted, found, own?.offset);
  }
}

/** The requests that will get IDs, as it looks now: the first ones of their keys that are unknown and not refused. */
export async function withoutDecision(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
): Promise<Accepted[]> {
  const known = await deps.ledger.decided(partition, part);
  const firsts = new Map(part.toReversed().map((accepted) => [accepted.name, accepted]));
  return [...firsts]
    .filter(([name, accepted]) => {
      return !known.has(name) && !wouldRefuse(deps, partition, accepted) && !refusedUnknown(deps, partition, accepted);
    })
    .map(([, accepted]) => accepted);
}

/**
 * For a partition that was added to the request topic: nothing was ever decided there, so each request goes to its
 * home.
 */
export function forwardAll(deps: DecisionDeps, partition: number, part: readonly Accepted[]): Decision[] {
  return part.map((accepted) => {
    const decision = route(deps, partition, accepted, 0);
    if (decision === undefined) throw new RangeError(`partition ${partition} has no ledger`);
    return decision;
  });
}
