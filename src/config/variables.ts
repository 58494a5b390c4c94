import { isIP } from 'node:net';
import { z } from 'zod';
import { parseApiTokens } from '../codec/api-tokens.ts';
import { parseFormKeys } from '../codec/form/keys.ts';
import { parseQuotas } from '../codec/quota.ts';
import { LAYOUT_NAMES } from '../core/layout-choice.ts';
import { FIELDS_HELP, parseFields } from '../core/layout-text.ts';
import { describeError } from '../errors.ts';
import { lines, optional, pem, required, secret, type Values, type Variable, withDefault } from './variable.ts';

const DAY_MS = 86_400_000;
const SASL = ['plain', 'scram-sha-256', 'scram-sha-512', 'oauthbearer', 'aws-msk-iam'] as const;
const LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const;

const oneOf = <const T extends readonly string[]>(values: T) =>
  z.enum(values, { error: `must be one of ${values.join(', ')}` });
const flag = z.enum(['0', '1'], { error: 'must be 0 or 1' }).transform((text) => text === '1');
const name = z.string().regex(/^[\x21-\x7e]{1,200}$/, 'must be 1 to 200 printable characters without spaces');
const topic = z.string().regex(/^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/, 'must be a topic name: letters, digits, . _ -');
const port = /^[A-Za-z0-9._-]+:([0-9]{1,5})$/;

const integer = (low: number, high: number) =>
  z
    .string()
    .regex(/^-?(0|[1-9][0-9]{0,15})$/, 'must be a whole number in plain digits')
    .transform(Number)
    .refine((value) => value >= low && value <= high, `must be from ${low} to ${high}`);
const portOrOff = z.union([z.literal('off'), integer(0, 65_535)], { error: 'must be from 0 to 65535, or off' });
const retention = integer(-1, 10 * 365 * DAY_MS).refine(
  (value) => value === -1 || value >= 60_000,
  'must be at least 60000, or -1 for ever',
);
const list = (what: string, accepts: (item: string) => boolean) =>
  z
    .string()
    .transform((text) => text.split(',').map((item) => item.trim()))
    .refine((items) => items.length <= 100 && items.every(accepts), `must be ${what}, separated by commas`);

function isBroker(item: string): boolean {
  const digits = port.exec(item)?.[1];
  return digits !== undefined && Number(digits) >= 1 && Number(digits) <= 65_535;
}

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

/** What every command needs that reads or makes IDs. */
export const LAYOUT_VARIABLES = {
  LAYOUT: withDefault(oneOf(LAYOUT_NAMES), 'name', 'default', `layout of the IDs: ${LAYOUT_NAMES.join(', ')}`),
  LAYOUT_FIELDS: optional(layoutFields, 'fields', `for LAYOUT=custom: ${FIELDS_HELP}`),
  LAYOUT_TICK_MS: optional(integer(1, 1_000), 'ms', 'for LAYOUT=custom: length of a tick; unset: 1'),
  LAYOUT_EPOCH_MS: optional(
    integer(0, 2 ** 48),
    'ms since 1970',
    "epoch in place of the layout's own; required for custom and baidu, which have none",
  ),
  LAYOUT_SEQUENCE_START_BELOW: optional(
    integer(1, 2 ** 32),
    'number',
    "for LAYOUT=custom: each tick's first sequence number is random below this; unset: 1, always 0",
  ),
} as const;

