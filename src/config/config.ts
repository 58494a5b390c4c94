import { readFileSync } from 'node:fs';
import type { EtcdTls } from '../adapters/etcd/member.ts';
import { LEDGER_MARGIN_MS, type TopicSettings } from '../adapters/kafka/topics/plan.ts';
import type { RegistrySettings } from '../adapters/registry/schema-registry.ts';
import { type FormKeys, parseFormKeys } from '../codec/form/keys.ts';
import { DEFAULT_HEADER_NAMES, type HeaderNames } from '../codec/request-headers.ts';
import type { Layout } from '../core/layout.ts';
import type { LeaseTiming } from '../core/reservation.ts';
import type { Secret } from '../core/secret.ts';
import type { KafkaSettings } from '../kafka/wire/settings.ts';
import { type ApiConfig, apiOf, apiWarnings } from './api-checks.ts';
import { etcdAuthOf, etcdTlsOf } from './etcd-checks.ts';
import {
  checkHeaders,
  checkQuotas,
  checkRetention,
  checkTopicNames,
  registryOf,
  saslOf,
  tlsSettingsOf,
  witnessTopic,
} from './kafka-checks.ts';
import { layoutOf, lifetimeWarnings } from './layout-checks.ts';
import { ConfigErrors, type Environment, misspelled, parseTable, type Source } from './parse.ts';
import { kafkaPlaintextWarnings, workerPlaintextWarnings } from './plaintext-checks.ts';
import type { ReadText, SecretFile } from './secret-file.ts';
import {
  FORM_VARIABLES,
  KAFKA_VARIABLES,
  type LogFormat,
  type LogLevel,
  VARIABLES,
  WORKER_VARIABLES,
} from './variables.ts';
import { datacenterOf, maxCountOf, poolOf, timingOf } from './worker-checks.ts';

/** The part of the configuration that every command needs that connects to Kafka. */
export interface KafkaConfig {
  readonly kafka: KafkaSettings;
  readonly groupId: string;
  readonly idSpace: string;
  readonly topics: TopicSettings;
  readonly headers: HeaderNames;
  /** Twice the largest difference between two brokers' clocks. */
  readonly clockMarginMs: number;
  /** The registry for the schemas of requests in Confluent framing, if any. */
  readonly registry?: RegistrySettings;
  readonly logLevel: LogLevel;
  readonly logFormat: LogFormat;
  /** Probable mistakes that do not prevent the start. */
  readonly warnings: readonly string[];
  /** Read again while the process runs. */
  readonly secretFiles: readonly SecretFile[];
}

/** The configuration of a worker. */
export interface Config extends KafkaConfig {
  readonly etcd: {
    readonly endpoints: readonly string[];
    readonly prefix: string;
    readonly auth?: { readonly username: string; readonly password: Secret };
    readonly tls?: EtcdTls;
  };
  readonly layout: Layout;
  readonly datacenterId: number;
  /** Lease only this worker ID. */
  readonly workerId?: number;
  /** The address in the lease record; without it, the machine's first non-loopback one. */
  readonly workerIp?: string;
  /** Worker IDs of the namespace, both ends included. */
  readonly pool: { readonly first: number; readonly last: number };
  readonly timing: LeaseTiming;
  readonly indexDir: string;
  /** How many workers besides the owner keep a copy of each ledger partition. */
  readonly standbys: number | 'all';
  /** A copy may lag by this many entries for its worker to own the partition. */
  readonly acceptableLag: number;
  readonly copyLingerMs: number;
  /** Most IDs for one request. */
  readonly maxCount: number;
  /** For `parseQuotas`; without it, there is no limit. */
  readonly quotas?: Secret;
  /** Session timeout in the request group. */
  readonly groupSessionMs: number;
  readonly gateGraceMs: number;
  readonly drainTimeoutMs: number;
  readonly commitIntervalMs: number;
  /** A decision is written to the ledger again when it is replayed at this age or older. */
  readonly renewAfterMs: number;
  /** Bad records above this rate share dead letters and get no error replies. */
  readonly junkRate: { readonly perSecond: number; readonly burst: number };
  /** The HTTP API; undefined when it is off. */
  readonly api?: ApiConfig;
  /** The listener for health checks and metrics; port 0: any free port. */
  readonly ops: { readonly host: string; readonly port: number };
}

const readUtf8: ReadText = (path) => readFileSync(path, 'utf8');

/**
 * The configuration of a worker from its environment, deeply frozen. An empty variable counts as not set. With `nowMs` (wall
 * milliseconds), a layout that has no IDs at that time is an error, too.
 *
 * @throws IdallocError CONFIG_INVALID whose message names every invalid variable, one per line.
 */
export function loadWorkerConfig(env: Environment, readText: ReadText = readUtf8, nowMs?: number): Config {
  return load(env, readText, (source) => {
    const kafka = kafkaConfig(source);
    const worker = workerConfig(source);
    checkQuotas(worker.quotas, kafka.topics, source);
    const aging = nowMs === undefined ? [] : lifetimeWarnings(worker.layout, env, nowMs, source.errors);
    const exposed = [...apiWarnings(worker.api)];
    source.errors.ifValid(['ETCD_ENDPOINTS'], () => exposed.push(...workerPlaintextWarnings(worker)));
    return { ...kafka, ...worker, warnings: [...kafka.warnings, ...exposed, ...aging] };
  });
}

