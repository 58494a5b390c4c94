import { encodeLedgerKey, encodeNumbersKey } from '../../src/codec/ledger-key.ts';
import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { isLarge } from '../../src/core/layout.ts';

import { isKnownTo } from './copy-checks.ts';
import { sameRanges } from './decisions.ts';
import type { Append, CopyEvent, Entry, History, Learned, Mark, SentRequest } from './history.ts';
import { countingIn } from './sequence-log.ts';
import { CLOCK_MARGIN_MS, START_MS, shortHashOf } from './setting.ts';

/** No simulation is as long, and a clock that is set wrong is further off. */
const LONGEST_MS = 1_800_000;

/**
 * Whether a worker may answer a request with FORGOTTEN by then: an entry that decided it may be in the part that the
 * ledger has lost, and nothing that is left shows otherwise.
 *
 * A worker's index reaches back to an origin: where the log started when the index was restored, or a place up to which
 * it has expired entries that were trimmed. What lies below the origin is unknown, so a request is forgotten
 *
 * - when it is not above the requests of expired entries;
 * - when it is not above the `through` of the first anchor after the start of a restore: an anchor is an entry or a
 *   marker at its own `end`, whose writer had read everything that is gone;
 * - when retention has deleted the entry that decided its key, while an index remembers that there was one;
 * - when the writer of the first entry of its key after the origin had not read up to the origin: there may have been
 *   an earlier entry;
 * - when it was forwarded or sent again, and its first record is not younger than what the ledger reaches back to, or
 *   is from the future;
 * - when it waits in a lane of its own, so that later ones were decided before it, and retention then overtook a copy:
 *   of what it had, the emptied copy remembers the highest request only.
 */
export function mayBeForgotten(history: History, request: SentRequest, order: number): boolean {
  const { partition, offset, origin } = request;
  // In the partition where a request first arrived, another entry may have had its hash.
  if (history.sharesHashes && origin !== undefined && origin.partition !== partition) {
    const there = { ...request, partition: origin.partition, offset: origin.offset, origin: undefined };
    if (mayBeForgotten(history, there, order)) return true;
  }
  const lows = history.trims.filter((trim) => trim.partition === partition && trim.order < order).map(({ low }) => low);
  const reach = Math.max(0, ...lows);
  const by = <T extends Pick<Mark, 'partition' | 'order'>>(marks: readonly T[]) =>
    marks.filter((mark) => mark.partition === partition && mark.order < order);
  const entries = by(decidingIn(history));
  if (isDeferred(history, request) && by(overtakenIn(history)).some((copy) => hadPassed(entries, offset, copy)))
    return true;
  const born = Math.min(...[request.origin?.appendedAtMs ?? [], request.firstSentMs ?? []].flat());
  if (isYetToCome(born, request)) return true;
  const isLater = Number.isFinite(born);
  const bornAtLast = isLater ? Math.min(born, request.timestampMs) : born; // the broker of the record may be behind
  if (bornAtLast < reachMs(by(history.marks), reach) + CLOCK_MARGIN_MS) return true;
  if (isBelowLoss(history, request, order)) return true;
  const isKey = (entry: Deciding) => nameOf(history, entry) === nameOf(history, request);
  if (entries.some((entry) => entry.offset < reach && (isKey(entry) || entry.requestOffset >= offset))) return true;
  const anchors = by(history.marks).filter((mark) => mark.offset === mark.end);
  const isCovered = (low: number): boolean => {
    const first = anchors.reduce(
      (found, mark) => (mark.offset >= low && mark.offset < found.offset ? mark : found),
      NONE,
    );
    return first.through >= offset;
  };
  if (lows.some((low) => low > 0 && isCovered(low))) return true;
  let below = 0;
  for (const entry of entries.filter(isKey)) {
    const from = Math.max(below, entry.end) + 1;
    if (from <= Math.min(entry.offset, reach)) return true;
    below = entry.offset;
  }
  return false;
}

/**
 * Whether a request is new behind an adoption: what had been decided, or lost, of another request topic is no reason to
 * forget it. A loss, or retention, in the ledger or in the request topic since then would be.
 */
