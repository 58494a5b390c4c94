import { parseArgs } from 'node:util';
import { progress } from './progress.mjs';
import { type Options, ServersGone, serve } from './serve.ts';
import { stopSignal } from './stop-signal.ts';

const USAGE = `npm start [-- --once] [--json] [--no-worker]

Runs idalloc on this machine: Kafka and etcd (or those of KAFKA_BROKERS and ETCD_ENDPOINTS), the topics, a worker, and
one real request over Kafka. Serves until Ctrl-C, and keeps its data in .idalloc/dev.

  --once   exit after the first reply
  --json   print only the reply on standard output, as one line; everything else goes to standard error
  --no-worker
           only the servers and the topics: to practise a replay, or to run a worker of your own
  --help   this text

Examples:
  npm start
  npm start -- --once --json | jq -r .ids[0].value_string
  npm start -- --no-worker

Kafka and etcd run in containers if an engine has or can pull their images, else as child processes with Java, Maven and Go;
as root on Debian, those are installed if they are missing (IDALLOC_NO_INSTALL=1 prevents that). IDALLOC_SERVERS=containers
or processes allows only one kind. Downloads are kept in ~/.cache/idalloc (IDALLOC_CACHE_DIR). KAFKA_HOME: use the jars of
that Kafka instead.
`;
/** More takeovers than this in a row are an error. */
const MAX_TAKEOVERS = 100;

function parseOptions(): Options | undefined {
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({
    options: { once: flag, json: flag, 'no-worker': flag, help: { ...flag, short: 'h' } },
  });
  const { once, json, help, 'no-worker': withoutWorker } = values;
  if (withoutWorker && (once || json))
    throw new Error('--no-worker sends no request, so it goes with neither --once nor --json');
  return help ? undefined : { once, json, withoutWorker };
}

/**
 * Serves until stopped, and takes over when the `npm start` that runs the servers ends. Throws errors that starting
 * again can't fix.
 */
async function serveOn(options: Options, stop: AbortSignal): Promise<void> {
  let answered = false;
  const onAnswer = () => {
    answered = true;
  };
  for (let attempt = 1; ; attempt++) {
    try {
      await serve({ ...options, quiet: answered }, onAnswer, stop);
      return;
    } catch (error) {
      if (answered && (stop.aborted || options.once)) return;
      if (!(error instanceof ServersGone) || attempt > MAX_TAKEOVERS) throw error;
      progress.say(`${error.message}; taking over`);
    }
  }
}

async function main(): Promise<number> {
  let options: Options | undefined;
  try {
    options = parseOptions();
  } catch (error) {
    process.stderr.write(`idalloc: ${error instanceof Error ? error.message : error}\n\n${USAGE}`);
    return 2;
  }
  if (!options) {
    process.stdout.write(USAGE);
    return 0;
  }
  const stop = stopSignal(() => progress.step('stopping'));
  try {
    await serveOn(options, stop);
    progress.settle();
    return 0;
  } catch (error) {
    progress.settle();
    if (stop.aborted) return 130;
    process.stderr.write(`idalloc: ${error instanceof Error ? error.message : error}\n`);
    return 1;
  }
}

process.exit(await main());
