import type { Command } from 'commander';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { readIdText } from '../../codec/any-form.ts';
import { expandIds } from '../../codec/id-batch.ts';
import { encodeLedgerKey } from '../../codec/ledger-entry.ts';
import { encodeNumbersKey } from '../../codec/ledger-key.ts';
import { textOfId } from '../../codec/request-checks.ts';
import { decompose, type Layout, tickStartMs } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import { formSettings, orUsageError } from '../chosen-form.ts';
import { chosenLayout } from '../chosen-layout.ts';
import type { CliContext } from '../context.ts';
import type { FormFlags } from '../form-options.ts';
import { withKafka } from '../kafka-session.ts';
import type { LayoutOptions } from '../layout-options.ts';
import { present } from '../present.ts';
import { homePartition } from '../sequence/sequence-log.ts';
import { counted, timeText } from '../table.ts';
import { palette } from '../terminal.ts';
import {
  agrees,
  findDecision,
  findEntry,
  findReplies,
  findRequest,
  indexOf,
  ownRequestId,
  type TracedEntry,
} from './search.ts';
import { printNumbers } from './trace-number.ts';

export interface TraceOptions extends LayoutOptions, FormFlags {
  readonly allReplies?: true;
  readonly sequence?: string;
  readonly number?: number;
  readonly correlationId?: Buffer;
  readonly json?: true;
}

interface Trace {
  /** The ID that was traced; undefined if it was a correlation ID. */
  readonly id: bigint | undefined;
  readonly traced: TracedEntry;
  readonly request: TopicRecord | undefined;
  readonly replies: readonly TopicRecord[];
}

/** Finds the request of the ID in `text`, and prints it. */
export async function runTrace(
  context: CliContext,
  text: string,
  options: TraceOptions,
  command: Command,
): Promise<void> {
  const layout = chosenLayout(options, context.env, command);
  const settings = formSettings(layout, options, context.env);
  const { id } = orUsageError(command, () => readIdText(text, options.form, settings));
  const trace = await traceId(context, id, timeOf(id, layout, command), options.allReplies === true);
  present(context, options.json, traceJson(trace), () => traceText(context, trace));
}

function timeOf(id: bigint, layout: Layout, command: Command): number {
  try {
    return tickStartMs(layout, decompose(layout, id).ticks);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return command.error(`error: ${error.message}; see --layout`);
  }
}

async function traceId(context: CliContext, id: bigint, timeMs: number, allReplies: boolean): Promise<Trace> {
  return withKafka(context, async (session) => {
    const traced = await findEntry(session, id, timeMs);
    if (traced === undefined) {
      throw new IdallocError(
        'NOT_FOUND',
        `'${session.config.topics.ledger}' has no entry with ${id} within 15 minutes after ${timeText(timeMs)}: ` +
          'the ID was never delivered (a gap), is older than the ledger, or is of another layout or namespace',
      );
    }
    const request = await findRequest(session, traced);
    const replies = await findReplies(session, traced, allReplies);
    return { id, traced, request, replies };
  });
}

/** Finds what the ledger decided for a correlation ID, and prints it: a batch of IDs, or numbers of `sequence`. */
export async function traceRequest(
  context: CliContext,
  requestId: Buffer,
  { sequence, allReplies, json }: Pick<TraceOptions, 'sequence' | 'allReplies' | 'json'>,
): Promise<void> {
  await withKafka(context, async (session) => {
    const { ledger } = session.config.topics;
    const key = sequence === undefined ? encodeLedgerKey(requestId) : encodeNumbersKey(sequence, requestId);
    const home = await homePartition(session.source, ledger, sequence ?? requestId);
    const decided = await findDecision(session, home, key);
    if (decided === undefined) {
      const what = sequence === undefined ? 'no IDs' : `no number of ${sequence}`;
      const message = `'${ledger}' has ${what} for ${textOfId(requestId)}: nobody requested any, the request was refused or still waits, or it is older than the ledger`;
      throw new IdallocError('NOT_FOUND', message);
    }
    const { record, entry } = decided;
    if (entry.kind === 'numbers') return printNumbers(context, { record, requestId, entry }, sequence ?? '', json);
    const traced = { record, requestId, entry, loserTo: undefined, doubtful: false };
    const request = await findRequest(session, traced);
    const trace = { id: undefined, traced, request, replies: await findReplies(session, traced, allReplies === true) };
    present(context, json, traceJson(trace), () => traceText(context, trace));
  });
}

