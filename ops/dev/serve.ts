import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join, relative } from 'node:path';
import { withCluster } from '../../src/cli/kafka-session.ts';
import { loadKafkaConfig } from '../../src/config/config.ts';
import { lastLines } from './child.ts';
import { isAlarming, readableLine } from './log-line.ts';
import { ROOT, STATE_DIR } from './paths.ts';
import { progress } from './progress.mjs';
import { commandVariables, parseReply, presentNextSteps, presentReply, presentServers } from './reply.ts';
import { run } from './run.ts';
import { openServers, type Servers } from './servers.ts';
import { claimSlot, follow, startWorker, type WorkerProcess } from './worker-process.ts';

const COMMAND_TIMEOUT_MS = 90_000;
const FIRST_COUNT = 3;
/** A worker drains, 10 s at most, and releases, 10 s at most; without servers it can do neither. */
const GRACE_MS = 25_000;
const GRACE_WITHOUT_SERVERS_MS = 1_000;
/** A step may fail because the owner of the servers ends, shortly before that is noticed. */
const NOTICE_MS = 1_500;

export interface Options {
  /** Exit after the first reply. */
  readonly once: boolean;
  /** Standard output has only the reply. */
  readonly json: boolean;
  /** Only the servers and the topics. */
  readonly withoutWorker: boolean;
  /** The reply was already printed. */
  readonly quiet?: boolean;
}

/** The `npm start` that runs the servers is ending; starting again is enough. */
export class ServersGone extends Error {}

/**
 * Starts everything, prints the first reply, and without `once` serves until `stop`. Stops what it started in any case.
 * Rejects with the reason of `stop`, with ServersGone if the servers of another process ended, or with the error.
 */
export async function serve(options: Options, onAnswer: () => void, stop: AbortSignal): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const servers = await openServers({ stateDir: STATE_DIR, env: process.env, progress, signal: stop });
  cleanup.defer(() => servers.stop());
  const lost = new AbortController();
  void servers.ended.then((how) => lost.abort(servers.shared ? new ServersGone(how) : new Error(how)));
  const grace = () => (lost.signal.aborted ? GRACE_WITHOUT_SERVERS_MS : GRACE_MS);
  const signal = AbortSignal.any([stop, lost.signal]);
  try {
    const worker = await startOne(options, servers, cleanup, grace, signal);
    if (worker.process === undefined) await withoutWorker(worker.env, onAnswer, signal);
    else await firstReply(options, worker.process, worker.env, onAnswer, signal);
  } catch (error) {
    if (servers.shared && !stop.aborted && !lost.signal.aborted) await noticed(lost.signal);
    if (lost.signal.aborted && !stop.aborted) throw lost.signal.reason;
    throw error;
  }
}

interface Running {
  /** Absent without a worker. */
  readonly process?: WorkerProcess;
  readonly env: NodeJS.ProcessEnv;
}

/** The topics, and a worker in its own slot, unless none is wanted. */
async function startOne(
  options: Options,
  servers: Servers,
  cleanup: AsyncDisposableStack,
  graceMs: () => number,
  signal: AbortSignal,
): Promise<Running> {
  const slot = claimSlot(STATE_DIR);
  cleanup.defer(() => slot.release());
  const brokerCount = await countBrokers(servers, signal);
  const env = workerEnv({ env: process.env, ...servers, stateDir: STATE_DIR, slot: slot.number, brokerCount });
  progress.step('creating the topics');
  await idalloc(['topics', 'init'], env, signal);
  if (options.withoutWorker) {
    servers.offer(commandVariables(env));
    cleanup.defer(() => servers.retire());
    return { env };
  }
  progress.step('topics exist; starting a worker');
  const logFile = join(STATE_DIR, `worker-${slot.number}.log`);
  const dir = join(STATE_DIR, `worker-${slot.number}`);
  const worker = await startWorker({ env, logFile, dir, slot: slot.number, signal });
  cleanup.defer(() => worker.stop(graceMs()));
  servers.offer(commandVariables(env));
  cleanup.defer(() => servers.retire());
  cleanup.defer(follow(logFile, showLog(options)));
  progress.step('the worker is ready; sending a request');
  return { process: worker, env };
}

