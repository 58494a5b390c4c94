import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { isKnownTo } from './copy-checks.ts';
import { hadLost, placeName, requestsByPlace } from './decisions.ts';
import { mayBeForgotten } from './forgetting.ts';
import type { History, LearnedNumbers, NumbersEntry, ReplyRecord, SentRequest, StatementEntry } from './history.ts';
import { FIRST, homeOf, pairAt } from './pairs.ts';
import { LIMITED_TOPICS } from './setting.ts';

/** The next number of a sequence, and its limits. */
type Row = Pick<StatementEntry, 'next' | 'step' | 'max' | 'closed' | 'edition'>;

const isNumbers = (record: NumbersEntry | StatementEntry): record is NumbersEntry => 'count' in record;

/** The records of sequences that count: those at the offset for which they were written. Renewals are not among them. */
function countingIn({ numbers, statements }: History): readonly (NumbersEntry | StatementEntry)[] {
  return [...numbers, ...statements]
    .filter(({ at, offset }) => at === offset)
    .toSorted((one, other) => one.order - other.order);
}

/** What the records that count make of each sequence. */
export function rowsOf(history: History): ReadonlyMap<string, Row> {
  const rows = new Map<string, Row>();
  for (const record of countingIn(history)) {
    const row = rows.get(record.sequence);
    if (!isNumbers(record)) rows.set(record.sequence, record);
    else if (row !== undefined) rows.set(record.sequence, { ...row, next: record.first + record.count * record.step });
  }
  return rows;
}

/**
 * Numbers that count follow each other in log order by the step; only a statement breaks that, upwards. None passes the largest
 * number. A sequence has one home, and without a statement no numbers.
 */
export function gapless(history: History): string | undefined {
  const rows = new Map<string, Row>();
  for (const record of countingIn(history)) {
    const { sequence, partition, offset, order } = record;
    if (hadLost(history, partition, order)) continue;
    const place = `ledger ${partition}/${offset}`;
    if (partition !== homeOf(sequence, FIRST)) return `${place} has the sequence ${sequence} of another partition`;
    const row = rows.get(sequence);
    if (!isNumbers(record)) {
      if (row !== undefined && record.next < row.next)
        return `${place} sets ${sequence} from ${row.next} to ${record.next}`;
      rows.set(sequence, record);
      continue;
    }
    if (row === undefined) return `${place} has numbers of ${sequence}, which was never stated`;
    const { first, count, step } = record;
    if (first !== row.next || step !== row.step) {
      return `${place} continues ${sequence} at ${first} by ${step}, not at ${row.next} by ${row.step}`;
    }
    if (first + (count - 1) * step > row.max || row.closed) return `${place} passes the end of ${sequence}`;
    rows.set(sequence, { ...row, next: first + count * step });
  }
  return undefined;
}

const keyOf = ({ sequence, correlationId }: Pick<SentRequest, 'sequence' | 'correlationId'>) =>
  `${sequence} ${correlationId}`;

/** The records that decide each key: one, and another only after retention deleted it. */
function decidersOf(history: History): ReadonlyMap<string, readonly NumbersEntry[]> {
  const counting = countingIn(history).filter(isNumbers);
  return Map.groupBy(counting, keyOf);
}

function isGone({ trims }: History, { partition, offset }: NumbersEntry, order: number): boolean {
  return trims.some((trim) => trim.partition === partition && trim.low > offset && trim.order < order);
}

/** A correlation ID has one record that counts, unless retention deleted that and all its renewals before. */
export function numbersDecidedOnce(history: History): string | undefined {
  const renewals = history.numbers.filter(({ at }) => at === RENEWAL);
  for (const [key, [first, again]] of decidersOf(history)) {
    if (first === undefined || again === undefined || hadLost(history, again.partition, again.order)) continue;
    const keepers = [first, ...renewals.filter((one) => keyOf(one) === key && one.order < again.order)];
    if (keepers.some((one) => !isGone(history, one, again.order))) {
      return `${key} has numbers at ledger ${first.partition}/${first.offset} and at ${again.offset}, by ${again.process}`;
    }
  }
  return undefined;
}

/**
 * No worker gives out numbers of which its copy knew that they are given out, at the look-up or before the copy was emptied: where the
 * ledger lost its tail, that is all that is left of them.
 */
export function numbersGivenOnce(history: History): string | undefined {
  const nameOf = ({ process, partition, sequence }: Omit<LearnedNumbers, 'order' | 'offset' | 'next'>) =>
    `${process} ${partition} ${sequence}`;
  const learned = Map.groupBy(history.learnedNumbers, nameOf);
  const damaged = new Set(history.damaged.map(machineOf));
  for (const record of countingIn(history).filter(isNumbers)) {
    if (damaged.has(machineOf(record.process))) continue;
    const { first } = record;
    const later = learned.get(nameOf(record))?.filter(({ next }) => next > first);
    const known = later?.find((one) => isKnownTo(history, one, record));
    if (known === undefined) continue;
    const place = `ledger ${record.partition}/${record.offset}`;
    return `${place} has ${first} of ${record.sequence}, by ${record.process}, which knew that ${known.next} is next`;
  }
  return undefined;
}

const machineOf = (process: string) => process.split('.')[0];

/** Each reply with numbers has those of a record that decided, and was there; refusals occur only where they are due. */
export function numbersReplied(history: History): string | undefined {
  const [deciders, requests] = [decidersOf(history), requestsByPlace(history)];
  for (const record of history.replies) {
    const request = requests.get(placeName(record));
    if (request === undefined) continue; // 'replay' reports it
    if (request.sequence === undefined && !('numbers' in record.reply)) continue;
    // What was decided is still what is replied; but much may be refused that was known.
    if ('error' in record.reply && hadLost(history, request.partition, record.landed)) continue;
    const fault = wrongAnswer(record, request, deciders.get(keyOf(request)) ?? [], history);
    if (fault !== undefined) return `request ${placeName(record)} (${keyOf(request)}) was answered with ${fault}`;
  }
  return undefined;
}

function wrongAnswer(
  { reply, sent, landed }: ReplyRecord,
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
  const wasTrimmed = history.trims.some((trim) => trim.partition === request.partition && trim.order < landed);
  const isDue: Readonly<Record<string, () => boolean>> = {
    CONFLICT: () => deciders.some((one) => !isFor(one)),
    EXPIRED: () => request.expiresAtMs !== undefined,
    QUOTA_EXCEEDED: () => LIMITED_TOPICS.includes(request.replyTopic),
    FORGOTTEN: () => mayBeForgotten(history, request, landed),
    SEQUENCE_EXHAUSTED: () => history.numbers.some(({ sequence }) => sequence === request.sequence),
    // A copy that retention overtook knows no statement until one is written again.
    UNKNOWN_SEQUENCE: () => wasTrimmed || pairAt(request.partition) !== FIRST,
    SEQUENCE_STOPPED: () => wasTrimmed,
  };
  return isDue[code]?.() === true ? undefined : `${code} without need`;
}
