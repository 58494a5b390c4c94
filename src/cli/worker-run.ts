import { aborted, atMost } from '../async/waiting.ts';
import { type Config, loadWorkerConfig } from '../config/config.ts';
import { shownSettings } from '../config/variables.ts';
import { describeError, IdallocError } from '../errors.ts';
import { startOps } from '../http/ops.ts';
import { createLogger, type Log } from '../log.ts';
import { createMetrics } from '../metrics/metrics.ts';
import { RUNTIME } from '../runtime.ts';
import { openTraces } from '../tracing/traces.ts';
import type { Worker } from '../worker/worker.ts';
import { type CliContext, EXIT } from './context.ts';
import { logText } from './terminal.ts';

/** Releasing the lease after the drain takes a few calls to etcd; after this time the lease is left to expire. */
const RELEASE_MS = 10_000;
/** The last spans are exported in what is left of that, and no longer than this: a collector may be away. */
const FLUSH_MS = 5_000;

/** Serves requests until the worker ends or the process is told to stop. */
export async function runWorker(context: CliContext): Promise<void> {
  const loaded = loadWorkerConfig(context.env, undefined, context.now());
  const config: Config = { ...loaded, workerIp: loaded.workerIp ?? context.hostIp() };
  const text = logText(context, config.logFormat, 'output');
  const log = createLogger({ level: config.logLevel, destination: 'stdout', text });
  const { env, version, commit } = context;
  const { layout, timing, pool, maxCount } = config;
  const derived = { layout: layout.name, timing, pool, maxCount };
  log.info({ version, commit, settings: shownSettings(env), derived }, 'idalloc is starting');
  for (const warning of config.warnings) log.warn(warning);
  const { topics, groupId } = config;
  const traces = await openTraces({ env, version, topics, groupId, runtime: RUNTIME, log });
  let worker: Worker | undefined;
  const metrics = createMetrics({ version, vitals: () => worker?.vitals() });
  const ready = () => {
    const reason = worker === undefined ? 'STARTING' : worker.unready;
    if (reason !== undefined) return { ready: false, reason, detail: worker?.unreadyDetail };
    return { ready: true, warning: worker?.warning?.code, detail: worker?.warning?.detail };
  };
  const complete = () => {
    const reason = worker === undefined ? 'STARTING' : worker.incomplete;
    return reason === undefined ? { ready: true } : { ready: false, reason, detail: worker?.incompleteDetail };
  };
  const allocating = () => {
    const reason = worker === undefined ? 'STARTING' : worker.closed;
    return reason === undefined ? { ready: true } : { ready: false, reason, detail: worker?.detailOf(reason) };
  };
  await using ops = await startOps({
    ...config.ops,
    ready,
    complete,
    allocating,
    status: () => worker && { ...worker.status, version },
    layout: config.layout,
    metrics,
    runtime: RUNTIME,
  });
  log.info({ host: config.ops.host, port: ops.port }, 'health and metrics are served');
  const { Worker } = await import('../worker/worker.ts');
  try {
    worker = new Worker(config, { log, metrics, tracing: traces?.tracing });
    await Promise.race([worker.done, aborted(context.stop)]);
    if (config.shutdownDelayMs > 0) await serveOn(worker, config.shutdownDelayMs, log);
    log.info('stopping: finishing the requests in progress');
  } catch (error) {
    log.fatal({ err: error }, describeError(error));
    context.setExitCode(exitCodeOf(error));
  }
  const endMs = RUNTIME.monotonicMs() + config.drainTimeoutMs + RELEASE_MS;
  if (worker !== undefined) await release(worker, endMs, log, context);
  await traces?.end(Math.min(FLUSH_MS, leftMs(endMs)));
}

/**
 * Load balancers send requests until they have noticed that the worker is not ready, so its port must not close before.
 * Rejects as soon as the worker can't continue.
 */
async function serveOn(worker: Worker, delayMs: number, log: Log): Promise<void> {
  worker.announceEnd();
  log.info({ delayMs }, 'stopping: not ready any more, and serving on until load balancers have noticed');
  await atMost(RUNTIME, delayMs, () => worker.done);
}

/** The worker limits its own drain; this limit is for a drain or a release that hangs. */
async function release(worker: Worker, endMs: number, log: Log, context: CliContext): Promise<void> {
  try {
    const end = await atMost(RUNTIME, leftMs(endMs), () => worker[Symbol.asyncDispose]().then(() => 'released'));
    if (end === undefined) throw new IdallocError('STOPPING', 'the worker did not stop in time; its lease will expire');
    log.info('stopped');
  } catch (error) {
    log.error({ err: error }, describeError(error));
    context.setExitCode(EXIT.failed);
  }
}

function leftMs(endMs: number): number {
  return Math.max(0, endMs - RUNTIME.monotonicMs());
}

function exitCodeOf(error: unknown): number {
  if (!(error instanceof IdallocError)) return EXIT.software;
  return error.code === 'CONFIG_INVALID' ? EXIT.config : EXIT.failed;
}
