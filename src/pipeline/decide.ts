import { Backoff } from '../async/backoff.ts';
import type { Runtime } from '../async/runtime.ts';
import type { DecidingEntry } from '../codec/ledger-entry.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { type Decided, FORGOTTEN } from '../ledger/decided.ts';
import { type AgeDeps, forgotten, idKind, isCopy, needsRenewal, refuseByAge } from './age.ts';
import { type ChargeDeps, charged, withoutTopic, wouldRefuse } from './charges.ts';
import type { Decision } from './decision.ts';
import { type DraftDeps, type EntryDraft, type Prepared, renewalOf, type Undecided, write } from './drafts.ts';
import { type Accepted, hasTwins } from './intake.ts';
import { isRevocable, Numbering } from './numbering.ts';

/** The dependencies of `decide`. */
export interface DecisionDeps extends AgeDeps, ChargeDeps, DraftDeps {
  /** The largest count of a request. */
  readonly maxCount: number;
  /** The partitions that have a ledger. Requests of others are forwarded. */
  readonly partitions: number;
  readonly now: () => WallMs;
  readonly runtime: Pick<Runtime, 'sleep' | 'random'>;
}

/** How often numbers are drafted in a turn: each time, another writer's append came between. */
const MAX_DRAFTS = 6;
/** The rests before numbers are drafted again: about the time of some appends, at random, so that two owners don't keep each other void. */
const REST_MS = { minMs: 20, maxMs: 200 };
/** A request is forwarded at most this often: more means that workers disagree on the number of partitions. */
const MAX_HOPS = 3;

/** A request and its place in the part. */
interface Due {
  readonly at: number;
  readonly accepted: Accepted;
}

/**
 * Decides a bounded number of requests of one partition: look up, admit, allocate, append, settle. Runs in the
 * partition's turn; returns one decision for each request, in order.
 *
 * The look-up comes before every check, so a known request always gets its batch. The decision is what the ledger holds
 * after settling, never what this worker tried to write. Numbers of a sequence that turn out void are drafted again, and a
 * decision that proves old is renewed; rejects with OVERTAKEN when that was in vain several times.
 *
 * A refusal that an operator's command ends is confirmed first, by reading the ledger to its end: once for all of them. So
 * whoever sends a request after the command had succeeded is not refused by a worker that has yet to read about it.
 */
export async function decide(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
  prepared?: Prepared,
): Promise<Decision[]> {
  const decisions = new Array<Decision | undefined>(part.length);
  const all = part.map((accepted, at) => ({ at, accepted }));
  await decideAll(deps, partition, all, decisions, prepared);
  const refused = all.filter(({ at }) => isRevocable(decisions[at]));
  if (refused.length > 0) {
    await deps.ledger.catchUp(partition);
    for (const { at } of refused) decisions[at] = undefined;
    await decideAll(deps, partition, refused, decisions, prepared);
  }
  return decisions as Decision[];
}

/** Decides these, drafting numbers again that turn out void. */
async function decideAll(
  deps: DecisionDeps,
  partition: number,
  all: readonly Due[],
  decisions: (Decision | undefined)[],
  prepared: Prepared | undefined,
): Promise<void> {
  const rests = new Backoff(REST_MS, () => deps.runtime.random());
  let due = all;
  for (let tries = 1; ; tries += 1) {
    await decideDue(deps, partition, due, decisions, prepared);
    due = due.filter(({ at }) => decisions[at] === undefined);
    if (due.length === 0) return;
    if (tries === MAX_DRAFTS) throw overtaken(partition, due);
    await deps.runtime.sleep(rests.nextMs());
  }
}

/** Decides all but those whose numbers turn out void. */
async function decideDue(
  deps: DecisionDeps,
  partition: number,
  due: readonly Due[],
  decisions: (Decision | undefined)[],
  prepared: Prepared | undefined,
): Promise<void> {
  const view = { end: deps.index.end(partition), through: deps.index.through(partition) };
  const numbering = new Numbering(deps.index, partition, due);
  const epoch = deps.ledger.epoch(partition);
  const accepteds = due.map(({ accepted }) => accepted);
  const known = await deps.ledger.decided(partition, accepteds);
  const drafted = hasTwins(accepteds) ? new Map<string, Undecided>() : undefined;
  const drafts: Undecided[] = [];
  const renewals = new Map<string, EntryDraft>();
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
    decisions[at] = route(deps, partition, accepted) ?? admit(deps, partition, accepted, numbering);
    if (decisions[at] !== undefined) continue;
    const { sequence, count } = accepted.request;
    const numbers = sequence === undefined ? undefined : numbering.take(sequence, count);
    const draft: Undecided = {
      ...{ accepted, numbers, through: accepted.record.offset },
      ...{ offset: undefined, first: undefined, isVoid: false },
    };
    drafted?.set(name, draft);
    drafts.push(draft);
  }
  await write(deps, partition, { view, epoch }, drafts, [...renewals.values()], prepared);
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
    const found = winner ?? draft?.first ?? known.get(accepted.name);
    if (draft?.isVoid === true && found === undefined) continue;
    if (winner !== undefined && needsRenewal(deps, accepted, winner)) continue;
    decisions[at] ??= settled(deps, partition, accepted, found, own?.offset);
  }
}

