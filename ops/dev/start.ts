import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { kafkaClient } from '../../src/adapters/kafka/client.ts';
import { withAdmin } from '../../src/cli/kafka-session.ts';
import { loadKafkaConfig } from '../../src/config.ts';
import { createLogger, kafkaLogCreator } from '../../src/log.ts';
import { killAll } from './child.ts';
import { ROOT, STATE_DIR } from './paths.ts';
import { parseReply, presentNextSteps, presentReply } from './reply.ts';
import { run } from './run.ts';
import { openServers, type Servers } from './servers.ts';
import { workerEnv } from './worker-env.ts';
import { claimSlot, follow, isAlarming, startWorker } from './worker-process.ts';

const USAGE = `npm start [-- --once] [--json]

Runs idalloc on this machine: Kafka and etcd (or those of KAFKA_BROKERS and ETCD_ENDPOINTS), the topics, a worker, and
one real request over Kafka. Serves until Ctrl-C, and keeps its data in .idalloc/dev.

  --once   end after the first reply
  --json   standard output has the reply alone, as one line; everything else is on standard error
  --help   this text

Downloads are kept in ~/.cache/idalloc (IDALLOC_CACHE_DIR). KAFKA_HOME: use the jars of that Kafka instead.
`;
const COMMAND_TIMEOUT_MS = 90_000;
const FIRST_COUNT = 3;
/** Ctrl-C reaches this process from the terminal, and again from npm, which passes it on. */
const SAME_SIGNAL_MS = 1_000;

interface Options {
  readonly once: boolean;
  readonly json: boolean;
}

const startedAt = performance.now();

function log(line: string): void {
  process.stderr.write(`[${((performance.now() - startedAt) / 1000).toFixed(1).padStart(5)} s] ${line}\n`);
}

/** Runs one of the product's own commands and returns what it prints. */
function idalloc(args: readonly string[], env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<string> {
  return run({
    command: process.execPath,
    args: [join(ROOT, 'src/main.ts'), ...args],
    cwd: ROOT,
    env,
    purpose: `idalloc ${args.join(' ')}`,
    timeoutMs: COMMAND_TIMEOUT_MS,
    signal,
  });
}

/** How many brokers the cluster has; the one of this checkout is alone. */
async function countBrokers(servers: Servers): Promise<number> {
  if (servers.kafkaFrom === 'checkout') return 1;
  const { kafka: settings } = loadKafkaConfig(process.env);
  const kafka = kafkaClient(settings, kafkaLogCreator(createLogger({ level: 'error', destination: 'stderr' })));
  return withAdmin(kafka, settings.brokers, async (admin) => (await admin.describeCluster()).brokers.length);
}

/** From nothing to the first reply, and on until `stop`; whatever was started is stopped on every way out. */
async function serve(options: Options, stop: AbortSignal): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const servers = await openServers({ stateDir: STATE_DIR, env: process.env, log, signal: stop });
  cleanup.defer(() => servers.stop());
  const slot = claimSlot(STATE_DIR);
  cleanup.defer(() => slot.release());
  const brokerCount = await countBrokers(servers);
  const env = workerEnv({ env: process.env, ...servers, stateDir: STATE_DIR, slot: slot.number, brokerCount });
  const logFile = join(STATE_DIR, `worker-${slot.number}.log`);
  await idalloc(['topics', 'init'], env, stop);
  log('topics are there; starting a worker');
  const worker = await startWorker({ env, logFile, signal: stop });
  cleanup.defer(() => worker.stop());
  cleanup.defer(follow(logFile, (line) => (options.json || isAlarming(line)) && process.stderr.write(`${line}\n`)));
  log('the worker is ready; sending a request');
  const first = parseReply(await idalloc(['request', '--json', '--count', String(FIRST_COUNT)], env, stop));
  log('answered');
  const firstId = first.reply.ids[0]?.value_string ?? '';
  const next = presentNextSteps(servers.brokers, worker.opsUrl, relative(process.cwd(), logFile), firstId);
  process.stdout.write(options.json ? `${first.line}\n` : `\n${presentReply(first.reply)}\n\n`);
  if (options.once) return;
  (options.json ? process.stderr : process.stdout).write(`${next}\n`);
  await untilStopped(servers, worker.exited, stop);
}

async function untilStopped(servers: Servers, workerExit: Promise<string>, stop: AbortSignal): Promise<void> {
  const stopped = new Promise<undefined>((resolve) => stop.addEventListener('abort', () => resolve(undefined)));
  const fault = await Promise.race([stopped, servers.ended, workerExit.then((how) => `the worker ended: ${how}`)]);
  if (fault !== undefined) throw new Error(fault);
  log('stopping');
}

/** Aborted by the first SIGINT, SIGTERM or SIGHUP, or when the process that waits for this one is gone. */
function stopSignal(): AbortSignal {
  const controller = new AbortController();
  let firstAt = Number.POSITIVE_INFINITY;
  const stop = () => {
    if (performance.now() - firstAt > SAME_SIGNAL_MS) {
      killAll();
      process.exit(130);
    }
    firstAt = Math.min(firstAt, performance.now());
    controller.abort(new Error('interrupted'));
  };
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, stop);
  if (process.connected) process.once('disconnect', stop);
  return controller.signal;
}

function parseOptions(): Options | undefined {
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({ options: { once: flag, json: flag, help: { ...flag, short: 'h' } } });
  return values.help ? undefined : values;
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
  const stop = stopSignal();
  try {
    await serve(options, stop);
    return 0;
  } catch (error) {
    if (stop.aborted) return 130;
    process.stderr.write(`idalloc: ${error instanceof Error ? error.message : error}\n`);
    return 1;
  }
}

process.exit(await main());
