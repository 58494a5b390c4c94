import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { isKnownTo } from './copy-checks.ts';
import { answeredBy, hadLost, placeName, requestsByPlace } from './decisions.ts';
import { mayBeRefusedAgain } from './final-checks.ts';
import { mayBeForgotten } from './forgetting.ts';
import type {
  History,
  LearnedNumbers,
  Loss,
  NumbersEntry,
  ReplyRecord,
  SentRequest,
  StatementEntry,
} from './history.ts';
import { FIRST, homeOf, pairAt } from './pairs.ts';
import { behind, countingIn, isLostBy, isNumbers, isTrimmedBy, lossOf, type Row, rowAfter } from './sequence-log.ts';
import { LIMITED_TOPICS, SEQUENCE } from './setting.ts';

/** What was ever decided of a sequence, whatever became of the records: the next number, and its definition. */
type Due = Pick<StatementEntry, 'next' | 'step' | 'max' | 'closed' | 'edition'>;

const keyOf = ({ sequence, correlationId }: Pick<SentRequest, 'sequence' | 'correlationId'>) =>
  `${sequence} ${correlationId}`;

/**
 * Numbers that count follow each other by the step, in the order in which they were decided, whether or not the ledger
 * has lost some of them since: so none is given twice, and none is skipped. Only an order of an operator breaks that,
 * upwards. None passes the largest number, none follows a close. A record that was lost may count again, as it was. A
 * sequence has one home, and without a statement no numbers.
 */
export function gapless(history: History): string | undefined {
  const due = new Map<string, Due>();
  const decided = new Set<string>();
  const nameOf = (one: NumbersEntry) => `${keyOf(one)}: ${one.first}+${one.count} by ${one.step}`;
  for (const record of countingIn(history)) {
    if (history.losesBoth !== undefined && record.order > history.losesBoth) return undefined;
    const { sequence, partition, offset } = record;
    const place = `ledger ${partition}/${offset}`;
    if (partition !== homeOf(sequence, FIRST)) return `${place} has the sequence ${sequence} of another partition`;
    const now = due.get(sequence);
    if (isNumbers(record)) {
      if (now === undefined) return `${place} has numbers of ${sequence}, which was never stated`;
      if (decided.has(nameOf(record)) && behind(record) <= now.next) continue;
      const fault = wrongNumbers(record, now);
      if (fault !== undefined) return `${place}, by ${record.process}, ${fault}`;
      decided.add(nameOf(record));
      due.set(sequence, { ...now, next: behind(record) });
      continue;
    }
    const fault = now && wrongStatement(record, now);
    if (fault !== undefined) return `${place} ${fault}`;
    if (now === undefined || record.edition > now.edition || isOldOrder(record)) due.set(sequence, record);
  }
  return undefined;
}

function wrongNumbers(record: NumbersEntry, { next, step, max, closed }: Due): string | undefined {
  const { sequence, first, count } = record;
  if (closed) return `goes on with ${sequence} at ${first}, which is closed`;
  if (first !== next || record.step !== step) {
    return `continues ${sequence} at ${first} by ${record.step}, not at ${next} by ${step}`;
  }
  return first + (count - 1) * step > max ? `passes the end of ${sequence}` : undefined;
}

/**
 * What workers state is at most what was decided. An order starts where the last decision ended, and makes the next
 * edition.
 */
function wrongStatement(record: StatementEntry, due: Due): string | undefined {
  const { sequence, edition, first, next, isLoss } = record;
  if (isOldOrder(record)) return next < due.next ? `sets ${sequence} from ${due.next} to ${next}` : undefined;
  const isNextEdition = edition === due.edition + 1 && !isLoss;
  if (isNextEdition && (first ?? next) === due.next && next >= due.next) return undefined;
  if (next > due.next) return `sets ${sequence} to ${next}, where ${due.next} is next: numbers are skipped`;
  if (edition <= due.edition || (due.edition === 0 && isNextEdition)) return undefined;
  return `makes edition ${edition} of ${sequence} from ${first} to ${next}, after ${due.edition} at ${due.next}`;
}

