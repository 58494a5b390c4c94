import { Command, InvalidArgumentError, Option } from 'commander';
import type { CliContext } from './context.ts';
import { FUTURE_HELP, futureReader, wholeNumber, withFormOptions } from './options.ts';
import type { RequestFlags } from './request-run.ts';
import { sequenceName } from './sequence/sequence.ts';

const MAX_TIMEOUT_MS = 600_000;
const MAX_COUNT = 2 ** 31 - 1;

const EXAMPLES = `
The same correlation ID gets the same batch while the ledger keeps it, 26 h by default; with another count or reply
topic it is a CONFLICT. With --json, stdout has one line:
  {"correlation_id","count","ids":[{"value_string","value_hex","breakdown"}],"datacenter_id","worker_id","fence","replayed"}
or, without a batch, {"correlation_id","error":{"code","message"}}. IDs and the fence are strings. --form adds a
"value_form" to each ID, a layout of 53 bits a "value_number". With --sequence the line is
  {"correlation_id","sequence","count","numbers":[{"value","text"}],"replayed"}

Examples:
  KAFKA_BROKERS=localhost:9092 idalloc request
  KAFKA_BROKERS=localhost:9092 idalloc request --form prefixed --prefix ord
  KAFKA_BROKERS=localhost:9092 idalloc request --count 1000 --correlation-id order-4711 --json
  KAFKA_BROKERS=localhost:9092 idalloc request --sequence invoices/2027 --correlation-id order-4711`;

/**
 * Under a random correlation ID the numbers would be lost with this command's output, and a retry would take others.
 */
const WITHOUT_DOCUMENT =
  "error: --sequence needs --correlation-id with the ID of the document that gets the numbers: by it a retry gets the same ones, and 'idalloc trace' finds them";

/** `idalloc request`: sends one request over Kafka and prints its reply. */
export function requestCommand(context: CliContext): Command {
  const command = new Command('request').description('Send one request over Kafka and print the reply.');
  return withFormOptions(command, 'form in which the IDs are printed as well')
    .option('--count <n>', 'how many IDs', wholeNumber(1, MAX_COUNT), 1)
    .option('--sequence <name>', 'numbers of this sequence instead of IDs', sequenceName)
    .option('--correlation-id <text>', '1 to 256 bytes; needed for --sequence (default: a random UUID)', correlationId)
    .option('--reply-topic <topic>', "topic of the reply (default: REPLY_TOPIC_PREFIX followed by 'cli')")
    .addOption(
      new Option('--encoding <how>', 'how the reply lists its IDs').choices(['RANGES', 'IDS']).default('RANGES'),
    )
    .option('--expires-at <time>', `refuse it as EXPIRED from this time on: ${FUTURE_HELP}`, futureReader(context.now))
    .option('--timeout-ms <ms>', 'time to wait for the reply', wholeNumber(1, MAX_TIMEOUT_MS), 10_000)
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action(async (options: RequestFlags) => {
      const ofIds = (['form', 'prefix'] as const).find((flag) => options[flag] !== undefined);
      if (options.sequence !== undefined && ofIds !== undefined) {
        command.error(`error: --${ofIds} is for IDs, and --sequence for numbers: give one of them`);
      }
      if (options.sequence !== undefined && options.correlationId === undefined) {
        command.error(WITHOUT_DOCUMENT);
      }
      const { runRequest } = await import('./request-run.ts');
      await runRequest(context, options, command);
    });
}

function correlationId(text: string): string {
  const bytes = Buffer.byteLength(text, 'utf8');
  if (bytes >= 1 && bytes <= 256) return text;
  throw new InvalidArgumentError(`has ${bytes} bytes; it must have 1 to 256.`);
}
