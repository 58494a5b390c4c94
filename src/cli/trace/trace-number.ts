import { type Source, wholeTopic } from '../../adapters/kafka/topics/offsets.ts';
import { readSpans, type TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { readLedgerKey } from '../../codec/ledger-key.ts';
import { countsAt } from '../../codec/ledger-position.ts';
import type { LedgerNumbers } from '../../codec/sequence-entry.ts';
import { formatNumber } from '../../codec/sequence-format.ts';
import { loadKafkaConfig } from '../../config/config.ts';
import { IdallocError } from '../../errors.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import { correlationText } from '../audit/report.ts';
import type { CliContext } from '../context.ts';
import { withCluster } from '../kafka-session.ts';
import { timeText } from '../table.ts';
import { Progress } from '../terminal.ts';

/** A record of numbers that has the one that is wanted. */
interface TracedNumber {
  readonly record: TopicRecord;
  readonly requestId: Buffer;
  readonly entry: LedgerNumbers;
}

/** Finds the request that a number of a sequence was given to, and prints it. Reads the home partition of the sequence. */
export async function traceNumber(
  context: CliContext,
  { sequence, number, json }: { readonly sequence: string; readonly number: number; readonly json?: true },
): Promise<void> {
  const { topics } = loadKafkaConfig(context.env);
  const found = await withCluster(context, loadKafkaConfig(context.env), (source) =>
    find(context, source, topics.ledger, { sequence, number }),
  );
  if (found === undefined) {
    throw new IdallocError(
      'NOT_FOUND',
      `'${topics.ledger}' has no record that gave out ${number} of ${sequence}: it was not given out, or is older than the ledger`,
    );
  }
  context.out(json === true ? `${JSON.stringify(viewOf(found, sequence, number))}\n` : textOf(found, sequence, number));
}

async function find(
  context: CliContext,
  source: Source,
  topic: string,
  wanted: { readonly sequence: string; readonly number: number },
): Promise<TracedNumber | undefined> {
  const whole = await wholeTopic(source, topic);
  const home = partitionFor(Buffer.from(wanted.sequence, 'latin1'), whole.length, () => 0);
  const spans = whole.filter(({ partition }) => partition === home);
  const total = spans.reduce((sum, { from, to }) => sum + to - from, 0);
  const progress = new Progress(context, 'searching', total);
  let found: TracedNumber | undefined;
  await readSpans(source, spans, {
    signal: context.stop,
    take: (records) => {
      for (const record of records) found ??= numbersWith(record, wanted);
      return found !== undefined;
    },
    onProgress: (done) => progress.show(done),
  });
  progress.end();
  return found;
}

function numbersWith(
  record: TopicRecord,
  { sequence, number }: { readonly sequence: string; readonly number: number },
): TracedNumber | undefined {
  const { key, value, offset } = record;
  const read = key?.[0] === 2 ? readLedgerKey(key) : undefined;
  if (read?.kind !== 'numbers' || read.sequence !== sequence || value === null) return undefined;
  const entry = decodeLedgerEntry(value);
  if (entry.kind !== 'numbers' || !countsAt(entry, offset)) return undefined;
  const place = (number - entry.first) / entry.step;
  const isIn = Number.isInteger(place) && place >= 0 && place < entry.count;
  return isIn ? { record, requestId: read.requestId, entry } : undefined;
}

function viewOf({ record, requestId, entry }: TracedNumber, sequence: string, number: number): object {
  return {
    sequence,
    number,
    text: formatNumber(entry.format, number),
    correlation_id: correlationText(requestId),
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

function textOf({ record, requestId, entry }: TracedNumber, sequence: string, number: number): string {
  const last = entry.first + (entry.count - 1) * entry.step;
  return [
    `number          ${formatNumber(entry.format, number)} of ${sequence}`,
    `correlation ID  ${correlationText(requestId)}, which has ${entry.first} to ${last}`,
    `request         partition ${record.partition} at ${entry.requestOffset}`,
    `ledger          ${record.topic}/${record.partition} at ${record.offset}, ${timeText(record.timestampMs)}`,
    `reply           on ${entry.replyTopic}`,
    '',
  ].join('\n');
}