export function isNewToAdopted(history: History, request: SentRequest, order: number): boolean {
  const { adoptionMarks, marks, statements, trims, losses, requestLosses, sharesHashes } = history;
  const { partition, offset, origin, firstSentMs, sequence } = request;
  if (origin !== undefined || firstSentMs !== undefined || sequence !== undefined || sharesHashes) return false;
  const isHere = (one: { readonly partition: number; readonly order: number }) =>
    one.partition === partition && one.order < order;
  const adopted = adoptionMarks.findLast(isHere);
  if (adopted === undefined || request.order < adopted.order || offset <= adopted.through) return false;
  const isSince = (one: { readonly partition: number; readonly order: number }) =>
    isHere(one) && one.order > adopted.order;
  if ([...trims, ...losses, ...requestLosses].some(isSince)) return false;
  const isLoss = new Set(statements.filter((one) => one.isLoss).map((one) => one.order));
  const hides = (mark: Mark) => (mark.end > mark.offset || isLoss.has(mark.order)) && mark.through >= offset;
  if (marks.some((mark) => isSince(mark) && hides(mark))) return false;
  return !decidingIn(history).some((entry) => isHere(entry) && nameOf(history, entry) === nameOf(history, request));
}

/** Whether the request waits in a lane of its own. */
function isDeferred({ layout }: History, { count, sequence, isDense = false }: SentRequest): boolean {
  return isDense || sequence !== undefined || isLarge(layout, count);
}

/** The copies that were emptied after retention had taken something. */
function overtakenIn({ copies, trims }: History): readonly CopyEvent[] {
  return copies.filter(({ what, partition, order }) => {
    return what === 'emptied' && trims.some((one) => one.partition === partition && one.low > 0 && one.order < order);
  });
}

/** Whether a request from this offset on was decided before the copy was emptied. */
function hadPassed(entries: readonly Deciding[], offset: number, copy: CopyEvent): boolean {
  return entries.some((entry) => entry.requestOffset >= offset && entry.order < copy.order);
}

/**
 * Whether a loss of numbers says that the request may have been decided by what is lost; where the ledger lost anything
 * at either end, each record with which a sequence begins says so as well.
 */
function isBelowLoss(history: History, request: SentRequest, order: number): boolean {
  const { partition, offset, origin, firstSentMs } = request;
  const firstMs = origin?.appendedAtMs ?? firstSentMs ?? Number.POSITIVE_INFINITY;
  const isOf = (one: { readonly partition: number; readonly order: number }) =>
    one.partition === partition && one.order < order;
  const isLacking = [...history.trims, ...history.losses].some(isOf);
  return countingIn(history).some((one) => {
    if (!isOf(one) || !(isLacking || ('isLoss' in one && one.isLoss))) return false;
    return one.through >= 0 && (offset <= one.through || firstMs < one.appendedAtMs + CLOCK_MARGIN_MS);
  });
}

/** Whether the first record says a time that is in the future of the record itself, or of every simulation. */
function isYetToCome(born: number, { timestampMs }: SentRequest): boolean {
  return Number.isFinite(born) && born > Math.min(timestampMs + CLOCK_MARGIN_MS, START_MS + LONGEST_MS);
}

/** The hash by which an index distinguishes keys. */
function nameOf({ sharesHashes }: History, { correlationId, sequence }: Pick<Deciding, 'correlationId' | 'sequence'>) {
  const requestId = Buffer.from(correlationId, 'latin1');
  const key = sequence === undefined ? encodeLedgerKey(requestId) : encodeNumbersKey(sequence, requestId);
  return sharesHashes ? shortHashOf(key) : key.toString('latin1');
}

/** The batches, and the numbers that count, with their renewals. */
function decidingIn({ entries, numbers }: History): readonly Deciding[] {
  return [...entries, ...numbers.filter(({ at, offset }) => at === RENEWAL || at === offset)];
}