/** A statement of a command before there were editions. */
const isOldOrder = ({ edition, isLoss }: StatementEntry) => edition === 0 && !isLoss;

/**
 * What the ledger has lost of a sequence is stated in it: where it shows numbers behind others that are not there, a
 * loss follows, before anything else is decided.
 */
export function lossStated(history: History): string | undefined {
  // A void one says nothing: its writer had not read the end of the log, as where a deposed leader reports an old one.
  const needless = history.statements.find(({ isLoss, at, offset, partition, order }) => {
    const isMissing = [...history.losses, ...history.trims].some(
      (one) => one.partition === partition && one.order < order,
    );
    return isLoss && at === offset && !isMissing;
  });
  if (needless !== undefined) {
    return `ledger ${needless.partition}/${needless.offset} states a loss of ${needless.sequence}, and nothing was lost`;
  }
  const rows = new Map<string, Row>();
  for (const record of countingIn(history)) {
    const { sequence, partition, offset } = record;
    // What retention took is still known to some copies. Only those that never read it see a gap, and state a loss once
    // they decide.
    if (isLostBy(history, record)) continue;
    const row = rows.get(sequence);
    const next = rowAfter(row, record);
    // Numbers may be pending when the loss is noticed: they follow, and then the loss.
    if (next !== undefined) rows.set(sequence, next);
    if (row === undefined || next === undefined || !isNumbers(record)) continue;
    const isAnswered = history.replies.some(({ reply, sent }) => {
      return 'numbers' in reply && reply.numbers.sequence === sequence && sent > record.order;
    });
    if (next.gap > row.next && isAnswered && !isOldest(history, record) && !isStatedLater(history, record, next.gap)) {
      return `ledger ${partition}/${offset} continues ${sequence} at ${record.first}, after ${row.next}, and no loss is stated`;
    }
  }
  return undefined;
}

/** Retention had taken all that was before it: nobody who read it then could see a gap. */
function isOldest({ trims }: History, { partition, offset, order }: NumbersEntry): boolean {
  return trims.some((trim) => trim.partition === partition && trim.order < order && trim.low >= offset);
}

function isStatedLater(history: History, record: NumbersEntry, gap: number): boolean {
  return history.statements.some((one) => {
    return (
      one.sequence === record.sequence &&
      one.at === one.offset &&
      one.isLoss &&
      one.next >= gap &&
      one.order > record.order
    );
  });
}

/** The records that decide each key: one, and another only after retention deleted it. */
function decidersOf(history: History): ReadonlyMap<string, readonly NumbersEntry[]> {
  const counting = countingIn(history).filter(isNumbers);
  return Map.groupBy(counting, keyOf);
}

/**
 * A correlation ID has one record that counts, unless retention deleted that and all its renewals before. Where the
 * ledger lost it, no other numbers follow, but to a request that is new to all that remembers the loss. The numbers
 * that were decided last may count again, since etcd has them until others are swapped in.
 */
export function numbersDecidedOnce(history: History): string | undefined {
  const renewals = history.numbers.filter(({ at }) => at === RENEWAL);
  for (const [key, decided] of decidersOf(history)) {
    for (const [i, again] of decided.entries()) {
      const last = decided[i - 1];
      if (last === undefined || (again.first === last.first && again.count === last.count)) continue;
      const renewed = renewals.filter((one) => keyOf(one) === key && one.order < again.order);
      if ([...decided.slice(0, i), ...renewed].some((one) => isHeldAgainst(history, one, again))) {
        return `${key} has numbers at ledger ${last.partition}/${last.offset} and at ${again.offset}, by ${again.process}`;
      }
    }
  }
  return undefined;
}

/** Whether a record of a key forbids other numbers: the ledger still has it, or lost it, and the request is older. */
function isHeldAgainst(history: History, one: NumbersEntry, again: NumbersEntry): boolean {
  const loss = lossOf(history, one, again.order);
  if (isTrimmedBy(history, one, loss?.order ?? again.order)) return false;
  return loss === undefined || !isNewAfter(history, loss, again);
}

