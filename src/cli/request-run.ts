import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import { checkReplyTopicName, cliReplyTopic } from '../adapters/kafka/topics/plan.ts';
import { IdClient } from '../client/client.ts';
import type { RequestedBatch, SequenceNumbers } from '../client/id-source.ts';
import { RequestRefused } from '../client/refusals.ts';
import { expandIds } from '../codec/id-batch.ts';
import type { Encoding } from '../codec/id-request.ts';
import { viewId } from '../codec/id-view.ts';
import { type KafkaConfig, loadKafkaConfig } from '../config/config.ts';
import { printable } from '../core/visible.ts';
import { IdallocError } from '../errors.ts';
import { connectionOf } from '../kafka/wire/settings.ts';
import { checkForm, formSettings, orUsageError, writerOf } from './chosen.ts';
import { type CliContext, exitCodeOf } from './context.ts';
import { idTable } from './id-view.ts';
import { withCluster } from './kafka-session.ts';
import type { FormFlags, JsonFlag } from './options.ts';
import { jsonLine, message, present } from './output.ts';

export interface RequestFlags extends FormFlags, JsonFlag {
  readonly count: number;
  readonly sequence?: string;
  readonly correlationId?: string;
  readonly replyTopic?: string;
  readonly encoding: Encoding;
  /** Wall milliseconds. */
  readonly expiresAt?: number;
  readonly timeoutMs: number;
}

/** Sends the request and prints its reply, or the refusal. */
export async function runRequest(context: CliContext, options: RequestFlags, command: Command): Promise<void> {
  orUsageError(command, () => checkForm(options, context.env));
  const config = loadKafkaConfig(context.env);
  const correlationId = options.correlationId ?? randomUUID();
  try {
    const reply = await ask(context, config, correlationId, options);
    if ('sequence' in reply) return printNumbers(context, correlationId, reply, options.json);
    const view = viewBatch(context, correlationId, reply, options);
    present(context, options.json, view, () => batchText(view));
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    const code = error instanceof RequestRefused ? error.serverCode : error.code;
    const refusal = { code, message: error.message };
    // A refusal is a result: scripts get it on stdout, people on stderr.
    context.err(message(`${code}: ${error.message}`));
    if (options.json === true) context.out(jsonLine({ correlation_id: correlationId, error: refusal }));
    context.setExitCode(exitCodeOf(error));
  }
}

async function ask(
  context: CliContext,
  config: KafkaConfig,
  correlationId: string,
  options: RequestFlags,
): Promise<RequestedBatch | SequenceNumbers> {
  const requestTopic = config.topics.requests;
  const replyTopic = options.replyTopic ?? cliReplyTopic(config.topics);
  checkReplyTopicName(replyTopic, config.topics);
  const { count, encoding, timeoutMs, sequence } = options;
  const expiresAt = options.expiresAt === undefined ? undefined : new Date(options.expiresAt);
  const kafka = { brokers: config.kafka.brokers, ...connectionOf(config.kafka) };
  return withCluster(context, config, async () => {
    const { headers } = config;
    const client = await IdClient.connect({ kafka, requestTopic, replyTopic, headers, prefetch: false });
    try {
      if (sequence === undefined) return await client.request({ correlationId, count, encoding, timeoutMs, expiresAt });
      return await client.sequence(sequence).take(count, { correlationId, timeoutMs, expiresAt });
    } finally {
      await client.close();
    }
  });
}

function printNumbers(context: CliContext, correlationId: string, taken: SequenceNumbers, json?: true): void {
  const { sequence, count, replayed } = taken;
  const texts = taken.texts();
  const numbers = taken.numbers().map((value, i) => ({ value, text: texts[i] ?? String(value) }));
  const again = replayed ? ', the same numbers as before' : '';
  const lines = numbers.map(({ text }) => `${text}\n`).join('');
  const text = `${lines}${count} of ${sequence} for correlation ID ${printable(correlationId)}${again}\n`;
  present(context, json, { correlation_id: correlationId, sequence, count, numbers, replayed }, () => text);
}

/** The line that --json prints for a batch; scripts depend on its names and their order. */
function viewBatch(
  { env }: CliContext,
  correlationId: string,
  { batch, layout, replayed }: RequestedBatch,
  { form, prefix }: FormFlags,
) {
  const write = writerOf(form, formSettings(layout, { prefix }, env));
  const ids = expandIds(batch).map((id) => viewId(layout, id, write));
  return {
    correlation_id: correlationId,
    count: ids.length,
    ids,
    datacenter_id: batch.datacenterId,
    worker_id: batch.workerId,
    fence: String(batch.fence),
    replayed,
  };
}

function batchText({ ids, count, correlation_id: id, ...view }: ReturnType<typeof viewBatch>): string {
  const again = view.replayed ? ', the same batch as before' : '';
  const from = `datacenter ${view.datacenter_id}, worker ${view.worker_id}, fence ${view.fence}`;
  return `${idTable(ids)}\n${count} for correlation ID ${printable(id)} from ${from}${again}\n`;
}
