import { isIP } from 'node:net';
import { z } from 'zod';
import { GUARANTEED_SETTINGS } from '../adapters/kafka/topics/plan.ts';
import { parseApiTokens } from '../codec/api-tokens.ts';
import { parseFormKeys } from '../codec/form/keys.ts';
import { parseQuotas } from '../codec/quota.ts';
import { HOST_PORT, isHostPort } from '../core/host-port.ts';
import { FIELDS_HELP, parseFields } from '../core/layout.ts';
import { LAYOUT_NAMES } from '../core/layout-choice.ts';
import type { Secret } from '../core/secret.ts';
import { describeError } from '../errors.ts';

/** A configuration variable: its meaning, its valid values, and how its text becomes a value. */
export interface Variable<T> {
  readonly schema: z.ZodType<T>;
  readonly unit: string;
  /** The default, as text; without it, an unset variable is undefined. */
  readonly fallback?: string;
  readonly required: boolean;
  /** A secret can also be set as a file by NAME_FILE, which is read again for each use. It is never printed. */
  readonly secret: boolean;
  readonly meaning: string;
}

export interface SecretVariable extends Variable<string> {
  readonly secret: true;
}

const withDefault = <T>(schema: z.ZodType<T>, unit: string, fallback: string, meaning: string): Variable<T> => {
  return { schema, unit, fallback, required: false, secret: false, meaning };
};
const required = <T>(schema: z.ZodType<T>, unit: string, meaning: string): Variable<T> => {
  return { schema, unit, required: true, secret: false, meaning };
};
const optional = <T>(schema: z.ZodType<T>, unit: string, meaning: string): Variable<T | undefined> => {
  return { schema, unit, required: false, secret: false, meaning };
};
const secret = (meaning: string): SecretVariable => {
  return { schema: z.string().max(4_096, 'is longer than 4096'), unit: 'text', required: false, secret: true, meaning };
};

const pem = (meaning: string): SecretVariable => {
  const schema = z
    .string()
    .max(1_048_576, 'is longer than 1 MiB')
    .regex(/-----BEGIN [A-Z0-9 ]+-----/, 'must be PEM text; to name a file, set the variable that ends in _FILE');
  return { schema, unit: 'PEM', required: false, secret: true, meaning };
};

/** A text of many lines, usually in a file. `parse` throws RangeError for an invalid one. */
const lines = (unit: string, parse: (text: string) => unknown, meaning: string): SecretVariable => {
  const schema = z
    .string()
    .max(1_048_576, 'is longer than 1 MiB')
    .superRefine((text, context) => {
      try {
        parse(text);
      } catch (error) {
        context.addIssue(describeError(error));
      }
    });
  return { schema, unit, required: false, secret: true, meaning };
};

/** The parsed values of a table. */
export type Values<Table> = {
  readonly [Name in keyof Table]: Table[Name] extends SecretVariable
    ? Secret | undefined
    : Table[Name] extends Variable<infer Value>
      ? Value
      : never;
};

/** The table as text: name, default, meaning and unit, one variable per line. */
function describeTable(table: Readonly<Record<string, Variable<unknown>>>): string {
  const rows = Object.entries(table).map(([key, row]) => {
    const standard = row.required ? '(required)' : row.fallback === undefined ? '(unset)' : row.fallback;
    return [row.secret ? `${key}[_FILE]` : key, standard, row.secret ? row.meaning : `${row.meaning} [${row.unit}]`];
  });
  const width = (column: number) => Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return rows
    .map(([key = '', standard = '', meaning]) => `  ${key.padEnd(width(0))}  ${standard.padEnd(width(1))}  ${meaning}`)
    .join('\n');
}

const DAY_MS = 86_400_000;
const SASL = ['plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer', 'aws-msk-iam'] as const;
const LOG_FORMATS = ['json', 'text'] as const;
const LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const;

const oneOf = <const T extends readonly string[]>(values: T) =>
  z.enum(values, { error: `must be one of ${values.join(', ')}` });
const flag = z.enum(['0', '1'], { error: 'must be 0 or 1' }).transform((text) => text === '1');
const name = z.string().regex(/^[\x21-\x7e]{1,200}$/, 'must be 1 to 200 printable characters without spaces');
const topic = z.string().regex(/^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/, 'must be a topic name: letters, digits, . _ -');

const integer = (low: number, high: number) =>
  z
    .string()
    .regex(/^-?(0|[1-9][0-9]{0,15})$/, 'must be a whole number in plain digits')
    .transform(Number)
    .refine((value) => value >= low && value <= high, `must be from ${low} to ${high}`);