/**
 * Whether nothing shows that the request of a record is older than a loss. It does not say that it was sent before.
 * Either it was appended after the loss, or both memories end below it: what was in the ledger and in etcd by then does
 * not reach it, and of the loss itself, which would reach it, the ledger has no statement, since it lost that as well.
 */
function isNewAfter(history: History, loss: Loss, again: NumbersEntry): boolean {
  const { requests, losesBoth = Number.POSITIVE_INFINITY } = history;
  if (again.order > losesBoth) return true;
  const request = requests.findLast((one) => {
    const isOfKey = one.sequence === again.sequence && one.correlationId === again.correlationId;
    return (
      isOfKey && one.partition === again.partition && one.offset === again.requestOffset && one.order < again.order
    );
  });
  if (request === undefined || request.firstSentMs !== undefined) return false;
  return (
    request.order > loss.order || (request.offset > reachBy(history, loss) && !isStatedBetween(history, loss, again))
  );
}

/** The highest request that the ledger, even if it lost that, or etcd showed as decided before a loss. */
function reachBy({ marks, heads, entries, numbers }: History, { partition, order }: Loss): number {
  const isOf = (one: { readonly partition: number; readonly order: number }) =>
    one.partition === partition && one.order < order;
  const ends = heads.filter(isOf).map((one) => (one.what === 'end' ? one.through : -1));
  const decided = [...entries, ...numbers].filter(isOf).map(({ requestOffset }) => requestOffset);
  return Math.max(-1, ...ends, ...decided, ...marks.filter(isOf).map(({ through }) => through));
}

/** Whether the ledger still had a statement of the loss of the sequence when the record was written. */
function isStatedBetween(history: History, loss: Loss, { sequence, order }: NumbersEntry): boolean {
  return history.statements.some((one) => {
    const isBetween = loss.order < one.order && one.order < order;
    const isCounting = one.sequence === sequence && one.isLoss && one.at === one.offset;
    return isBetween && isCounting && !isLostBy(history, one, order) && !isTrimmedBy(history, one, order);
  });
}

/** No number is in replies to two requests: whatever Kafka or etcd has lost, as long as they have not both lost it. */
export function numbersGivenOnce(history: History): string | undefined {
  const requests = requestsByPlace(history);
  const given = new Map<string, { readonly correlationId: string; readonly process: string }>();
  for (const record of history.replies) {
    const { reply, process, landed } = record;
    if (!('numbers' in reply) || landed > (history.losesBoth ?? Number.POSITIVE_INFINITY)) continue;
    const { sequence, first, count, step } = reply.numbers;
    const { correlationId } = requests.get(placeName(record)) ?? {};
    if (correlationId === undefined) continue;
    for (let number = first; number < first + count * step; number += step) {
      const before = given.get(`${sequence} ${number}`);
      if (before === undefined) given.set(`${sequence} ${number}`, { correlationId, process });
      else if (before.correlationId !== correlationId)
        return `${sequence} ${number} went to ${before.correlationId}, by ${before.process}, and to ${correlationId}, by ${process}`;
    }
  }
  return history.losesBoth === undefined ? givenThoughKnown(history) : undefined;
}

/**
 * No worker gives out numbers of which its copy knew that they are given out, at the look-up or before the copy was
 * emptied.
 */
function givenThoughKnown(history: History): string | undefined {
  const nameOf = ({ process, partition, sequence }: Omit<LearnedNumbers, 'order' | 'offset' | 'next'>) =>
    `${process} ${partition} ${sequence}`;
  const learned = Map.groupBy(history.learnedNumbers, nameOf);
  const damaged = new Set(history.damaged.map(machineOf));
  const decided = decidersOf(history);
  for (const record of countingIn(history).filter(isNumbers)) {
    if (damaged.has(machineOf(record.process))) continue;
    const { first } = record;
    const isAgain = decided.get(keyOf(record))?.some((one) => one.first === first && one.order < record.order);
    if (isAgain) continue; // it was lost, and counts again
    const later = learned.get(nameOf(record))?.filter(({ next }) => next > first);
    const known = later?.find((one) => isKnownTo(history, one, record));
    if (known === undefined) continue;
    const place = `ledger ${record.partition}/${record.offset}`;
    return `${place} has ${first} of ${record.sequence}, by ${record.process}, which knew that ${known.next} is next`;
  }
  return undefined;
}

