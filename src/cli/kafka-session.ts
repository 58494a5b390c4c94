import { asUnavailable, CALL_TIMEOUT_MS, PATIENT, unlessStopped } from '../adapters/kafka/brokers.ts';
import {
  type ReadIsolation,
  readSpans,
  type Source,
  type Span,
  type SpanReading,
  sizeOf,
} from '../adapters/kafka/topics/spans.ts';
import { retrying } from '../async/retrying.ts';
import type { Runtime } from '../async/runtime.ts';
import { type KafkaConfig, loadKafkaConfig } from '../config/config.ts';
import { IdallocError } from '../errors.ts';
import { Cluster } from '../kafka/wire/cluster.ts';
import type { BrokerAddress, Dialer } from '../kafka/wire/port.ts';
import { kafkaDialer, seedsOf, unreachable } from '../kafka/wire/settings.ts';
import { createLogger, wireLog } from '../log.ts';
import { RUNTIME } from '../runtime.ts';
import type { CliContext } from './context.ts';
import { logText, Progress } from './terminal.ts';

type Announcing = Pick<CliContext, 'stop' | 'err' | 'env'> & {
  readonly terminal: Pick<CliContext['terminal'], 'errors'>;
};

/** How to connect to the brokers; tests pass their own. */
interface Connecting {
  readonly dialer: Dialer;
  readonly seeds: readonly BrokerAddress[];
  readonly runtime: Runtime;
}

/** Brokers are tried for many seconds; after this time the terminal shows what the command waits for. */
const NOTICE_AFTER_MS = 3_000;

/**
 * Runs `use` once a broker has answered; all connections are closed afterwards. The error that ends a
 * command is printed as one line, so stderr has only `error` log lines unless LOG_LEVEL is set.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE when no broker answers; CONFIG_INVALID when the login is rejected;
 * STOPPING when `stop` aborts.
 */
export async function withCluster<T>(
  context: Announcing,
  config: KafkaConfig,
  use: (source: Source) => Promise<T>,
  wire: Connecting = { dialer: kafkaDialer(config.kafka), seeds: seedsOf(config.kafka.brokers), runtime: RUNTIME },
): Promise<T> {
  const { stop, env } = context;
  const level = env.LOG_LEVEL === undefined || env.LOG_LEVEL === '' ? 'error' : config.logLevel;
  const text = logText(context, config.logFormat, 'errors');
  const cluster = new Cluster({ ...wire, log: wireLog(createLogger({ level, destination: 'stderr', text })) });
  const source = { cluster, runtime: wire.runtime };
  try {
    await unlessStopped(stop, () => requireResponse(source, context, config));
    return await unlessStopped(stop, () => use(source));
  } catch (error) {
    throw asUnavailable(error);
  } finally {
    await cluster.close();
  }
}

/** A command that is connected to Kafka. */
export interface KafkaSession {
  readonly context: CliContext;
  readonly config: KafkaConfig;
  readonly source: Source;
}

/** Like withCluster, with the configuration of the environment. Throws CONFIG_INVALID for that, too. */
export function withKafka<T>(context: CliContext, use: (session: KafkaSession) => Promise<T>): Promise<T> {
  const config = loadKafkaConfig(context.env);
  return withCluster(context, config, (source) => use({ context, config, source }));
}

/** For a topic that may not exist, or not any more: it has no records. */
export function noneIfGone(error: unknown): readonly Span[] {
  if (error instanceof IdallocError && error.code === 'TOPIC_INVALID') return [];
  throw error;
}

/** Reads spans as readSpans does, with progress on stderr; `what` names the work. */
export async function readShown(
  { context, source }: Pick<KafkaSession, 'context' | 'source'>,
  spans: readonly Span[],
  what: string,
  take: SpanReading['take'],
  isolation?: ReadIsolation,
): Promise<void> {
  const progress = new Progress(context, what, sizeOf(spans));
  try {
    const onProgress = (done: number) => progress.show(done);
    await readSpans(source, spans, { signal: context.stop, take, onProgress, ...(isolation && { isolation }) });
  } finally {
    progress.end();
  }
}

async function requireResponse(
  { cluster, runtime }: Source,
  { terminal, err }: Announcing,
  { kafka }: KafkaConfig,
): Promise<void> {
  const patience = runtime.schedule(NOTICE_AFTER_MS, () => {
    if (terminal.errors) err(`waiting for a response from ${kafka.brokers.join(', ')} …\n`);
  });
  try {
    await retrying(runtime, PATIENT, () => cluster.metadata([], CALL_TIMEOUT_MS));
  } catch (error) {
    throw unreachable(error, kafka);
  } finally {
    patience.cancel();
  }
}