const portOrOff = z.union([z.literal('off'), integer(0, 65_535)], { error: 'must be from 0 to 65535, or off' });
const retention = integer(-1, 10 * 365 * DAY_MS).refine(
  (value) => value === -1 || value >= 60_000,
  'must be at least 60000, or -1 for no limit',
);
const list = (what: string, accepts: (item: string) => boolean) =>
  z
    .string()
    .transform((text) => text.split(',').map((item) => item.trim()))
    .refine((items) => items.length <= 100 && items.every(accepts), `must be ${what}, separated by commas`);

function isEndpoint(item: string): boolean {
  if (!URL.canParse(item)) return false;
  const url = new URL(item);
  return /^https?:$/.test(url.protocol) && url.pathname === '/' && url.username === '' && url.search + url.hash === '';
}

function isRegistry(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  return /^https?:$/.test(url.protocol) && url.username + url.password + url.search + url.hash === '';
}

const layoutFields = z.string().transform((text, context) => {
  try {
    return parseFields(text);
  } catch (error) {
    context.addIssue(describeError(error));
    return z.NEVER;
  }
});

/** Pairs of setting and value, as a record. */
const guarantees = z.string().transform((text, context) => {
  const pairs = text.split(',').map((item) => /^([a-z.]+)=([a-z0-9-]{1,30})$/.exec(item.trim())?.slice(1) ?? []);
  const known: readonly string[] = GUARANTEED_SETTINGS;
  if (pairs.every(([key = '', value]) => known.includes(key) && value !== undefined))
    return Object.fromEntries(pairs) as Readonly<Record<string, string>>;
  context.addIssue(`must be setting=value, separated by commas; settings: ${known.join(', ')}`);
  return z.NEVER;
});

/** The variables of every command that reads or generates IDs. */
export const LAYOUT_VARIABLES = {
  LAYOUT: withDefault(oneOf(LAYOUT_NAMES), 'name', 'default', `layout of the IDs: ${LAYOUT_NAMES.join(', ')}`),
  LAYOUT_FIELDS: optional(layoutFields, 'fields', `for LAYOUT=custom: ${FIELDS_HELP}`),
  LAYOUT_TICK_MS: optional(integer(1, 1_000), 'ms', 'for LAYOUT=custom: length of a tick; unset: 1'),
  LAYOUT_EPOCH_MS: optional(
    integer(0, 2 ** 48),
    'ms since 1970',
    'overrides the epoch of the layout; required for custom and baidu, which have none',
  ),
  LAYOUT_SEQUENCE_START_BELOW: optional(
    integer(1, 2 ** 32),
    'number',
    "for LAYOUT=custom: each tick's first sequence number is random below this; unset: 1, always 0",
  ),
} as const;

