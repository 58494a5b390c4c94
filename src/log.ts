import type { logCreator as LogCreator } from 'kafkajs';
import { type DestinationStream, destination, type Logger, pino } from 'pino';
import { describeError } from './errors.ts';

export type Log = Logger;

/** Fields whose values never reach a log line, however deep an object is logged. */
const SECRET_FIELDS = [
  'password',
  'sasl',
  'auth',
  'own',
  'authorization',
  'KAFKA_SASL_PASSWORD',
  'ETCD_PASSWORD',
  'ETCD_KEY',
];
const MAX_SECRET_DEPTH = 3;

export interface LogOptions {
  readonly level: string;
  /** Where the lines go: a worker writes to stdout; a command that prints its result there logs to stderr. */
  readonly destination: 'stdout' | 'stderr' | DestinationStream;
}

/**
 * A logger of JSON lines. It writes at once, not from a buffer, so that the last lines before an exit are not lost.
 */
export function createLogger({ level, destination: target }: LogOptions): Log {
  const stream = typeof target === 'string' ? destination({ dest: target === 'stdout' ? 1 : 2, sync: true }) : target;
  return pino({ level, redact: { paths: secretPaths(), censor: '[secret]' } }, stream);
}

function secretPaths(): string[] {
  const depths = Array.from({ length: MAX_SECRET_DEPTH }, (_, depth) => '*.'.repeat(depth));
  return depths.flatMap((prefix) => SECRET_FIELDS.map((field) => prefix + field));
}

type Level = 'error' | 'warn' | 'info' | 'debug';

/** kafkajs's numbers for its levels. */
const KAFKA_LEVELS: Readonly<Record<number, Level>> = { 1: 'error', 2: 'warn', 4: 'info', 5: 'debug' };

/** Answers of a broker that ask for another try, as they come with every election and every change of a group. */
const ASKS_AGAIN = /rebalanc|coordinator|leader|concurrent|valid member id|generation id|does not host/i;

/**
 * Messages of kafkajs whose own level misleads: it tells as an error what it is about to try again, and as news what is
 * everyday. The first rule that fits counts. What it can't mend reaches the caller as an error, and is logged there.
 */
const KAFKA_RULES: readonly { namespace: string; message: RegExp; error?: RegExp; level: Level }[] = [
  { namespace: 'Connection', message: /^Response /, error: ASKS_AGAIN, level: 'debug' },
  { namespace: 'Connection', message: /^(Response|Connection) /, level: 'warn' },
  { namespace: 'BrokerPool', message: /./, level: 'warn' },
  { namespace: 'Producer', message: /./, level: 'warn' },
  { namespace: 'Consumer', message: /^Crash: .*(authoriz|authenticat)/i, level: 'error' },
  {
    namespace: 'Consumer',
    message: /^(Crash: |Restarting |Caught error when (disconnecting|stopping) )/,
    level: 'warn',
  },
  { namespace: 'Runner', message: /^The group is rebalancing/, level: 'info' },
  { namespace: 'Runner', message: /^The coordinator is not aware/, level: 'warn' },
  { namespace: 'ConsumerGroup', message: /^Consumer has joined the group/, level: 'info' },
  { namespace: 'ConsumerGroup', message: /, resync group$/, level: 'info' },
];

function kafkaLevel(namespace: string, own: Level, message: string, error: string): Level {
  if (own === 'debug') return own;
  const rule = KAFKA_RULES.find(
    (candidate) =>
      candidate.namespace === namespace &&
      candidate.message.test(message) &&
      (candidate.error === undefined || candidate.error.test(error)),
  );
  return rule?.level ?? (own === 'info' ? 'debug' : own);
}

/** While a server is away the same few warnings come at each try; one of each kind in this time says it all. */
const REPEAT_AFTER_MS = 10_000;
const MAX_REMEMBERED = 100;

/** Whether the same text came within the last 10 s already. */
function repetitions(nowMs: () => number): (text: string) => boolean {
  const told = new Map<string, number>();
  return (text) => {
    const now = nowMs();
    const last = told.get(text);
    if (last !== undefined && now - last < REPEAT_AFTER_MS) return true;
    if (told.size >= MAX_REMEMBERED) told.clear();
    told.set(text, now);
    return false;
  };
}

const monotonicMs = () => performance.now();

/**
 * Routes the log of kafkajs into ours: an error is left only where an operator must act, and a warning that came in the
 * last 10 s goes to debug.
 */
export function kafkaLogCreator(log: Log, nowMs: () => number = monotonicMs): LogCreator {
  const child = log.child({ component: 'kafkajs' });
  const isRepeated = repetitions(nowMs);
  return () => (entry) => {
    // It logs an Error in place of a message when a connection fails for a cause that it does not know.
    const { message: thrown, timestamp: _timestamp, logger: _logger, stack, ...details } = entry.log;
    const message = describeError(thrown);
    const level = kafkaLevel(entry.namespace, KAFKA_LEVELS[entry.level] ?? 'debug', message, String(details.error));
    const shown = level === 'warn' && isRepeated(`${entry.namespace} ${message}`) ? 'debug' : level;
    const trace = shown === 'error' ? { stack } : {};
    child[shown]({ ...details, ...trace, namespace: entry.namespace }, message);
  };
}

/** Tells that one endpoint of etcd failed a call, which another may have served; repeated, it goes to debug. */
export function etcdFaultLog(
  log: Log,
  nowMs: () => number = monotonicMs,
): (what: string, endpoint: string, error: unknown) => void {
  const child = log.child({ component: 'etcd' });
  const isRepeated = repetitions(nowMs);
  return (what, endpoint, error) => {
    const text = describeError(error);
    child[isRepeated(`${endpoint} ${text}`) ? 'debug' : 'warn']({ endpoint, what, error: text }, 'etcd failed a call');
  };
}