/** What every command needs that talks to Kafka. */
export const KAFKA_VARIABLES = {
  KAFKA_BROKERS: required(list('host:port', isBroker), 'host:port,…', 'first brokers to ask'),
  KAFKA_CLIENT_ID: withDefault(name, 'text', 'idalloc', "name in the brokers' logs and quotas"),
  KAFKA_GROUP_ID: withDefault(name, 'text', 'idalloc', 'consumer group of the workers'),
  ID_SPACE: withDefault(
    topic.max(200, 'is longer than 200'),
    'name',
    'id',
    "within it no ID is given twice; what was reserved is told in the topic of this name and '.witness'",
  ),
  KAFKA_TLS: withDefault(flag, '0 or 1', '0', 'TLS to the brokers'),
  KAFKA_CA: pem("certificates that sign the brokers' own; unset: those that Node brings"),
  KAFKA_CERT: pem('certificate to show to the brokers, and those that signed it'),
  KAFKA_KEY: pem('key of KAFKA_CERT'),
  KAFKA_SASL_MECHANISM: optional(oneOf(SASL), SASL.join(' | '), 'log in to the brokers; unset: no login'),
  KAFKA_SASL_USERNAME: optional(name, 'text', 'user of the login'),
  KAFKA_SASL_PASSWORD: secret('password of the login'),
  KAFKA_OAUTH_TOKEN_URL: optional(
    z.string().refine(isRegistry, 'must be a URL such as https://login.example.com/token, without user and query'),
    'URL',
    'where oauthbearer fetches its tokens',
  ),
  KAFKA_OAUTH_CLIENT_ID: optional(name, 'text', 'client ID for the token endpoint'),
  KAFKA_OAUTH_CLIENT_SECRET: secret('client secret for the token endpoint'),
  KAFKA_OAUTH_SCOPE: optional(z.string().max(1_024), 'text', 'scopes to ask for, separated by spaces; unset: none'),
  KAFKA_OAUTH_CA: pem("certificates that sign the token endpoint's own; unset: those that Node brings"),
  KAFKA_AWS_REGION: optional(name, 'text', 'region of the cluster, for aws-msk-iam'),
  REQUEST_TOPIC: withDefault(topic, 'topic', 'id.requests', 'requests are read from here'),
  LEDGER_TOPIC: withDefault(topic, 'topic', 'id.ledger', 'decisions are kept here'),
  DEAD_LETTER_TOPIC: withDefault(topic, 'topic', 'id.requests.dlt', 'requests that can not be served go here'),
  REPLY_TOPIC_PREFIX: withDefault(topic, 'topic', 'id.replies.', 'replies go only to topics that start so'),
  REQUEST_PARTITIONS: withDefault(integer(1, 1_024), 'partitions', '12', 'of request topic and ledger; never changed'),
  TOPIC_REPLICATION_FACTOR: withDefault(integer(1, 32), 'replicas', '3', 'of the topics that topics init makes'),
  REQUEST_RETENTION_MS: withDefault(
    retention,
    'ms',
    `${DAY_MS}`,
    'how long requests are kept, and up to an hour more; -1: for ever',
  ),
  LEDGER_RETENTION_MS: withDefault(
    retention,
    'ms',
    `${DAY_MS + 7_200_000}`,
    'how long a replay is exact, and up to an hour more; -1: for ever',
  ),
  ALLOW_WEAK_LEDGER: withDefault(flag, '0 or 1', '0', 'accept a ledger on fewer than 3 brokers; development only'),
  SCHEMA_REGISTRY_URL: optional(
    z.string().refine(isRegistry, 'must be a URL such as http://registry:8081, without user, query and fragment'),
    'URL',
    "registry with Confluent's API, for requests in its framing; unset: none",
  ),
  SCHEMA_REGISTRY_USERNAME: optional(name, 'text', 'user of the registry; unset: no login'),
  SCHEMA_REGISTRY_PASSWORD: secret('password of the registry'),
  CORRELATION_ID_HEADER: withDefault(name, 'header', 'kafka_correlationId', 'header of the correlation ID'),
  REPLY_TOPIC_HEADER: withDefault(name, 'header', 'kafka_replyTopic', 'header of the reply topic'),
  REPLY_PARTITION_HEADER: withDefault(name, 'header', 'kafka_replyPartition', 'header of the reply partition'),
  LOG_LEVEL: withDefault(oneOf(LEVELS), LEVELS.join(' | '), 'info', 'least level that is logged'),
} as const;

/** What the keyed forms of IDs need, wherever they are written or read. */
export const FORM_VARIABLES = {
  FORM_KEY: lines(
    'number:key',
    parseFormKeys,
    'lines of number:key (1 to 9, 64 hexadecimal digits) for the forms uuid4 and number; the first formats, all parse',
  ),
} as const;