/** The variables of every command that connects to Kafka. */
export const KAFKA_VARIABLES = {
  KAFKA_BROKERS: required(list(HOST_PORT, isHostPort), 'host:port,…', 'bootstrap brokers; an IPv6 address in brackets'),
  KAFKA_CLIENT_ID: withDefault(name, 'text', 'idalloc', "name in the brokers' logs and quotas"),
  KAFKA_GROUP_ID: withDefault(name, 'text', 'idalloc', 'consumer group of the workers'),
  ID_SPACE: withDefault(
    topic.max(200, 'is longer than 200'),
    'name',
    'id',
    "namespaces of one ID space never allocate the same ID; the witness topic is this name followed by '.witness'",
  ),
  KAFKA_TLS: withDefault(flag, '0 or 1', '0', 'TLS to the brokers'),
  KAFKA_CA: pem("CA certificates for the brokers; unset: Node's bundled CAs"),
  KAFKA_CERT: pem('client certificate for the brokers, with its chain'),
  KAFKA_KEY: pem('private key of KAFKA_CERT'),
  KAFKA_SASL_MECHANISM: optional(oneOf(SASL), SASL.join(' | '), 'SASL mechanism; unset: no SASL'),
  KAFKA_SASL_USERNAME: optional(name, 'text', 'SASL user name'),
  KAFKA_SASL_PASSWORD: secret('SASL password'),
  KAFKA_OAUTH_TOKEN_URL: optional(
    z.string().refine(isRegistry, 'must be a URL such as https://login.example.com/token, without user and query'),
    'URL',
    'token endpoint for oauthbearer',
  ),
  KAFKA_OAUTH_CLIENT_ID: optional(name, 'text', 'client ID for the token endpoint'),
  KAFKA_OAUTH_CLIENT_SECRET: secret('client secret for the token endpoint'),
  KAFKA_OAUTH_SCOPE: optional(z.string().max(1_024), 'text', 'scopes to request, separated by spaces; unset: none'),
  KAFKA_OAUTH_CA: pem("CA certificates for the token endpoint; unset: Node's bundled CAs"),
  KAFKA_AWS_REGION: optional(name, 'text', 'region of the cluster, for aws-msk-iam'),
  REQUEST_TOPIC: withDefault(topic, 'topic', 'id.requests', 'topic of the requests'),
  LEDGER_TOPIC: withDefault(topic, 'topic', 'id.ledger', 'topic of the ledger'),
  DEAD_LETTER_TOPIC: withDefault(topic, 'topic', 'id.requests.dlt', 'topic for requests that cannot be served'),
  REPLY_TOPIC_PREFIX: withDefault(topic, 'topic', 'id.replies.', 'replies are sent only to topics with this prefix'),
  API_REPLY_TOPIC: optional(
    topic,
    'topic',
    'turns on Idempotency-Keys and numbers of sequences over HTTP, and has the replies to the requests that workers send for them, which no other request may name; unset: neither',
  ),
  REQUEST_PARTITIONS: withDefault(
    integer(1, 1_024),
    'partitions',
    '12',
    'partition count of request topic and ledger; cannot be changed later',
  ),
  TOPIC_REPLICATION_FACTOR: withDefault(
    integer(1, 32),
    'replicas',
    '3',
    "replication factor of the topics that 'idalloc topics init' creates",
  ),
  REQUEST_RETENTION_MS: withDefault(
    retention,
    'ms',
    `${DAY_MS}`,
    'retention of the request topic; a record may last up to an hour longer; -1: no limit',
  ),
  LEDGER_RETENTION_MS: withDefault(
    retention,
    'ms',
    `${DAY_MS + 7_200_000}`,
    'retention of the ledger, within which a replayed request gets its first batch; -1: no limit',
  ),
  BROKER_CLOCK_MARGIN_MS: withDefault(
    integer(0, 3_600_000),
    'ms',
    '120000',
    "twice the largest difference between the brokers' clocks: forwarded or resent requests that are newer than the ledger's horizon by less are FORGOTTEN, and an audit needs no decision for replies that are newer than the oldest entry by less",
  ),
  ALLOW_WEAK_LEDGER: withDefault(flag, '0 or 1', '0', 'accept a ledger on fewer than 3 brokers; development only'),
  TOPIC_GUARANTEES: optional(
    guarantees,
    'setting=value,…',
    `what the Kafka service guarantees of all topics without reporting it (${GUARANTEED_SETTINGS.join(', ')}); what brokers report counts more; unset: nothing`,
  ),
  SCHEMA_REGISTRY_URL: optional(
    z.string().refine(isRegistry, 'must be a URL such as http://registry:8081, without user, query and fragment'),
    'URL',
    'Confluent-compatible schema registry, for requests in Confluent framing; unset: none',
  ),
  SCHEMA_REGISTRY_USERNAME: optional(name, 'text', 'user name for the registry; unset: no login'),
  SCHEMA_REGISTRY_PASSWORD: secret('password for the registry'),
  CORRELATION_ID_HEADER: withDefault(name, 'header', 'kafka_correlationId', 'header of the correlation ID'),
  REPLY_TOPIC_HEADER: withDefault(name, 'header', 'kafka_replyTopic', 'header of the reply topic'),
  REPLY_PARTITION_HEADER: withDefault(name, 'header', 'kafka_replyPartition', 'header of the reply partition'),
  LOG_LEVEL: withDefault(oneOf(LEVELS), LEVELS.join(' | '), 'info', 'lowest level that is logged'),
  LOG_FORMAT: optional(
    oneOf(LOG_FORMATS),
    LOG_FORMATS.join(' | '),
    'how log lines look: JSON, or text with readable times and levels; unset: text at a terminal, else JSON',
  ),
} as const;

/** The variables of every command that writes or reads keyed forms. */
export const FORM_VARIABLES = {
  FORM_KEY: lines(
    'number:key',
    parseFormKeys,
    'keys of the forms uuid4 and number: one number:key per line (1 to 9, 64 hexadecimal digits); the first key writes IDs, all keys read them',
  ),
} as const;