/** Whether a sequence had gone so far by then that as many numbers as a request wants passed its end. */
function isBeyond(history: History, { sequence, count }: SentRequest, by: number): boolean {
  const own = countingIn(history).filter((one) => one.sequence === sequence && one.order < by);
  const next = Math.max(0, ...own.map((one) => (isNumbers(one) ? behind(one) : one.next)));
  const step = Math.max(0, ...own.map((one) => one.step));
  return next + (count - 1) * step > SEQUENCE.max;
}

const machineOf = (process: string) => process.split('.')[0];

/**
 * Each reply with numbers has those of a record that decided, and was there; refusals occur only where they are due.
 */
export function numbersReplied(history: History): string | undefined {
  const copiesOf = answeredBy(history);
  const [deciders, requests] = [decidersOf(history), requestsByPlace(history)];
  for (const record of history.replies) {
    const request = requests.get(placeName(record));
    if (request === undefined) continue; // 'replay' reports it
    if (request.sequence === undefined && !('numbers' in record.reply)) continue;
    const known = deciders.get(keyOf(request)) ?? [];
    const faults = copiesOf(record, request).map((copy) => wrongAnswer(record, copy, known, history));
    if (!faults.includes(undefined))
      return `request ${placeName(record)} (${keyOf(request)}) was answered with ${faults[0]}`;
  }
  return undefined;
}

function wrongAnswer(
  { reply, sent, firstSent, landed }: ReplyRecord,
  request: SentRequest,
  deciders: readonly NumbersEntry[],
  history: History,
): string | undefined {
  const isFor = (one: NumbersEntry) => one.count === request.count && one.replyTopic === request.replyTopic;
  if ('numbers' in reply) {
    const { sequence, first, count, step } = reply.numbers;
    const isDecided = deciders.some(
      (one) => isFor(one) && one.first === first && one.count === count && one.step === step && one.order < sent,
    );
    return sequence === request.sequence && isDecided ? undefined : `${first}+${count}, which were not decided`;
  }
  if (!('error' in reply)) return 'IDs';
  const { code } = reply.error;
  // Retention took the statement, and etcd lost the head.
  const isUnknown = history.setBacks.length > 0 && history.trims.some((one) => one.partition === request.partition);
  const isHome = pairAt(request.partition) === FIRST;
  const stated = history.statements.filter(({ sequence, order }) => sequence === request.sequence && order < landed);
  const isDue: Readonly<Record<string, () => boolean>> = {
    CONFLICT: () => deciders.some((one) => !isFor(one)),
    EXPIRED: () => request.expiresAtMs !== undefined,
    QUOTA_EXCEEDED: () => LIMITED_TOPICS.includes(request.replyTopic),
    FORGOTTEN: () => mayBeForgotten(history, request, landed) || hadLost(history, request.partition, landed),
    SEQUENCE_EXHAUSTED: () => isBeyond(history, request, landed),
    SEQUENCE_CLOSED: () => stated.some(({ closed }) => closed),
    // Heads remember what the log has lost; only both together lose a sequence.
    UNKNOWN_SEQUENCE: () =>
      !isHome ||
      isUnknown ||
      !stated.some(({ order }) => order < firstSent) ||
      landed > (history.losesBoth ?? Number.POSITIVE_INFINITY),
    SEQUENCE_STOPPED: () => history.setBacks.length > 0,
    ANSWERED_BEFORE: () => mayBeRefusedAgain(history, request, landed),
    INVALID_COUNT: () => request.count > (history.lowestCount ?? Number.POSITIVE_INFINITY),
  };
  return isDue[code]?.() === true ? undefined : `${code} without need`;
}
