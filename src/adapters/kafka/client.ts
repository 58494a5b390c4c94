import { createRequire } from 'node:module';
import { Kafka, type logCreator as LogCreator, logLevel, type SASLOptions } from 'kafkajs';

type SaslMechanism = 'plain' | 'scram-sha-256' | 'scram-sha-512';

/** How to reach the brokers. */
export interface KafkaSettings {
  /** host:port of the first brokers to ask; the cluster names the rest. */
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly tls: boolean;
  readonly sasl?: { readonly mechanism: SaslMechanism; readonly username: string; readonly password: string };
}

const INITIAL_RETRY_MS = 5;
const MAX_RETRY_MS = 200;
/** 5, 10, 20, 40, 80, 160 ms and then 48 waits of 200 ms: about 10 s, which outlasts the election of a leader. */
const RETRIES = 54;

const CONNECTION_TIMEOUT_MS = 3_000;
const REQUEST_TIMEOUT_MS = 10_000;

/**
 * A kafkajs client: passing faults are retried for about 10 s, no call waits for an answer without end, and its log
 * goes to `createLog`.
 *
 * Whoever makes a producer passes `createPartitioner`: else kafkajs prints a hint, which only a variable of the
 * environment silences.
 */
export function kafkaClient(settings: KafkaSettings, createLog: LogCreator): Kafka {
  stopIdleTimers();
  return new Kafka({
    clientId: settings.clientId,
    brokers: [...settings.brokers],
    ssl: settings.tls,
    ...(settings.sasl === undefined ? {} : { sasl: settings.sasl as SASLOptions }),
    connectionTimeout: CONNECTION_TIMEOUT_MS,
    authenticationTimeout: REQUEST_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    enforceRequestTimeout: true,
    retry: { initialRetryTime: INITIAL_RETRY_MS, maxRetryTime: MAX_RETRY_MS, retries: RETRIES },
    logLevel: logLevel.INFO,
    logCreator: createLog,
  });
}

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

let idleTimersStopped = false;

/**
 * Each connection of kafkajs keeps a timer going that looks for requests held back by throttling. With none held back
 * it asks for a delay before 1970, which Node takes for 1 ms and warns about: 900 wake-ups a second for each idle
 * connection. Nothing is lost by not starting it then, since holding a request back starts it too.
 *
 * The mend reaches inside the package, so it first looks whether the parts are where it knows them, and otherwise
 * leaves everything alone: the timers cost time, not correctness.
 */
function stopIdleTimers(): void {
  if (idleTimersStopped) return;
  idleTimersStopped = true;
  const queue = loadRequestQueue();
  if (typeof queue?.scheduleCheckPendingRequests !== 'function') return;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (Array.isArray(this.pending) && this.pending.length === 0) return;
    schedule.call(this);
  };
}

function loadRequestQueue(): RequestQueue | undefined {
  const path = 'kafkajs/src/network/requestQueue/index.js';
  const require = createRequire(import.meta.url);
  try {
    return (require(path) as { prototype?: RequestQueue }).prototype;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}
