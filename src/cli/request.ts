import { randomUUID } from 'node:crypto';
import { Command, InvalidArgumentError, Option } from 'commander';
import { checkReplyTopicName, cliReplyTopic } from '../adapters/kafka/topics/plan.ts';
import type { RequestedBatch } from '../client/calls.ts';
import { IdClient } from '../client/client.ts';
import { RequestRefused } from '../client/requester.ts';
import { expandIds } from '../codec/id-batch.ts';
import type { Encoding } from '../codec/id-request.ts';
import { type IdView, viewId } from '../codec/id-view.ts';
import { type KafkaConfig, loadKafkaConfig } from '../config/config.ts';
import { IdallocError } from '../errors.ts';
import { connectionOf } from '../kafka/wire/settings.ts';
import { type CliContext, exitCodeOf } from './context.ts';
import { checkForm, type FormOptions, formSettings, orUsageError, withFormOptions, writerOf } from './form-options.ts';
import { idTable } from './id-view.ts';
import { withCluster } from './kafka-session.ts';
import { wholeNumber } from './numbers.ts';
import { message, printable } from './table.ts';

interface RequestOptions extends FormOptions {
  readonly count: number;
  readonly correlationId?: string;
  readonly replyTopic?: string;
  readonly encoding: Encoding;
  readonly timeoutMs: number;
  readonly json?: true;
}

/** The line that --json prints for a batch; scripts depend on its names and their order. */
interface BatchView {
  readonly correlation_id: string;
  readonly count: number;
  readonly ids: readonly IdView[];
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly fence: string;
  readonly replayed: boolean;
}

const MAX_TIMEOUT_MS = 600_000;
const MAX_COUNT = 2 ** 31 - 1;

const EXAMPLES = `
The same correlation ID always gets the same batch; with another count or reply topic it is a CONFLICT.
With --json, stdout has one line:
  {"correlation_id","count","ids":[{"value_string","value_hex","breakdown"}],"datacenter_id","worker_id","fence","replayed"}
or, without a batch, {"correlation_id","error":{"code","message"}}. IDs and the fence are strings. --form adds a
"value_form" to each ID, a layout of 53 bits a "value_number".

Examples:
  KAFKA_BROKERS=localhost:9092 idalloc request
  KAFKA_BROKERS=localhost:9092 idalloc request --form prefixed --prefix ord
  KAFKA_BROKERS=localhost:9092 idalloc request --count 1000 --correlation-id order-4711 --json`;

/** `idalloc request`: sends one request over Kafka and prints its reply. */
export function requestCommand(context: CliContext): Command {
  const command = new Command('request').description('Send one request over Kafka and print the reply.');
  return withFormOptions(command, 'form in which the IDs are printed as well')
    .option('--count <n>', 'how many IDs', wholeNumber(1, MAX_COUNT), 1)
    .option('--correlation-id <text>', '1 to 256 bytes (default: a random UUID)', correlationId)
    .option('--reply-topic <topic>', "topic of the reply (default: REPLY_TOPIC_PREFIX followed by 'cli')")
    .addOption(
      new Option('--encoding <how>', 'how the reply lists its IDs').choices(['RANGES', 'IDS']).default('RANGES'),
    )
    .option('--timeout-ms <ms>', 'time to wait for the reply', wholeNumber(1, MAX_TIMEOUT_MS), 10_000)
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action((options: RequestOptions) => {
      orUsageError(command, () => checkForm(options, context.env));
      return runRequest(context, options);
    });
}

async function runRequest(context: CliContext, options: RequestOptions): Promise<void> {
  const config = loadKafkaConfig(context.env);
  const correlationId = options.correlationId ?? randomUUID();
  try {
    const reply = await ask(context, config, correlationId, options);
    const view = viewBatch(context, correlationId, reply, options);
    context.out(options.json === true ? `${JSON.stringify(view)}\n` : batchText(view));
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    const code = error instanceof RequestRefused ? error.serverCode : error.code;
    refused(context, correlationId, { code, message: error.message }, options);
    context.setExitCode(exitCodeOf(error));
  }
}

async function ask(
  context: CliContext,
  config: KafkaConfig,
  correlationId: string,
  options: RequestOptions,
): Promise<RequestedBatch> {
  const requestTopic = config.topics.requests;
  const replyTopic = options.replyTopic ?? cliReplyTopic(config.topics);
  checkReplyTopicName(replyTopic, config.topics);
  const { count, encoding, timeoutMs } = options;
  const kafka = { brokers: config.kafka.brokers, ...connectionOf(config.kafka) };
  return withCluster(context, config, async () => {
    const { headers } = config;
    const client = await IdClient.connect({ kafka, requestTopic, replyTopic, headers, prefetch: false });
    try {
      return await client.request({ correlationId, count, encoding, timeoutMs });
    } finally {
      await client.close();
    }
  });
}

/** A refusal is a result: scripts get it on stdout, people on stderr. */
function refused(
  { out, err }: CliContext,
  correlationId: string,
  error: { readonly code: string; readonly message: string },
  { json }: RequestOptions,
): void {
  err(message(`${error.code}: ${error.message}`));
  if (json === true) out(`${JSON.stringify({ correlation_id: correlationId, error })}\n`);
}

function viewBatch(
  { env }: CliContext,
  correlationId: string,
  { batch, layout, replayed }: RequestedBatch,
  { form, prefix }: FormOptions,
): BatchView {
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

function batchText({ ids, count, correlation_id: id, datacenter_id, worker_id, fence, replayed }: BatchView): string {
  const again = replayed ? ', the same batch as before' : '';
  const from = `datacenter ${datacenter_id}, worker ${worker_id}, fence ${fence}`;
  return `${idTable(ids)}\n${count} for correlation ID ${printable(id)} from ${from}${again}\n`;
}

function correlationId(text: string): string {
  const bytes = Buffer.byteLength(text, 'utf8');
  if (bytes >= 1 && bytes <= 256) return text;
  throw new InvalidArgumentError(`has ${bytes} bytes; it must have 1 to 256.`);
}