async function withoutWorker(env: NodeJS.ProcessEnv, onAnswer: () => void, signal: AbortSignal): Promise<never> {
  progress.settle();
  process.stdout.write(`${presentServers(env, areFound())}\n`);
  onAnswer();
  await untilAborted(signal);
  throw signal.reason;
}

/** Whether a command finds the servers by itself. */
function areFound(): boolean {
  return !process.env.KAFKA_BROKERS || !process.env.ETCD_ENDPOINTS;
}

async function firstReply(
  options: Options,
  worker: WorkerProcess,
  env: NodeJS.ProcessEnv,
  onAnswer: () => void,
  signal: AbortSignal,
): Promise<void> {
  const answer = parseReply(await idalloc(['request', '--json', '--count', String(FIRST_COUNT)], env, signal));
  progress.say('answered');
  progress.settle();
  if (!options.quiet) process.stdout.write(options.json ? `${answer.line}\n` : `\n${presentReply(answer.reply)}\n\n`);
  onAnswer();
  if (options.once) return;
  const firstId = answer.reply.ids[0]?.value_string ?? '';
  const shown = { logFile: relative(process.cwd(), worker.logFile), firstId, found: areFound() };
  const next = presentNextSteps(env, worker, shown);
  (options.json ? process.stderr : process.stdout).write(`${next}\n`);
  const how = await Promise.race([untilAborted(signal), worker.exited]);
  signal.throwIfAborted();
  throw new Error(`the worker exited: ${how}${lastLines(worker.logFile)}`);
}

/** Runs a command of idalloc and returns what it prints. */
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

/** How many brokers the cluster has: one, if it is the broker of this checkout. */
async function countBrokers(servers: Servers, signal: AbortSignal): Promise<number> {
  if (servers.kafkaFrom === 'checkout') return 1;
  const config = loadKafkaConfig(process.env);
  const err = (text: string) => progress.say(text.trimEnd());
  const context = { stop: signal, env: process.env, err, terminal: { errors: true } };
  return withCluster(context, config, async ({ cluster }) => (await cluster.metadata([])).brokers.length);
}

/**
 * Which lines of the worker's log go to standard error: with --json all of them, on a terminal sentences, and otherwise
 * the important lines unchanged. Warnings from before the worker was ready are skipped: they are about the single
 * broker.
 */
function showLog({ json }: Options): (line: string) => void {
  const readyAt = Date.now();
  if (!json && process.stderr.isTTY) {
    return (line) => {
      const text = readableLine(line, readyAt);
      if (text !== undefined) progress.say(`worker: ${text}`);
    };
  }
  return (line) => {
    if (json || isAlarming(line, readyAt)) progress.print(line);
  };
}

async function untilAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}

function noticed(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, NOTICE_MS);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

export interface WorkerEnvOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly brokers: string;
  readonly endpoints: string;
  readonly stateDir: string;
  /** Number of this worker among those of the checkout. */
  readonly slot: number;
  /** How many brokers the cluster has. */
  readonly brokerCount: number;
}

/**
 * The environment of the worker and of the commands that go with it. What the user has set is kept. A ledger on one
 * broker is weak, so with one broker, and only then, a weak ledger is allowed.
 */
export function workerEnv(options: WorkerEnvOptions): NodeJS.ProcessEnv {
  const alone = { ALLOW_WEAK_LEDGER: '1', TOPIC_REPLICATION_FACTOR: '1' };
  const replyPrefix = options.env.REPLY_TOPIC_PREFIX || 'id.replies.';
  return {
    DATACENTER_ID: '0',
    OPS_HOST: '127.0.0.1',
    API_HOST: '127.0.0.1',
    API_REPLY_TOPIC: `${replyPrefix}http`,
    INDEX_DIR: join(options.stateDir, indexName(options)),
    ...(options.brokerCount === 1 ? alone : {}),
    ...withoutEmpty(options.env),
    KAFKA_BROKERS: options.brokers,
    ETCD_ENDPOINTS: options.endpoints,
  };
}

/** An index belongs to one cluster, so each cluster that the environment names gets its own indexes. */
function indexName({ env, slot }: WorkerEnvOptions): string {
  if (!env.KAFKA_BROKERS) return `index-${slot}`;
  return `index-${createHash('sha256').update(env.KAFKA_BROKERS).digest('hex').slice(0, 8)}-${slot}`;
}

function withoutEmpty(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
}