/** An entry that may decide. */
type Deciding = Pick<Entry, 'order' | 'partition' | 'offset' | 'end' | 'requestOffset' | 'correlationId'> & {
  readonly sequence?: string | undefined;
};

/** The append time of the first record after the log's lost head; nothing is known about older requests. */
function reachMs(marks: readonly Mark[], reach: number): number {
  const kept = marks.filter(({ offset }) => offset >= reach);
  if (reach === 0) return Number.NEGATIVE_INFINITY;
  // If the whole log is gone, the next marker shows the time.
  if (kept.length === 0) return Number.POSITIVE_INFINITY;
  return Math.max(...kept.map(({ appendedAtMs }) => appendedAtMs));
}

const NONE: Pick<Mark, 'offset' | 'through'> = { offset: Number.POSITIVE_INFINITY, through: -1 };

/**
 * A record of the ledger that claims to know of more requests than its writer can have known. A marker may claim all
 * there are, if the writer's index began after the log's lost head and found no anchor.
 */
export function falseClaim(history: History): Mark | undefined {
  const { marks, entries, numbers, statements, trims, losses } = history;
  // Offsets repeat after a lost tail; orders do not.
  const stated = new Set([...statements, ...numbers.filter(({ process }) => process === '')].map((one) => one.order));
  const forRequests = new Set([...entries, ...numbers].map(({ order }) => order));
  const requestOf = new Map(decidingIn(history).map(({ order, requestOffset }) => [order, requestOffset]));
  return marks.find((mark) => {
    const { partition, end, through, order } = mark;
    if (losses.some((loss) => loss.partition === partition && loss.order < order)) return false;
    // What is stated of a sequence, or completed by an operator, says what etcd knows.
    if (stated.has(order)) return false;
    const read = marks.filter((other) => other.partition === partition && other.offset < end && other.order < order);
    const known = read.map((other) => Math.max(other.through, requestOf.get(other.order) ?? -1));
    if (through <= Math.max(-1, ...known)) return false;
    const isForRequest = forRequests.has(order);
    const lows = trims.filter((trim) => trim.partition === partition && trim.order < order && trim.low > 0);
    const hasAnchor = (low: number) => read.some((other) => other.offset >= low && other.offset === other.end);
    return isForRequest || !lows.some(({ low }) => !hasAnchor(low));
  });
}

/**
 * A marker that claims to know of more requests than there were while its writer asked for their end: such a writer
 * must refuse to serve. It may know what was decided meanwhile, even if that is lost already. An end that was lost
 * counts until somebody has seen the loss: till then a deposed leader may have reported it.
 */
export function claimBeyondRequests(history: History): Append | undefined {
  const { appends, requestEnds, requestLosses } = history;
  const deciding = decidingIn(history);
  return appends.find(({ partition, sent, claim }) => {
    if (claim === undefined || claim.asked === 0) return false;
    const ends = requestEnds.filter((one) => one.partition === partition && one.order < sent);
    const unseen = requestLosses.filter(({ seen = Number.POSITIVE_INFINITY }) => claim.asked < seen);
    const isUnseen = (order: number) => unseen.some((loss) => loss.partition === partition && loss.order === order);
    const since = Math.max(
      0,
      ends.findLastIndex(({ order }) => order < claim.asked && !isUnseen(order)),
    );
    const decided = deciding.filter(
      (one) => one.partition === partition && one.order > claim.asked && one.order < sent,
    );
    const most = Math.max(
      0,
      ...ends.slice(since).map(({ end }) => end),
      ...decided.map((one) => one.requestOffset + 1),
    );
    return claim.through >= most;
  });
}

/**
 * A second decision of a request by a worker that had replied with the first. The worker knows that the request was
 * decided for as long as its copy exists, even if the ledger has lost the decision. A reply may be sent long after its
 * copy is deleted, by a part that was decided before: what a worker decided itself counts from its append. A batch of
 * an earlier request under the same correlation ID does not count.
 */