/** The line that --json prints. */
function traceJson({ id, traced, request, replies }: Trace): object {
  const { record, entry, requestId, loserTo, doubtful } = traced;
  const { batch } = entry;
  return {
    ...(id === undefined ? {} : { id: String(id) }),
    correlation_id: textOfId(requestId),
    count: entry.count,
    ...(id === undefined ? { ids: expandIds(batch).map(String) } : { index: indexOf(batch, id) }),
    datacenter_id: batch.datacenterId,
    worker_id: batch.workerId,
    fence: String(batch.fence),
    generated_at: timeText(batch.generatedAtMs),
    request: {
      partition: record.partition,
      offset: entry.requestOffset,
      sent_at: request === undefined ? null : timeText(request.timestampMs),
    },
    ledger: {
      topic: record.topic,
      partition: record.partition,
      offset: record.offset,
      appended_at: timeText(record.timestampMs),
      decides: loserTo === undefined && !doubtful ? true : loserTo === undefined ? null : false,
    },
    reply_topic: entry.replyTopic,
    replies: replies.map((reply) => ({
      partition: reply.partition,
      offset: reply.offset,
      at: timeText(reply.timestampMs),
      has_id: agrees(reply, id ?? firstOf(entry)) ?? null,
      correlation_id: textOfId(reply.key ?? Buffer.alloc(0)),
    })),
  };
}

function traceText(context: CliContext, { id, traced, request, replies }: Trace): string {
  const paint = palette(context);
  const { record, entry, requestId, loserTo, doubtful } = traced;
  const { batch } = entry;
  const sent = request === undefined ? ', which the topic no longer has' : `, sent ${timeText(request.timestampMs)}`;
  const verdict =
    loserTo !== undefined
      ? paint.yellow(`lost: the entry at ${loserTo} decided before it, so its IDs are a gap`)
      : doubtful
        ? paint.yellow('may have lost: the ledger before it was deleted')
        : paint.green('decides');
  const isOwn = replies.some((reply) => ownRequestId(reply) !== undefined);
  const replyLines = replies.map((reply) => {
    const has = agrees(reply, id ?? firstOf(entry));
    const same = id === undefined ? 'with these IDs' : 'with the ID';
    const what = has === true ? same : has === false ? paint.red('with other IDs') : 'an error';
    const under = isOwn ? `, correlation ID ${textOfId(reply.key ?? Buffer.alloc(0))}` : '';
    return `reply           ${entry.replyTopic}/${reply.partition} at ${reply.offset}, ${timeText(reply.timestampMs)}, ${what}${under}`;
  });
  return [
    id === undefined
      ? `${counted(entry.count, 'ID').padEnd(15)} ${extentText(batch)}`
      : `ID              ${id}, number ${indexOf(batch, id) + 1} of ${entry.count}`,
    `${isOwn ? 'request ID     ' : 'correlation ID '} ${textOfId(requestId)}`,
    `request         partition ${record.partition} at ${entry.requestOffset}${sent}`,
    `allocated       ${timeText(batch.generatedAtMs)} by datacenter ${batch.datacenterId}, worker ${batch.workerId}, fence ${batch.fence}`,
    `ledger          ${record.topic}/${record.partition} at ${record.offset}, ${timeText(record.timestampMs)}, ${verdict}`,
    ...(replyLines.length > 0 ? replyLines : [`reply           none found on ${entry.replyTopic}`]),
    '',
  ].join('\n');
}

function firstOf({ batch }: TracedEntry['entry']): bigint {
  return batch.ranges[0]?.first ?? 0n;
}

/** The first ID of a batch and its last one; --json lists all. */
function extentText(batch: TracedEntry['entry']['batch']): string {
  const ids = expandIds(batch);
  const [first, last] = [String(ids[0]), String(ids.at(-1))];
  return first === last ? first : `${first} to ${last}`;
}
