import type { Command } from 'commander';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { expandIds } from '../../codec/id-batch.ts';
import { readIdText } from '../../codec/id-text.ts';
import { encodeLedgerKey, encodeNumbersKey } from '../../codec/ledger-key.ts';
import { decodeLeaseRecord, type LeaseRecord } from '../../codec/namespace-values.ts';
import { textOfId } from '../../codec/request-checks.ts';
import { formatNumber } from '../../codec/sequence-format.ts';
import { loadEtcdConfig } from '../../config/config.ts';
import { decompose, type Layout, tickStartMs } from '../../core/layout.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import { chosenLayout, formSettings, orUsageError, SEE_LAYOUT } from '../chosen.ts';
import type { CliContext } from '../context.ts';
import { withKafka } from '../kafka-session.ts';
import type { FormFlags, JsonFlag, LayoutOptions } from '../options.ts';
import { counted, present, timeText } from '../output.ts';
import { palette } from '../terminal.ts';
import {
  agrees,
  findDecision,
  findEntry,
  findNumber,
  findReplies,
  findRequest,
  homesOf,
  indexOf,
  ownRequestId,
  type TracedEntry,
  type TracedNumber,
} from './search.ts';

export interface TraceOptions extends LayoutOptions, FormFlags, JsonFlag {
  readonly allReplies?: true;
  readonly sequence?: string;
  readonly number?: number;
  readonly correlationId?: Buffer;
}

interface TracedRequest {
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
  const timeMs = orUsageError(command, () => tickStartMs(layout, decompose(layout, id).ticks), SEE_LAYOUT);
  const trace = await withKafka(context, async (session) => {
    const traced = await findEntry(session, id, timeMs);
    if (traced === undefined) {
      throw new IdallocError(
        'NOT_FOUND',
        `no entry of '${session.config.topics.ledger}' has ${id}. An ID over HTTP without an Idempotency-Key is in no topic: ` +
          `${await allocatorOf(context, { id, layout, timeMs })}. Otherwise it was never delivered (a gap), is older than the ledger, ` +
          `is of another layout or namespace, or was written more than 15 minutes after ${timeText(timeMs)}`,
      );
    }
    const request = await findRequest(session, traced);
    return { id, traced, request, replies: await findReplies(session, traced, options.allReplies === true) };
  });
  present(context, options.json, traceJson(trace), () => traceText(context, trace));
}

interface WantedId {
  readonly id: bigint;
  readonly layout: Layout;
  readonly timeMs: number;
}

/** Who allocated an ID, by its fields and by who holds the worker ID now, as far as etcd can be asked. */
async function allocatorOf({ env }: CliContext, { id, layout, timeMs }: WantedId): Promise<string> {
  const { datacenter, worker } = decompose(layout, id);
  const where = `this one is of datacenter ${datacenter}, worker ${worker}, ${timeText(timeMs)}`;
  try {
    const config = loadEtcdConfig(env);
    if (config.datacenterId !== datacenter) return `${where}, and DATACENTER_ID is ${config.datacenterId}`;
    const key = namespaceKeys(config.etcd.prefix, datacenter).owner(worker);
    const { withEtcd } = await import('../../adapters/etcd/etcd.ts');
    const owner = await withEtcd(config.etcd, async (etcd) => (await etcd.get([key])).get(key));
    return `${where}, ${holderText(owner && decodeLeaseRecord(owner.value), timeMs)}`;
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    const why = error.code === 'CONFIG_INVALID' ? 'set DATACENTER_ID and ETCD_ENDPOINTS' : describeError(error);
    return `${where}, and who holds that worker ID is not known (${why})`;
  }
}

/** Whether the holder of a worker ID is the one that had it at a time. */
export function holderText(
  holder: Pick<LeaseRecord, 'assignedWorkerIp' | 'grantedAtMs'> | undefined,
  timeMs: number,
): string {
  if (holder === undefined) return 'and nobody holds that worker ID now';
  const { assignedWorkerIp, grantedAtMs } = holder;
  const since = `since ${timeText(grantedAtMs)}`;
  if (grantedAtMs <= timeMs) return `and ${assignedWorkerIp} has held that worker ID ${since}, so it was that worker`;
  return `and ${assignedWorkerIp} has held that worker ID only ${since}: it was a worker before it`;
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
    let decided: Awaited<ReturnType<typeof findDecision>>;
    for (const home of await homesOf(session, sequence ?? requestId))
      decided ??= await findDecision(session, home, key);
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
function traceJson({ id, traced, request, replies }: TracedRequest): object {
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
    ledger: { ...ledgerJson(record), decides: loserTo !== undefined ? false : doubtful ? null : true },
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

function traceText(context: CliContext, { id, traced, request, replies }: TracedRequest): string {
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

/**
 * Finds the request that a number of a sequence was given to, and prints it. Reads the home partition of the sequence.
 */
export async function traceNumber(
  context: CliContext,
  { sequence, number, json }: Required<Pick<TraceOptions, 'sequence' | 'number'>> & JsonFlag,
): Promise<void> {
  const found = await withKafka(context, (session) => findNumber(session, sequence, number));
  const { requestId, entry } = found;
  const text = formatNumber(entry.format, number);
  const last = entry.first + (entry.count - 1) * entry.step;
  const lines = [
    `number          ${text} of ${sequence}`,
    `correlation ID  ${textOfId(requestId)}, which has ${entry.first} to ${last}`,
  ];
  present(context, json, { sequence, number, text, ...placeOf(found) }, () => textOf(found, lines));
}

/** Prints the numbers of a sequence that a request has. */
function printNumbers(context: CliContext, found: TracedNumber, sequence: string, json: boolean | undefined): void {
  const { entry } = found;
  const { format, first, step, count } = entry;
  const values = Array.from({ length: count }, (_, i) => first + i * step);
  const numbers = values.map((value) => ({ value, text: formatNumber(format, value) }));
  const [one, last] = [numbers[0]?.text ?? '', numbers.at(-1)?.text ?? ''];
  const line = `${counted(count, 'number').padEnd(15)} ${count === 1 ? one : `${one} to ${last}`} of ${sequence}`;
  const text = () => textOf(found, [line, `correlation ID  ${textOfId(found.requestId)}`]);
  present(context, json, { sequence, ...placeOf(found), numbers }, text);
}

function placeOf({ record, requestId, entry }: TracedNumber): object {
  return {
    correlation_id: textOfId(requestId),
    first: entry.first,
    count: entry.count,
    step: entry.step,
    request: { partition: record.partition, offset: entry.requestOffset },
    ledger: ledgerJson(record),
    reply_topic: entry.replyTopic,
  };
}

function ledgerJson({ topic, partition, offset, timestampMs }: TopicRecord): object {
  return { topic, partition, offset, appended_at: timeText(timestampMs) };
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