export function decidedAgainst({ replies, entries, damaged, copies }: History): Entry | undefined {
  const nameOf = (partition: number, offset: number, key: string, batch: Entry['batch']) =>
    `${partition}/${offset} ${key}: ${batch.ranges[0]?.first}`;
  const decisions = new Map(
    entries.map((one) => [nameOf(one.partition, one.requestOffset, one.correlationId, one.batch), one]),
  );
  const knownBy = new Map<string, { readonly sent: number; readonly since: number; readonly decision: string }>();
  for (const { process, partition, offset, key, sent, reply } of replies) {
    const decision = 'batch' in reply ? nameOf(partition, offset, key, reply.batch) : '';
    const entry = decisions.get(decision);
    const name = `${process}: ${partition}/${offset} ${key}`;
    if (entry === undefined || knownBy.has(name)) continue;
    knownBy.set(name, { sent, since: entry.process === process ? Math.min(entry.sent, sent) : sent, decision });
  }
  return entries.find(({ process, partition, requestOffset, correlationId, sent, batch }) => {
    const known = knownBy.get(`${process}: ${partition}/${requestOffset} ${correlationId}`);
    if (known === undefined || sent < known.sent || damaged.includes(process)) return false;
    const isForgotten = copies.some((event) => {
      const isOwn = event.process === process && event.partition === partition && event.what === 'dropped';
      return isOwn && known.since < event.order && event.order < sent;
    });
    if (isForgotten) return false;
    return nameOf(partition, requestOffset, correlationId, batch) !== known.decision;
  });
}

/**
 * A second decision of a request by a worker whose copy had the first one, at the look-up or before the copy was
 * emptied: a copy still knows what was decided after its entries are gone. A renewal repeats an earlier request's entry
 * of the key, and decides nothing: its own request may have an entry that lost.
 */
export function decidedThoughKnown({ learned, entries, damaged, copies }: History): Entry | undefined {
  const known = new Map<string, Learned[]>();
  const decisionOf = ({ partition, correlationId, batch }: Entry) =>
    `${partition}/${correlationId}: ${batch.ranges[0]?.first}`;
  const nameOf = ({ process, partition, requestOffset, correlationId }: Omit<Learned, 'order' | 'offset' | 'first'>) =>
    `${process} ${partition}/${requestOffset} ${correlationId}`;
  for (const one of learned) {
    const name = nameOf(one);
    known.set(name, [...(known.get(name) ?? []), one]);
  }
  const decisions = new Map<string, Entry>();
  for (const entry of entries) {
    const name = decisionOf(entry);
    if (!decisions.has(name)) decisions.set(name, entry);
  }
  return entries.find((entry) => {
    const { process, batch } = entry;
    const isRenewal = decisions.get(decisionOf(entry))?.requestOffset !== entry.requestOffset;
    if (damaged.includes(process) || isRenewal) return false;
    const others = known.get(nameOf(entry))?.filter(({ first }) => first !== batch.ranges[0]?.first);
    return others?.some((one) => isKnownTo({ copies }, one, entry));
  });
}

/**
 * A second decision of a request whose writer claims to have read the first one, which the ledger still had: the writer
 * had read another life of the log up to there. Once the first is trimmed, the second would count.
 */
export function decidedThoughRead({ entries, trims, losses, damaged }: History): Entry | undefined {
  const known = new Map<string, Entry[]>();
  for (const entry of entries) {
    const name = `${entry.partition}/${entry.correlationId}`;
    known.set(name, [...(known.get(name) ?? []), entry]);
  }
  const isGone = ({ partition, offset, order }: Entry, by: number): boolean =>
    trims.some((at) => at.partition === partition && at.low > offset && order < at.order && at.order < by) ||
    losses.some((loss) => loss.partition === partition && order < loss.order && loss.order < by);
  return [...known.values()].flatMap((same) => {
    return same.filter((entry, i) => {
      const before = same.slice(0, i);
      const isCopy = before.some(({ batch }) => sameRanges(batch, entry.batch));
      if (isCopy || damaged.includes(entry.process)) return false;
      return before.some((was) => was.offset < entry.end && was.order < entry.sent && !isGone(was, entry.order));
    });
  })[0];
}
