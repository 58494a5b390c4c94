import { wholePartition } from '../../adapters/kafka/topics/offsets.ts';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { countsAt } from '../../codec/ledger-position.ts';
import { textOfId } from '../../codec/request-checks.ts';
import type { LedgerNumbers } from '../../codec/sequence-entry.ts';
import { formatNumber } from '../../codec/sequence-format.ts';
import { IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { type KafkaSession, readShown, withKafka } from '../kafka-session.ts';
import { present } from '../present.ts';
import { sequenceRecord } from '../sequence/partition-reading.ts';
import { homePartition } from '../sequence/sequence-log.ts';
import { counted, timeText } from '../table.ts';

/** A record of numbers that has the one that is wanted. */
interface TracedNumber {
  readonly record: TopicRecord;
  readonly requestId: Buffer;
  readonly entry: LedgerNumbers;
}

/**
 * Finds the request that a number of a sequence was given to, and prints it. Reads the home partition of the sequence.
 */
export async function traceNumber(
  context: CliContext,
  { sequence, number, json }: { readonly sequence: string; readonly number: number; readonly json?: true },
): Promise<void> {
  const found = await withKafka(context, (session) => find(session, { sequence, number }));
  present(context, json, viewOf(found, sequence, number), () => textOf(found, linesOf(found, sequence, number)));
}

async function find(
  session: KafkaSession,
  wanted: { readonly sequence: string; readonly number: number },
): Promise<TracedNumber> {
  const { ledger } = session.config.topics;
  const home = await homePartition(session.source, ledger, wanted.sequence);
  let found: TracedNumber | undefined;
  await readShown(session, [await wholePartition(session.source, ledger, home)], 'searching', (record) => {
    found = numbersWith(record, wanted);
    return found !== undefined;
  });
  if (found !== undefined) return found;
  throw new IdallocError(
    'NOT_FOUND',
    `'${ledger}' has no record that gave out ${wanted.number} of ${wanted.sequence}: it was not given out, or is older than the ledger`,
  );
}

function numbersWith(
  record: TopicRecord,
  { sequence, number }: { readonly sequence: string; readonly number: number },
): TracedNumber | undefined {
  const read = sequenceRecord(record);
  if (read?.requestId === undefined || read.sequence !== sequence) return undefined;
  const { requestId, entry } = read;
  if (!countsAt(entry, record.offset)) return undefined;
  const place = (number - entry.first) / entry.step;
  const isIn = Number.isInteger(place) && place >= 0 && place < entry.count;
  return isIn ? { record, requestId, entry } : undefined;
}

/** Prints the numbers of a sequence that a request has. */
export function printNumbers(
  context: CliContext,
  found: TracedNumber,
  sequence: string,
  json: boolean | undefined,
): void {
  const { entry } = found;
  const { format, first, step, count } = entry;
  const values = Array.from({ length: count }, (_, i) => first + i * step);
  const numbers = values.map((value) => ({ value, text: formatNumber(format, value) }));
  const [one, last] = [numbers[0]?.text ?? '', numbers.at(-1)?.text ?? ''];
  const line = `${counted(count, 'number').padEnd(15)} ${count === 1 ? one : `${one} to ${last}`} of ${sequence}`;
  const text = () => textOf(found, [line, `correlation ID  ${textOfId(found.requestId)}`]);
  present(context, json, { sequence, ...placeOf(found), numbers }, text);
}

function viewOf(found: TracedNumber, sequence: string, number: number): object {
  return { sequence, number, text: formatNumber(found.entry.format, number), ...placeOf(found) };
}

function placeOf({ record, requestId, entry }: TracedNumber): object {
  return {
    correlation_id: textOfId(requestId),
    first: entry.first,
    count: entry.count,
    step: entry.step,
    request: { partition: record.partition, offset: entry.requestOffset },
    ledger: {
      topic: record.topic,
      partition: record.partition,
      offset: record.offset,
      appended_at: timeText(record.timestampMs),
    },
    reply_topic: entry.replyTopic,
  };
}

function linesOf({ requestId, entry }: TracedNumber, sequence: string, number: number): readonly string[] {
  const last = entry.first + (entry.count - 1) * entry.step;
  return [
    `number          ${formatNumber(entry.format, number)} of ${sequence}`,
    `correlation ID  ${textOfId(requestId)}, which has ${entry.first} to ${last}`,
  ];
}

/** The number, or the numbers, and where they come from. */
function textOf({ record, entry }: TracedNumber, lines: readonly string[]): string {
  return [
    ...lines,
    `request         partition ${record.partition} at ${entry.requestOffset}`,
    `ledger          ${record.topic}/${record.partition} at ${record.offset}, ${timeText(record.timestampMs)}`,
    `reply           on ${entry.replyTopic}`,
    '',
  ].join('\n');
}
