import { isLarge, type Layout, partMaxIds } from '../core/layout.ts';
import { MAX_DRAFT } from '../ledger/sequence-rule.ts';
import { type Accounts, PartPrices, type Payer, PRICES_US } from './accounts.ts';
import { type Deferrals, type LaneName, letsOthersGo } from './deferred.ts';
import { type Accepted, type Intake, UNKNOWN_SCHEMAS } from './intake.ts';

/** The size limit of a part: the requests that are decided by one append and answered together. */
export const PART_MAX_REQUESTS = 500;
/** Large requests are decided together up to this share, which bounds how long small ones wait for them. */
const LARGE_PART_SHARE = 1 / 8;
/** As much as 100 ordinary requests: those that let others go first take no more of the worker at a time. */
const LARGE_PART_MAX_US = 100 * PRICES_US.request;

export interface Cutting {
  readonly layout: Layout;
  /** Charged for each request of a part. */
  readonly accounts: Accounts;
  /** The partition that has the requests. */
  readonly partition: number;
  /** The most IDs that a request may take. */
  readonly idsFor: (accepted: Accepted) => number;
  /** Whether numbers of a sequence are decided here for the request. */
  readonly isForNumbers: (accepted: Accepted) => boolean;
  /** Whether the request asks for more IDs than it may. */
  readonly isAboveLimit: (accepted: Accepted) => boolean;
  /** The lane whose requests are wanted. */
  readonly lane: LaneName;
  /**
   * Where requests of other lanes go. Without a place, the lane `small` serves them where they are, and every other one
   * leaves them out.
   */
  readonly deferrals?: Deferrals | undefined;
  /** In other lanes than `small`: see BatchControl. */
  readonly isDebtor?: ((replyTopic: string | undefined, offset: number) => boolean) | undefined;
  /** Whether unknown schemas were not looked up, so that what names them has to wait. */
  readonly isLookUpDeferred?: boolean | undefined;
}

/**
 * Cuts the requests of one partition into parts, in order, without those of other lanes. A part has numbers of
 * sequences, or none: its requests are decided together, and only numbers wait for etcd.
 */
export function* cutIntoParts(intakes: Iterable<Intake>, cutting: Cutting): Generator<Intake[]> {
  const { layout, lane, deferrals, idsFor } = cutting;
  let part: Intake[] = [];
  let ids = 0;
  let areNumbers: boolean | undefined; // of the part; undefined while it may have either
  const sequences = new Set<string>(); // that the part has numbers of
  const large = new Set<string>(); // the keys of the part's large requests: those with the same key get one batch
  let prices = new PartPrices(cutting.partition);
  const maxUs = letsOthersGo(lane) ? LARGE_PART_MAX_US : Number.POSITIVE_INFINITY;
  const maxIds = partMaxIds(layout) * (letsOthersGo(lane) ? LARGE_PART_SHARE : 1);
  for (const intake of intakes) {
    const payer = payerOf(intake, cutting);
    const own = laneOf(intake, payer, cutting);
    const place = own === lane ? undefined : deferrals?.[own];
    place?.take(intake.record);
    if (place !== undefined || (own !== lane && lane !== 'small' && isCertain(intake, own, cutting))) continue;
    const asked = intake.kind === 'accepted' ? idsFor(intake) : 0;
    const name = intake.kind === 'accepted' && isLarge(layout, asked) ? intake.name : undefined;
    const isNumbers = intake.kind === 'accepted' ? cutting.isForNumbers(intake) : areNumbers;
    let taken = name !== undefined && large.has(name) ? 0 : asked;
    const isOther = areNumbers !== undefined && isNumbers !== areNumbers;
    const sequence = isNumbers === true && intake.kind === 'accepted' ? intake.request.sequence : undefined;
    const isOneMore = sequences.size === MAX_DRAFT && sequence !== undefined && !sequences.has(sequence);
    const isDear = prices.totalUs >= maxUs;
    const isFull = part.length >= PART_MAX_REQUESTS || ids + taken > maxIds || isDear || isOther || isOneMore;
    if (isFull && part.length > 0) {
      yield part;
      part = [];
      ids = 0;
      prices = new PartPrices(cutting.partition);
      large.clear();
      sequences.clear();
      taken = asked;
    }
    part.push(intake);
    const us = prices.add(intake);
    cutting.accounts.charge(payer, us);
    areNumbers = isNumbers;
    ids += taken;
    if (name !== undefined) large.add(name);
    if (sequence !== undefined) sequences.add(sequence);
  }
  yield part;
}

function payerOf(intake: Intake, { accounts }: Cutting): Payer {
  return accounts.payerOf(intake.kind === 'accepted' ? intake.request.replyTopic : intake.payer);
}

/**
 * The lane of a request. The same at every reading, but for debts: where these are concerned, the queue of their lane
 * knows what was said first.
 */
function laneOf(intake: Intake, payer: Payer, cutting: Cutting): LaneName {
  const { layout, lane, idsFor, isForNumbers, isDebtor } = cutting;
  const { isDense, offset } = intake.record;
  const isUnseen = lane !== 'small' && isDebtor?.(undefined, offset) === true;
  if (isDense === true || isUnseen || waitsAsUnknown(intake, payer, cutting)) return 'debts';
  if (intake.kind === 'accepted' && isLarge(layout, idsFor(intake))) return 'large';
  if (waitsForDebt(offset, payer, cutting)) return 'debts';
  return intake.kind === 'accepted' && isForNumbers(intake) ? 'numbers' : 'small';
}

/** Whether a request waits since its schema was not known at the first reading. It may be now. */
function waitsAsUnknown({ isLate, record }: Intake, payer: Payer, { lane, deferrals, isDebtor }: Cutting): boolean {
  if (!isLate || payer.replyTopic === UNKNOWN_SCHEMAS) return false;
  if (lane !== 'small') return isDebtor?.(UNKNOWN_SCHEMAS, record.offset) === true;
  return deferrals?.debts?.keepsDebtor(UNKNOWN_SCHEMAS, record.offset) === true;
}

function waitsForDebt(offset: number, payer: Payer, cutting: Cutting): boolean {
  const { accounts, lane, deferrals, isDebtor, isLookUpDeferred = false } = cutting;
  if (lane !== 'small') return isDebtor?.(payer.replyTopic, offset) === true;
  const isInDebt = (isLookUpDeferred && payer.replyTopic === UNKNOWN_SCHEMAS) || accounts.mustWait(payer);
  if (deferrals?.debts?.defersDebtor(payer, offset, isInDebt) !== true) return false;
  accounts.waits(payer);
  return true;
}

/**
 * Whether a request that is not for this lane was not for it at the first reading either: a registry may have failed
 * since, and requests may have been allowed to ask for more.
 */
function isCertain(intake: Intake, own: LaneName, { lane, isAboveLimit }: Cutting): boolean {
  if (intake.kind === 'rejected') return own !== 'small' || intake.code !== 'SCHEMA_REGISTRY_UNAVAILABLE';
  return lane !== 'large' || !isAboveLimit(intake);
}
