import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { EqualRequests, isLost, placeName, requestsByPlace, requestsOfEntries, sameRanges } from './decisions.ts';
import type {
  AnsweredStated,
  Entry,
  History,
  Letter,
  NumbersEntry,
  ReplyRecord,
  RequestPlace,
  SentRequest,
} from './history.ts';

/**
 * An answer is final. Before an operator moves an offset back, the ledger states up to where the partition had been
 * answered; from then on no worker that must know of it decides what is read below and has no decision. What it refuses
 * for that reason was answered before. A statement with 0 ends that, and only the last one holds.
 */
export function final(history: History): string | undefined {
  return movedBeforeStated(history) ?? statedLess(history) ?? decidedAnew(history) ?? refusedUnanswered(history);
}

/** Nothing may come between: the command may be killed at any time. */
function movedBeforeStated({ replays, answeredStated }: History): string | undefined {
  const early = replays.find(({ process, partition, accepted }) => {
    return !answeredStated.some(
      (one) => one.process === process && one.partition === partition && one.order < accepted,
    );
  });
  return (
    early &&
    `${early.process} moved requests ${early.partition} to ${early.to} before the ledger said what was answered`
  );
}

/** A replay that comes while another one is in progress must not say less, unless what was refused is to be decided. */
function statedLess(history: History): string | undefined {
  const { answeredStated, requestLosses, isBrokerFarOff } = history;
  if (isBrokerFarOff) return undefined; // the command looks for the statement before by the brokers' times
  const less = answeredStated.find((one, i) => {
    const before = answeredStated.slice(0, i).findLast(({ partition }) => partition === one.partition);
    if (before === undefined || one.below === 0 || one.below >= before.below || isGone(history, before, one.order))
      return false;
    return !requestLosses.some((loss) => loss.partition === one.partition && loss.order < one.order);
  });
  return less && `ledger ${less.partition}/${less.offset} says that less was answered, ${less.below}, than before`;
}

/** Whether the ledger has lost the statement by then: some workers may still know it. */
function isGone({ losses, trims }: History, { partition, offset, order }: AnsweredStated, by: number): boolean {
  const isBetween = (one: { readonly partition: number; readonly order: number }) =>
    one.partition === partition && order < one.order && one.order < by;
  return (
    losses.some((loss) => isBetween(loss) && loss.from <= offset) ||
    trims.some((trim) => isBetween(trim) && trim.low > offset)
  );
}

/** The statement that held for the partition by then; undefined if there was none, or if one was lost. */
function heldBy(history: History, partition: number, by: number): AnsweredStated | undefined {
  const own = history.answeredStated.filter((one) => one.partition === partition && one.order < by);
  return own.some((one) => isGone(history, one, by)) ? undefined : own.at(-1);
}

type Decision = Entry | NumbersEntry;

/** The decisions: the first of their keys, unless the earlier ones were deleted. */
function decisionsIn(history: History): readonly Decision[] {
  const keyOf = (one: Decision) => `${one.partition} ${'sequence' in one ? one.sequence : ''} ${one.correlationId}`;
  const counting = history.numbers.filter(({ at, offset }) => at === offset && at !== RENEWAL);
  const all = [...history.entries, ...counting].toSorted((one, other) => one.order - other.order);
  const isGoneBy = ({ partition, offset, order }: Decision, by: number) =>
    history.trims.some(
      (trim) => trim.partition === partition && trim.low > offset && order < trim.order && trim.order < by,
    );
  const isSame = (one: Decision, other: Decision) =>
    'batch' in one && 'batch' in other
      ? sameRanges(one.batch, other.batch)
      : 'first' in one && 'first' in other && one.first === other.first;
  return [...Map.groupBy(all, keyOf).values()].flatMap((same) =>
    same.filter((one, i) => same.slice(0, i).every((was) => !isSame(was, one) && isGoneBy(was, one.order))),
  );
}

/** Whether the process had to know of a statement: it started after the command that made it, or made it itself. */
function mustKnow({ started }: History, process: string, { process: author }: AnsweredStated): boolean {
  return process === author || (started.get(process) ?? 0) > (started.get(author) ?? Number.POSITIVE_INFINITY);
}