/** The variables of the worker and of the commands that connect to etcd. */
export const WORKER_VARIABLES = {
  ETCD_ENDPOINTS: required(list('http(s) URLs', isEndpoint), 'URL,…', 'members of the etcd cluster'),
  ETCD_CA: pem("CA certificates for etcd; unset: Node's bundled CAs"),
  ETCD_CERT: pem('client certificate for etcd, with its chain'),
  ETCD_KEY: pem('private key of ETCD_CERT'),
  ETCD_USERNAME: optional(name, 'text', 'user name for etcd; unset: no login'),
  ETCD_PASSWORD: secret('password for etcd'),
  ETCD_PREFIX: withDefault(
    z.string().regex(/^(\/[A-Za-z0-9._-]+)+$/, 'must look like /name or /name/name, without a / at its end'),
    'key prefix',
    '/keyspace',
    'prefix of all keys of this namespace',
  ),
  ETCD_QUOTA_BYTES: withDefault(
    integer(2 ** 20, 2 ** 40),
    'bytes',
    '2147483648',
    "the --quota-backend-bytes of etcd's members: an alert and the doctor warn before a database reaches it",
  ),
  DATACENTER_ID: optional(
    integer(0, 2 ** 32),
    'number',
    'unique to this namespace within the ID space, even across etcd clusters; required if the layout has the field',
  ),
  WORKER_ID: optional(integer(0, 2 ** 32), 'number', 'lease only this worker ID; unset: any free one in the pool'),
  WORKER_IP: optional(
    z.string().refine((text) => isIP(text) !== 0, 'must be an IPv4 or IPv6 address'),
    'address',
    "shown in the lease record; unset: the machine's first non-loopback address",
  ),
  ...LAYOUT_VARIABLES,
  POOL_FIRST: optional(integer(0, 2 ** 32), 'number', 'lowest worker ID to lease; unset: 0'),
  POOL_LAST: optional(
    integer(0, 2 ** 32),
    'number',
    "highest worker ID to lease; unset: POOL_FIRST + 31, or the layout's highest if lower",
  ),
  LEASE_TTL_SECONDS: withDefault(integer(2, 600), 's', '30', 'TTL of the lease; the next four follow from it'),
  LEASE_HEARTBEAT_MS: optional(
    integer(100, 600_000),
    'ms',
    'interval between two heartbeats; unset: a third of the TTL, at most 10000',
  ),
  ETCD_REFUSE_AFTER_MS: optional(
    integer(100, 600_000),
    'ms',
    'allocation stops after this time without a response from etcd; unset: half of the TTL, at most 15000',
  ),
  RESERVATION_MS: optional(
    integer(100, 600_000),
    'ms',
    'how far ahead the ceiling is raised; unset: five sixths of the TTL, at most 25000',
  ),
  LEASE_MARGIN_MS: optional(
    integer(100, 30_000),
    'ms',
    'a reservation ends this long before the lease can expire: a successor whose clock is behind by no more need not wait; unset: a sixth of the TTL, at most 5000',
  ),
  INDEX_DIR: withDefault(
    z.string().max(4_096),
    'directory',
    './.idalloc/index',
    'directory of the ledger index; workers cannot share one',
  ),
  INSTANCE_ID: optional(
    z.string().regex(/^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/, 'must be 1 to 249 letters, digits, . _ -'),
    'name',
    'names this worker in the consumer group: the same after each restart, and no other worker of the group has it; unset: one that is kept in INDEX_DIR',
  ),
  WORKER_ZONE: optional(
    name,
    'name',
    "where this worker runs, such as its cloud's zone: a standby copy is kept in another zone than the partition's owner, if workers run in several, and read from a broker whose broker.rack is this zone, if the brokers offer that; unset: unknown",
  ),
  INDEX_STANDBYS: withDefault(
    z.union([z.literal('all'), integer(0, 1_023)], { error: 'must be from 0 to 1023, or all' }),
    'copies | all',
    '1',
    'workers besides the owner that keep a copy of each ledger partition; all: every worker keeps every partition',
  ),
  INDEX_ACCEPTABLE_LAG: withDefault(
    integer(0, 2 ** 40),
    'entries',
    '100000',
    'a worker whose copy lags by at most this may own the partition; otherwise it warms up first',
  ),
  INDEX_LINGER_MS: withDefault(
    integer(0, 7 * DAY_MS),
    'ms',
    '600000',
    'a copy that this worker no longer needs is deleted after this time',
  ),
  MAX_COUNT: optional(integer(1, 100_000), 'IDs', "maximum for one request; unset: the layout's maximum, up to 100000"),
  QUOTAS: lines(
    'quotas',
    parseQuotas,
    "'prefix IDs/s requests/s bytes/s; …', the last one optional: limits for requests whose reply topic has this prefix, across all workers of the group; unset: no limit",
  ),
  KAFKA_SESSION_TIMEOUT_MS: withDefault(
    integer(1_000, 300_000),
    'ms',
    '10000',
    'a worker that sends no heartbeat to Kafka for this long loses its partitions; brokers refuse less than their group.min.session.timeout.ms, which is 6000 by default',
  ),
  GATE_GRACE_MS: withDefault(
    integer(0, 600_000),
    'ms',
    '10000',
    'how long the gate may stay closed before the worker leaves the consumer group',
  ),
  SHUTDOWN_DELAY_MS: withDefault(
    integer(0, 600_000),
    'ms',
    '0',
    'how long a worker with the HTTP API serves on after SIGTERM, while /readyz is 503, so that load balancers send nothing to a port that is closed',
  ),
  DRAIN_TIMEOUT_MS: withDefault(
    integer(0, 600_000),
    'ms',
    '10000',
    'longest time to finish requests in progress at shutdown',
  ),
  COMMIT_INTERVAL_MS: withDefault(integer(10, 60_000), 'ms', '500', 'interval between two offset commits'),
  API_HOST: withDefault(name, 'address', '127.0.0.1', 'address of the HTTP API; 0.0.0.0: all addresses'),
  API_PORT: withDefault(portOrOff, 'port | off', '8080', 'port of the HTTP API; 0: any free port; off: no HTTP API'),
  API_MAX_CONNECTIONS: withDefault(
    integer(1, 65_535),
    'connections',
    '512',
    'maximum for the HTTP API; above it, the slowest connection is closed',
  ),
  API_REQUEST_TIMEOUT_MS: withDefault(
    integer(100, 60_000),
    'ms',
    '5000',
    'longest time for a complete HTTP request to arrive',
  ),
  API_KEEP_ALIVE_MS: withDefault(
    integer(1_000, 3_600_000),
    'ms',
    '65000',
    'how long an HTTP connection is kept without a request; longer than the load balancer keeps it: 60 s are usual, 600 s at Google Cloud',
  ),
  API_TOKEN: lines(
    'name:token [right]',
    parseApiTokens,
    'bearer tokens for the HTTP API, one name:token per line, then its rights (keyed-decode, sequences:NAME, sequences:PREFIX*); unset: no token is required',
  ),
  API_TLS_CERT: pem('server certificate of the HTTP API, with its chain; unset: no TLS'),
  API_TLS_KEY: pem('private key of API_TLS_CERT'),
  API_TLS_CLIENT_CA: pem('CA certificates for HTTP clients; unset: no client certificate is required'),
  API_RATE_LIMIT: optional(
    integer(1, 10_000_000),
    'IDs/s',
    'HTTP limit for each caller, of IDs and numbers; unset: no limit',
  ),
  ...FORM_VARIABLES,
  OPS_HOST: withDefault(name, 'address', '127.0.0.1', 'address of health, metrics and status; 0.0.0.0: all addresses'),
  OPS_PORT: withDefault(integer(0, 65_535), 'port', '9464', 'port of health, metrics and status; 0: any free port'),
} as const;

/** Every variable that idalloc reads, in the order of the help text. */
export const VARIABLES = { ...KAFKA_VARIABLES, ...WORKER_VARIABLES } as const;

export type KafkaValues = Values<typeof KAFKA_VARIABLES>;
export type LayoutValues = Values<typeof LAYOUT_VARIABLES>;
export type WorkerValues = Values<typeof WORKER_VARIABLES>;
export type LogFormat = KafkaValues['LOG_FORMAT'];

/** All variables as text, one per line. */
export function describeVariables(): string {
  return describeTable(VARIABLES);
}

/**
 * What the worker runs with, for the first line of its log: each variable that is set or has a default, as text. A
 * secret is only named, with its file if it has one.
 */
export function shownSettings(env: Readonly<Record<string, string | undefined>>): Readonly<Record<string, string>> {
  const shown = Object.entries<Variable<unknown>>(VARIABLES).flatMap(([name, { secret: isSecret, fallback }]) => {
    const file = env[`${name}_FILE`];
    if (isSecret) return file ? [[`${name}_FILE`, file]] : env[name] ? [[name, 'set']] : [];
    const text = env[name] || fallback;
    return text === undefined ? [] : [[name, text]];
  });
  return Object.fromEntries(shown);
}