/** Like loadWorkerConfig, for commands that connect only to Kafka: the worker's variables may be missing or invalid. */
export function loadKafkaConfig(env: Environment, readText: ReadText = readUtf8): KafkaConfig {
  return load(env, readText, kafkaConfig);
}

/** The configuration of commands that connect only to etcd. */
export type EtcdConfig = Omit<Config, keyof KafkaConfig>;

/** Like loadWorkerConfig, for commands that connect only to etcd: Kafka's variables may be missing or invalid. */
export function loadEtcdConfig(env: Environment, readText: ReadText = readUtf8): EtcdConfig {
  return load(env, readText, workerConfig);
}

/**
 * The current keys of the keyed forms, for commands; reads only FORM_KEY. Undefined when it is not set.
 *
 * @throws IdallocError CONFIG_INVALID that names the variable and the invalid line.
 */
export function loadFormKeys(env: Environment, readText: ReadText = readUtf8): FormKeys | undefined {
  const text = load(env, readText, (source) => parseTable(FORM_VARIABLES, source)).FORM_KEY?.();
  return text === undefined ? undefined : parseFormKeys(text);
}

function load<T>(env: Environment, readText: ReadText, of: (source: Source) => T): T {
  const errors = new ConfigErrors();
  const config = of({ env, readText, errors, secretFiles: [] });
  errors.throwIfAny();
  return deepFreeze(config);
}

function kafkaConfig(source: Source): KafkaConfig {
  const { env, errors, secretFiles } = source;
  const values = parseTable(KAFKA_VARIABLES, source);
  checkTopicNames(values, env, errors);
  checkRetention(values, errors);
  checkHeaders(values, errors);
  const tls = tlsSettingsOf(values, errors);
  const sasl = saslOf(values, errors);
  const registry = registryOf(values, errors);
  const kafka = {
    brokers: values.KAFKA_BROKERS,
    clientId: values.KAFKA_CLIENT_ID,
    tls: values.KAFKA_TLS,
    ...tls,
    ...(sasl === undefined ? {} : { sasl }),
  };
  return {
    kafka,
    groupId: values.KAFKA_GROUP_ID,
    idSpace: values.ID_SPACE,
    topics: {
      requests: values.REQUEST_TOPIC,
      ledger: values.LEDGER_TOPIC,
      deadLetters: values.DEAD_LETTER_TOPIC,
      witness: witnessTopic(values),
      replyPrefix: values.REPLY_TOPIC_PREFIX,
      requestPartitions: values.REQUEST_PARTITIONS,
      replicationFactor: values.TOPIC_REPLICATION_FACTOR,
      requestRetentionMs: values.REQUEST_RETENTION_MS,
      ledgerRetentionMs: values.LEDGER_RETENTION_MS,
      allowWeakLedger: values.ALLOW_WEAK_LEDGER,
    },
    headers: {
      ...DEFAULT_HEADER_NAMES,
      correlationId: values.CORRELATION_ID_HEADER,
      replyTopic: values.REPLY_TOPIC_HEADER,
      replyPartition: values.REPLY_PARTITION_HEADER,
    },
    clockMarginMs: values.BROKER_CLOCK_MARGIN_MS,
    ...(registry === undefined ? {} : { registry }),
    logLevel: values.LOG_LEVEL,
    logFormat: values.LOG_FORMAT,
    warnings: [
      ...misspelled(VARIABLES, env),
      ...kafkaPlaintextWarnings({ kafka, ...(registry === undefined ? {} : { registry }) }),
    ],
    secretFiles,
  };
}

function workerConfig(source: Source): EtcdConfig {
  const { errors } = source;
  const values = parseTable(WORKER_VARIABLES, source);
  const api = apiOf(values, errors);
  const layout = layoutOf(values, errors);
  const pool = poolOf(values, layout, errors);
  const auth = etcdAuthOf(values, errors);
  const tls = etcdTlsOf(values, errors);
  return {
    etcd: {
      endpoints: values.ETCD_ENDPOINTS,
      prefix: values.ETCD_PREFIX,
      ...(auth === undefined ? {} : { auth }),
      ...(tls === undefined ? {} : { tls }),
    },
    layout,
    datacenterId: datacenterOf(values, layout, errors),
    ...(values.WORKER_ID === undefined ? {} : { workerId: values.WORKER_ID }),
    ...(values.WORKER_IP === undefined ? {} : { workerIp: values.WORKER_IP }),
    pool,
    timing: timingOf(values, layout, errors),
    indexDir: values.INDEX_DIR,
    standbys: values.INDEX_STANDBYS,
    acceptableLag: values.INDEX_ACCEPTABLE_LAG,
    copyLingerMs: values.INDEX_LINGER_MS,
    maxCount: maxCountOf(values, layout, errors),
    ...(values.QUOTAS === undefined ? {} : { quotas: values.QUOTAS }),
    groupSessionMs: values.KAFKA_SESSION_TIMEOUT_MS,
    gateGraceMs: values.GATE_GRACE_MS,
    drainTimeoutMs: values.DRAIN_TIMEOUT_MS,
    commitIntervalMs: values.COMMIT_INTERVAL_MS,
    renewAfterMs: LEDGER_MARGIN_MS / 2,
    junkRate: { perSecond: 10, burst: 1_000 },
    ...(api === undefined ? {} : { api }),
    ops: { host: values.OPS_HOST, port: values.OPS_PORT },
  };
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const part of Object.values(value)) deepFreeze(part);
  }
  return value;
}