function overtaken(partition: number, due: readonly Due[]): IdallocError {
  const names = new Set(due.flatMap(({ accepted }) => accepted.request.sequence ?? []));
  const what = names.size > 0 ? ` of numbers of ${[...names].join(', ')}` : '';
  const message = `other appends to ledger partition ${partition} came before each of ${MAX_DRAFTS} appends${what}: they are drafted again; two workers may both serve the partition for a moment`;
  return new IdallocError('OVERTAKEN', message);
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
    .filter(([name, accepted]) => !known.has(name) && !wouldRefuse(deps, partition, accepted))
    .map(([, accepted]) => accepted);
}

/**
 * A request that is unknown here is forwarded to its home partition, wherever it arrived: so all of its records meet in
 * one ledger partition, and the first entry there decides. One whose reply topic does not exist is refused here: nobody could
 * be told of a batch, and a flood of them would be appended and read a second time.
 */
function route(deps: DecisionDeps, partition: number, accepted: Accepted): Decision | undefined {
  const { home, request } = accepted;
  if (home === partition) return undefined;
  const undeliverable = withoutTopic(deps, accepted);
  if (undeliverable !== undefined) return undeliverable;
  if (request.route.hops < MAX_HOPS) return { kind: 'elsewhere', home };
  const message = `the request was forwarded ${MAX_HOPS} times and has not reached partition ${home}: workers disagree on the number of partitions`;
  return { kind: 'refused', code: 'MISROUTED', message };
}

/** For a partition that was added to the request topic: nothing was ever decided there, so each request goes to its home. */
export function forwardAll(deps: DecisionDeps, partition: number, part: readonly Accepted[]): Decision[] {
  return part.map((accepted) => {
    const decision = route(deps, partition, accepted);
    if (decision === undefined) throw new RangeError(`partition ${partition} has no ledger`);
    return decision;
  });
}

/** The checks for requests without an entry. */
function admit(deps: DecisionDeps, partition: number, accepted: Accepted, numbering: Numbering): Decision | undefined {
  const { request, record } = accepted;
  const largest = tooMany(deps, request.count);
  if (largest !== undefined) return largest;
  const horizon = deps.index.horizon(partition);
  if (horizon === undefined || record.offset <= horizon) return forgotten(accepted);
  const tooOld = refuseByAge(deps, partition, accepted);
  if (tooOld !== undefined) return tooOld;
  const { expiresAtMs } = request;
  if (expiresAtMs !== undefined && deps.now() >= expiresAtMs) {
    const message = `the request expired at ${new Date(expiresAtMs).toISOString()} and has no batch: send a new one`;
    return { kind: 'refused', code: 'EXPIRED', message };
  }
  const { sequence, count } = request;
  const refusal = sequence === undefined ? undefined : numbering.refuse(sequence, count);
  // Last, because passing takes from the quota.
  return refusal ?? charged(deps, partition, accepted);
}

function tooMany({ maxCount }: DecisionDeps, count: number): Decision | undefined {
  if (count <= maxCount) return undefined;
  const message = `count ${count} is above ${maxCount}, the largest batch of one request: send several requests`;
  return { kind: 'refused', code: 'INVALID_COUNT', message };
}

/** The decision that the ledger holds: `winner`. `ownOffset` is the offset of the request's own entry, if it just got one. */
function settled(
  deps: DecisionDeps,
  partition: number,
  accepted: Accepted,
  winner: Decided | typeof FORGOTTEN | undefined,
  ownOffset: number | undefined,
): Decision {
  if (winner === FORGOTTEN) return forgotten(accepted);
  if (winner === undefined) {
    throw new IdallocError(
      'LEDGER_TRUNCATED',
      `ledger partition ${partition} has no entry for a request that was just settled: restoring the index from the log`,
    );
  }
  const { entry, appendedAtMs, offset } = winner;
  if (entry.requestHash.equals(accepted.hash)) {
    return { kind: 'batch', entry, appendedAtMs, replayed: offset !== ownOffset };
  }
  // An error that does not depend on the ledger must be the same whenever the record is read.
  return (
    tooMany(deps, accepted.request.count) ?? {
      kind: 'refused',
      code: 'CONFLICT',
      message: conflict(entry, accepted),
    }
  );
}

/** Names what differs, but not the other request's values: it may be another requester's. */
function conflict(entry: DecidingEntry, accepted: Accepted): string {
  const { request } = accepted;
  const differing = [
    ...(entry.count === request.count ? [] : [`count (here ${request.count})`]),
    ...(entry.replyTopic === request.replyTopic ? [] : [`reply_topic (here ${request.replyTopic})`]),
  ];
  const kind = idKind(accepted.request);
  return `this ${kind} was used for another request; it differs in ${differing.join(' and ')}: use a new ${kind}`;
}