/**
 * Whether a statement forbids to decide a request for the first time: it was answered before, here or where it was
 * first sent.
 */
function isForbidden(history: History, request: SentRequest, { order, end, process }: Decision): boolean {
  const { partition, offset, origin, sender = '' } = request;
  const here = heldBy(history, partition, order);
  const isBelow = here !== undefined && offset < here.below && request.order < here.order;
  if (isBelow && (end > here.offset || mustKnow(history, process, here))) return true;
  const there = origin && heldBy(history, origin.partition, request.order);
  if (origin === undefined || there === undefined || origin.offset >= there.below) return false;
  const first = history.requests.find(
    (one) => one.tag === request.tag && one.partition === origin.partition && one.offset === origin.offset,
  );
  return first !== undefined && first.order < there.order && mustKnow(history, sender, there);
}

function decidedAnew(history: History): string | undefined {
  const requestOf = requestsOfEntries(history);
  const isOf = (decision: Decision) => (one: SentRequest) =>
    one.partition === decision.partition &&
    one.correlationId === decision.correlationId &&
    one.sequence === ('sequence' in decision ? decision.sequence : undefined) &&
    one.order < decision.order &&
    one.offset <= decision.requestOffset &&
    !isLost(history, one, decision.order);
  const anew = decisionsIn(history).find((decision) => {
    const request = requestOf(decision as Entry);
    if (request === undefined || !isForbidden(history, request, decision)) return false;
    // A decision has the offset of the last of equal requests that were read together. Another of them may be a new
    // one.
    return history.requests.filter(isOf(decision)).every((one) => isForbidden(history, one, decision));
  });
  return (
    anew &&
    `ledger ${anew.partition}/${anew.offset}, by ${anew.process}, decides request ${anew.requestOffset} (${anew.correlationId}), which was answered before`
  );
}

/** The statements by which a request, or the one of which it is a copy, was answered before. */
function coveringOf(
  history: History,
  { partition, offset, origin }: SentRequest,
  by: number,
): readonly AnsweredStated[] {
  return history.answeredStated.filter((one) => {
    const isHere = one.partition === partition && offset < one.below;
    const isThere = one.partition === origin?.partition && origin.offset < one.below;
    return one.order < by && (isHere || isThere);
  });
}

/** Whether a request, or another record with its tag, may be refused as answered before. */
export function mayBeRefusedAgain(history: History, { tag }: SentRequest, by: number): boolean {
  return history.requests.some((one) => one.tag === tag && coveringOf(history, one, by).length > 0);
}

/**
 * What is refused since it was answered before had an answer by then, or was forwarded, or an equal request that was
 * read with it had one.
 */
function refusedUnanswered(history: History): string | undefined {
  const byPlace = requestsByPlace(history);
  const equals = new EqualRequests();
  const landed = new Map<string, number>();
  const answers: readonly (ReplyRecord | Letter | (RequestPlace & { readonly landed: number }))[] = [
    ...history.replies,
    ...history.letters,
    ...history.forwards,
  ];
  for (const answer of answers) {
    const request = byPlace.get(placeName(answer));
    if (request === undefined) continue;
    if ('reply' in answer) equals.replied(request, answer);
    if ('code' in answer) equals.dropped(request, answer);
    landed.set(request.tag, Math.min(answer.landed, landed.get(request.tag) ?? Number.POSITIVE_INFINITY));
  }
  for (const record of history.replies) {
    const request = byPlace.get(placeName(record));
    if (request === undefined || !('error' in record.reply) || record.reply.error.code !== 'ANSWERED_BEFORE') continue;
    const copies = history.requests.filter(({ tag }) => tag === request.tag);
    const orders = copies.flatMap((one) => coveringOf(history, one, record.landed)).map(({ order }) => order);
    const last = Math.max(...orders);
    const isAnswered =
      (landed.get(request.tag) ?? Number.POSITIVE_INFINITY) < last || copies.some((one) => equals.answers(one, last));
    if (!isAnswered)
      return `request ${placeName(record)} (${request.correlationId}) was refused as answered, and had no answer`;
  }
  return undefined;
}
