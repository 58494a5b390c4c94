import kafkajs, {
  type Consumer,
  type ConsumerConfig,
  Kafka,
  type logCreator as LogCreator,
  logLevel,
  type SASLOptions,
} from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import { mendKafkajs } from './kafkajs-mends.ts';

type SaslMechanism = 'plain' | 'scram-sha-256' | 'scram-sha-512';

/** How to reach the brokers. */
export interface KafkaSettings {
  /** host:port of the first brokers to ask; the cluster names the rest. */
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly tls: boolean;
  /** PEM of those who sign the brokers' certificates; without it, those that Node brings. */
  readonly ca?: string;
  readonly sasl?: { readonly mechanism: SaslMechanism; readonly username: string; readonly password: string };
}

const INITIAL_RETRY_MS = 5;
const MAX_RETRY_MS = 200;
/** 5, 10, 20, 40, 80, 160 ms and then 48 waits of 200 ms: about 10 s, which outlasts the election of a leader. */
const RETRIES = 54;

/** For clients whose caller looks at each fault and decides what to do: 5, 10 and 20 ms. */
const FEW_RETRIES = 3;

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
  return clientWith(settings, createLog, RETRIES);
}

/** The same, but a passing fault comes back to the caller after three quick tries. */
export function briefKafkaClient(settings: KafkaSettings, createLog: LogCreator): Kafka {
  return clientWith(settings, createLog, FEW_RETRIES);
}

function clientWith(settings: KafkaSettings, createLog: LogCreator, retries: number): Kafka {
  mendKafkajs();
  return new PatientKafka(retries, {
    clientId: settings.clientId,
    brokers: [...settings.brokers],
    ssl: settings.ca === undefined ? settings.tls : { ca: [settings.ca] },
    // kafkajs writes into it, and the configuration is frozen
    ...(settings.sasl === undefined ? {} : { sasl: { ...settings.sasl } as SASLOptions }),
    connectionTimeout: CONNECTION_TIMEOUT_MS,
    authenticationTimeout: REQUEST_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    enforceRequestTimeout: true,
    retry: { initialRetryTime: INITIAL_RETRY_MS, maxRetryTime: MAX_RETRY_MS, retries },
    logLevel: logLevel.INFO,
    logCreator: createLog,
  });
}

/** Why no broker can be talked to, with what to do about it. A login that is refused is a fault of the configuration. */
export function unreachable(error: unknown, { brokers, sasl }: KafkaSettings): IdallocError {
  const said = describeError(error);
  if (error instanceof kafkajs.KafkaJSSASLAuthenticationError) {
    const message = `the brokers refuse the login of '${sasl?.username}' (${said}): check KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD and KAFKA_SASL_MECHANISM`;
    return new IdallocError('CONFIG_INVALID', message, { cause: error });
  }
  const message = `no broker of ${brokers.join(', ')} can be talked to (${said}): check KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}

/** kafkajs gives consumers five tries of their own, 0.2 s in all, unless each is told otherwise. */
class PatientKafka extends Kafka {
  readonly #retries: number;

  constructor(retries: number, config: ConstructorParameters<typeof Kafka>[0]) {
    super(config);
    this.#retries = retries;
  }

  override consumer(config: ConsumerConfig): Consumer {
    return super.consumer({ ...config, retry: { retries: this.#retries, ...config.retry } });
  }
}