/** What only the worker needs. */
export const WORKER_VARIABLES = {
  ETCD_ENDPOINTS: required(list('http(s) URLs', isEndpoint), 'URL,…', 'members of the etcd cluster'),
  ETCD_CA: pem("certificates that sign etcd's own; unset: those that Node brings"),
  ETCD_CERT: pem('certificate to show to etcd, and those that signed it'),
  ETCD_KEY: pem('key of ETCD_CERT'),
  ETCD_USERNAME: optional(name, 'text', 'user of the login; unset: no login'),
  ETCD_PASSWORD: secret('password of the login'),
  ETCD_PREFIX: withDefault(
    z.string().regex(/^(\/[A-Za-z0-9._-]+)+$/, 'must look like /name or /name/name, without a / at its end'),
    'key prefix',
    '/keyspace',
    'all keys of this namespace start so',
  ),
  DATACENTER_ID: optional(
    integer(0, 2 ** 32),
    'number',
    'one namespace each in an ID space, in whatever etcd; required if the layout has the field',
  ),
  WORKER_ID: optional(integer(0, 2 ** 32), 'number', 'take this one only; unset: any free one of the pool'),
  WORKER_IP: optional(
    z.string().refine((text) => isIP(text) !== 0, 'must be an IPv4 or IPv6 address'),
    'address',
    'shown in the lease record; unset: first address of this machine that is not a loopback',
  ),
  ...LAYOUT_VARIABLES,
  POOL_FIRST: optional(integer(0, 2 ** 32), 'number', 'lowest worker ID to lease; unset: 0'),
  POOL_LAST: optional(integer(0, 2 ** 32), 'number', "highest worker ID to lease; unset: the layout's, up to 32 IDs"),
  LEASE_TTL_SECONDS: withDefault(integer(2, 600), 's', '30', 'life of the lease without a heartbeat'),
  LEASE_HEARTBEAT_MS: withDefault(integer(100, 600_000), 'ms', '10000', 'between two heartbeats'),
  ETCD_REFUSE_AFTER_MS: withDefault(integer(100, 600_000), 'ms', '15000', 'without etcd, then allocation stops'),
  RESERVATION_MS: withDefault(integer(100, 600_000), 'ms', '25000', 'how far ahead the ceiling is raised'),
  INDEX_DIR: withDefault(
    z.string().max(4_096),
    'directory',
    './.idalloc/index',
    'index of the ledger; one worker each',
  ),
  INDEX_STANDBYS: withDefault(
    z.union([z.literal('all'), integer(0, 1_023)], { error: 'must be from 0 to 1023, or all' }),
    'copies | all',
    '1',
    'workers besides the owner that keep a copy of each ledger partition; all: every worker has every one',
  ),
  INDEX_ACCEPTABLE_LAG: withDefault(
    integer(0, 2 ** 40),
    'entries',
    '100000',
    'a worker whose copy lacks no more than this may own the partition; else it stands by until its copy is complete',
  ),
  INDEX_LINGER_MS: withDefault(
    integer(0, 7 * DAY_MS),
    'ms',
    '600000',
    'a copy that this worker is not to keep any more is deleted after so long',
  ),
  MAX_COUNT: optional(integer(1, 100_000), 'IDs', "most for one request; unset: the layout's most, up to 100000"),
  QUOTAS: lines(
    'quotas',
    parseQuotas,
    "'prefix IDs/s requests/s; …': most that requests get whose reply topics begin so, over all workers of the group; unset: no bound",
  ),
  KAFKA_SESSION_TIMEOUT_MS: withDefault(
    integer(6_000, 300_000),
    'ms',
    '10000',
    'a worker that is silent for so long loses its partitions to the others',
  ),
  GATE_GRACE_MS: withDefault(integer(0, 600_000), 'ms', '10000', 'paused longer: leave the consumer group'),
  DRAIN_TIMEOUT_MS: withDefault(integer(0, 600_000), 'ms', '10000', 'most for finishing what is in hand at the end'),
  BROKER_CLOCK_MARGIN_MS: withDefault(
    integer(0, 3_600_000),
    'ms',
    '120000',
    "twice what the brokers' clocks may differ by: a request that was forwarded or sent again and is not that much younger than the ledger reaches back is FORGOTTEN",
  ),
  COMMIT_INTERVAL_MS: withDefault(integer(10, 60_000), 'ms', '500', 'between two commits of offsets'),
  API_HOST: withDefault(name, 'address', '127.0.0.1', 'the HTTP API listens here; 0.0.0.0: on all addresses'),
  API_PORT: withDefault(
    portOrOff,
    'port | off',
    '8080',
    'the HTTP API listens here; 0: any free one; off: there is none',
  ),
  API_MAX_CONNECTIONS: withDefault(
    integer(1, 65_535),
    'connections',
    '512',
    'of the HTTP API; for one more the slowest goes',
  ),
  API_REQUEST_TIMEOUT_MS: withDefault(
    integer(100, 60_000),
    'ms',
    '5000',
    'most for a request over HTTP to arrive as a whole',
  ),
  API_TOKEN: lines(
    'name:token',
    parseApiTokens,
    'lines of name:token, one of which each request over HTTP must bear; unset: none is needed',
  ),
  API_TLS_CERT: pem('certificate of the HTTP API, and those that signed it; unset: no TLS'),
  API_TLS_KEY: pem('key of API_TLS_CERT'),
  API_TLS_CLIENT_CA: pem('certificates that sign those of the callers over HTTP; unset: callers need none'),
  API_RATE_LIMIT: optional(integer(1, 10_000_000), 'IDs/s', 'most over HTTP for each caller; unset: no limit'),
  ...FORM_VARIABLES,
  OPS_HOST: withDefault(name, 'address', '127.0.0.1', 'health and metrics listen here; 0.0.0.0: on all addresses'),
  OPS_PORT: withDefault(integer(0, 65_535), 'port', '9464', 'health and metrics listen here; 0: any free one'),
} as const;

/** Every variable that idalloc reads, in the order in which help shows them. */
export const VARIABLES = { ...KAFKA_VARIABLES, ...WORKER_VARIABLES } as const;

export type KafkaValues = Values<typeof KAFKA_VARIABLES>;
export type LayoutValues = Values<typeof LAYOUT_VARIABLES>;
export type WorkerValues = Values<typeof WORKER_VARIABLES>;
export type LogLevel = KafkaValues['LOG_LEVEL'];

/** The table for a reader: name, unit, default, meaning; one line each. */
export function describeVariables(table: Readonly<Record<string, Variable<unknown>>> = VARIABLES): string {
  const rows = Object.entries(table).map(([key, row]) => {
    const standard = row.required ? '(required)' : row.fallback === undefined ? '(unset)' : row.fallback;
    return [row.secret ? `${key}[_FILE]` : key, standard, row.secret ? row.meaning : `${row.meaning} [${row.unit}]`];
  });
  const width = (column: number) => Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return rows
    .map(([key = '', standard = '', meaning]) => `  ${key.padEnd(width(0))}  ${standard.padEnd(width(1))}  ${meaning}`)
    .join('\n');
}
