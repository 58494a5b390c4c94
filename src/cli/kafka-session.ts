import kafkajs, { type Admin, type Kafka } from 'kafkajs';
import { kafkaClient, unreachable } from '../adapters/kafka/client.ts';
import type { KafkaConfig } from '../config.ts';
import { describeError, IdallocError } from '../errors.ts';
import { createLogger, kafkaLogCreator } from '../log.ts';
import type { CliContext } from './context.ts';

/**
 * A client for a command that ends soon. It logs to stderr, and only errors unless LOG_LEVEL asks for more: what goes
 * wrong for good reaches the user as one line anyway.
 */
export function commandKafka({ env }: CliContext, config: KafkaConfig): Kafka {
  const level = env.LOG_LEVEL === undefined || env.LOG_LEVEL === '' ? 'error' : config.logLevel;
  return kafkaClient(config.kafka, kafkaLogCreator(createLogger({ level, destination: 'stderr' })));
}

type Waiting = Pick<CliContext, 'stop' | 'err'> & { readonly terminal: Pick<CliContext['terminal'], 'errors'> };

/** kafkajs tries for many seconds; somebody who waits is told what for. */
const PATIENCE_MS = 3_000;

/**
 * Runs `use` with a connected admin client, which is closed afterwards.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE when no broker answers; CONFIG_INVALID when the login is refused; STOPPING as soon as the process shall end.
 */
export async function withAdmin<T>(
  kafka: Kafka,
  { kafka: settings }: KafkaConfig,
  { stop, terminal, err }: Waiting,
  use: (admin: Admin) => Promise<T>,
): Promise<T> {
  const admin = kafka.admin();
  const connected = admin.connect().catch((error: unknown) => {
    throw unreachable(error, settings);
  });
  const patience = setTimeout(() => {
    if (terminal.errors) err(`waiting for an answer of ${settings.brokers.join(', ')} …\n`);
  }, PATIENCE_MS);
  try {
    await unlessStopped(stop, connected);
  } finally {
    clearTimeout(patience);
  }
  try {
    return await unlessStopped(stop, use(admin));
  } catch (error) {
    if (!(error instanceof kafkajs.KafkaJSError)) throw error;
    const message = `the brokers refused or did not answer: ${describeError(error)}`;
    throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  } finally {
    await admin.disconnect();
  }
}

async function unlessStopped<T>(stop: AbortSignal, work: Promise<T>): Promise<T> {
  const stopped = Promise.withResolvers<never>();
  const end = () => stopped.reject(new IdallocError('STOPPING', 'stopped by a signal before it was done'));
  if (stop.aborted) end();
  stop.addEventListener('abort', end);
  try {
    return await Promise.race([work, stopped.promise]);
  } finally {
    stop.removeEventListener('abort', end);
  }
}
