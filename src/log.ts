import { createRequire } from 'node:module';
import { type DestinationStream, destination, type Logger, pino } from 'pino';
import type { PinoPretty } from 'pino-pretty';
import type { Runtime } from './async/runtime.ts';
import { type ThrottledLog, throttledLog } from './async/throttle.ts';
import { visible } from './core/visible.ts';

export type Log = Logger;

/** Fields whose values never reach a log line, however deep an object is logged. */
const SECRET_FIELDS = [
  'password',
  'sasl',
  'auth',
  'clientCertificate',
  'authorization',
  'oauth',
  'KAFKA_SASL_PASSWORD',
  'KAFKA_KEY',
  'KAFKA_OAUTH_CLIENT_SECRET',
  'ETCD_PASSWORD',
  'ETCD_KEY',
  'API_TOKEN',
  'API_TLS_KEY',
  'FORM_KEY',
];
const MAX_SECRET_DEPTH = 3;

export interface LogOptions {
  readonly level: string;
  /** Where the lines go: a worker writes to stdout; a command that prints its result there logs to stderr. */
  readonly destination: 'stdout' | 'stderr' | DestinationStream;
  /** Text for people, in colours unless that says no; without it JSON lines. */
  readonly text?: { readonly colours: boolean } | undefined;
}

/**
 * A logger of JSON lines, whose levels have names, or of text. It writes synchronously, so that the last lines before
 * an exit are not lost.
 */
export function createLogger({ level, destination: target, text }: LogOptions): Log {
  const stream = typeof target === 'string' ? destination({ dest: target === 'stdout' ? 1 : 2, sync: true }) : target;
  const lines = text === undefined ? asJson(stream) : asText(stream, text.colours);
  const formatters = { level: (name: string) => ({ level: name }) };
  return pino({ level, formatters, redact: { paths: secretPaths(), censor: '[secret]' } }, lines);
}

/** JSON has no C0 controls, and keeps its meaning where others are escaped. */
function asJson(stream: DestinationStream): DestinationStream {
  return { write: (line) => stream.write(visible(line)) };
}

/**
 * The fields are made visible before they are formatted, since the colours of the format are controls, too. Loads the
 * package at the first line: most commands write none. A `require` does not make the writer wait, as an import would.
 */
function asText(stream: DestinationStream, colours: boolean): DestinationStream {
  let format: ((line: object) => string | undefined) | undefined;
  const load = () => {
    const { prettyFactory } = createRequire(import.meta.url)('pino-pretty') as typeof PinoPretty;
    return prettyFactory({
      colorize: colours,
      translateTime: 'SYS:HH:MM:ss.l',
      ignore: 'pid,hostname',
      singleLine: true,
    });
  };
  return {
    write: (line) => {
      format ??= load();
      stream.write(format(JSON.parse(line, shown)) ?? line);
    },
  };
}

/** A field of a line. Further lines of a message are indented, as those of a stack are: none looks like a log line. */
function shown(name: string, value: unknown): unknown {
  if (typeof value !== 'string') return value;
  return name === 'msg' ? visible(value).replaceAll('\n', '\n    ') : visible(value);
}

function secretPaths(): string[] {
  const depths = Array.from({ length: MAX_SECRET_DEPTH }, (_, depth) => '*.'.repeat(depth));
  return depths.flatMap((prefix) => SECRET_FIELDS.map((field) => prefix + field));
}

const PROCESS_CLOCK = { monotonicMs: () => performance.now() };

/** Writes errors and warnings that are repeated within 10 s, or another interval that the caller gives, to debug. */
export function withoutRepeats(log: Log, clock: Pick<Runtime, 'monotonicMs'> = PROCESS_CLOCK): ThrottledLog {
  return throttledLog(clock, (level, fields, message) => log[level](fields, message));
}

/** The log of the layers that talk to Kafka, without repetitions. */
export function wireLog(log: Log, clock: Pick<Runtime, 'monotonicMs'> = PROCESS_CLOCK): ThrottledLog {
  return withoutRepeats(log.child({ component: 'kafka' }), clock);
}

/** A call that failed on one etcd endpoint; another may have served it. */
interface EtcdError {
  readonly what: string;
  readonly endpoint: string;
  readonly error: string;
  readonly remedy: string | undefined;
}

interface EtcdEvents {
  readonly onError: (error: EtcdError) => void;
  /** An endpoint that had failed a call has answered one. */
  readonly onReturn: (endpoint: string) => void;
}

/**
 * Logs etcd failures without repetitions, as errors if an operator must fix them, else as warnings; and, after such a
 * line, that the endpoint answers again.
 */
export function etcdLog(log: Log, clock: Pick<Runtime, 'monotonicMs'> = PROCESS_CLOCK): EtcdEvents {
  const own = log.child({ component: 'etcd' });
  const lines = withoutRepeats(own, clock);
  const reported = new Set<string>();
  return {
    onError: ({ what, endpoint, error, remedy }) => {
      const about = `${endpoint} ${kindOf(error)} ${remedy}`;
      const fields = { endpoint, what, error, remedy };
      const level = remedy === undefined ? 'warn' : 'error';
      if (lines(level, fields, 'etcd failed a call', { about })) reported.add(endpoint);
    },
    onReturn: (endpoint) => {
      if (reported.delete(endpoint)) own.info({ endpoint }, 'etcd answers again');
    },
  };
}

/** The status of gRPC with which a text begins, or else its first words: the rest of the text has times in it. */
function kindOf(text: string): string {
  return /^\d+ [A-Z_]+|^[^\d(:]*/.exec(text)?.[0] ?? '';
}
