import { readFileSync } from 'node:fs';
import { LEDGER_MARGIN_MS } from '../adapters/kafka/topics/plan.ts';
import { type FormKeys, parseFormKeys } from '../codec/form/keys.ts';
import { DEFAULT_HEADER_NAMES } from '../codec/request-headers.ts';
import type { KafkaSettings } from '../kafka/wire/settings.ts';
import { apiConfigOf, apiWarnings, kafkaPlaintextWarnings, workerPlaintextWarnings } from './api-checks.ts';
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
import { ConfigErrors, type Environment, misspelled, parseTable, type VariableSource } from './parse.ts';
import type { ReadText } from './secret-file.ts';
import { FORM_VARIABLES, KAFKA_VARIABLES, VARIABLES, WORKER_VARIABLES } from './variables.ts';
import {
  datacenterOf,
  etcdAuthOf,
  etcdTlsOf,
  layoutOf,
  lifetimeWarnings,
  maxCountOf,
  poolOf,
  timingOf,
} from './worker-checks.ts';

/** The part of the configuration that every command needs that connects to Kafka. */
export type KafkaConfig = Readonly<ReturnType<typeof kafkaConfig>>;

/** The configuration of commands that connect only to etcd. */
export type EtcdConfig = Readonly<ReturnType<typeof workerConfig>>;

/** The configuration of a worker. */
export type Config = KafkaConfig & EtcdConfig;

const readUtf8: ReadText = (path) => readFileSync(path, 'utf8');

/**
 * The configuration of a worker from its environment, deeply frozen. An empty variable counts as not set. With `nowMs`
 * (wall milliseconds), a layout that has no IDs at that time is an error, too.
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

function load<T>(env: Environment, readText: ReadText, of: (source: VariableSource) => T): T {
  const errors = new ConfigErrors();
  const config = of({ env, readText, errors, secretFiles: [] });
  errors.throwIfAny();
  return deepFreeze(config);
}

function kafkaConfig(source: VariableSource) {
  const { env, errors, secretFiles } = source;
  const values = parseTable(KAFKA_VARIABLES, source);
  checkTopicNames(values, env, errors);
  checkRetention(values, errors);
  checkHeaders(values, errors);
  const tls = tlsSettingsOf(values, errors);
  const sasl = saslOf(values, errors);
  const registry = registryOf(values, errors);
  const kafka: KafkaSettings = {
    brokers: values.KAFKA_BROKERS,
    clientId: values.KAFKA_CLIENT_ID,
    tls: values.KAFKA_TLS,
    ...tls,
    sasl,
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
      apiReplies: values.API_REPLY_TOPIC,
      requestPartitions: values.REQUEST_PARTITIONS,
      replicationFactor: values.TOPIC_REPLICATION_FACTOR,
      requestRetentionMs: values.REQUEST_RETENTION_MS,
      ledgerRetentionMs: values.LEDGER_RETENTION_MS,
      allowWeakLedger: values.ALLOW_WEAK_LEDGER,
      guarantees: values.TOPIC_GUARANTEES,
    },
    headers: {
      ...DEFAULT_HEADER_NAMES,
      correlationId: values.CORRELATION_ID_HEADER,
      replyTopic: values.REPLY_TOPIC_HEADER,
      replyPartition: values.REPLY_PARTITION_HEADER,
    },
    /** Twice the largest difference between two brokers' clocks. */
    clockMarginMs: values.BROKER_CLOCK_MARGIN_MS,
    /** The registry for the schemas of requests in Confluent framing, if any. */
    registry,
    logLevel: values.LOG_LEVEL,
    logFormat: values.LOG_FORMAT,
    /** Probable mistakes that do not prevent the start. */
    warnings: [...misspelled(VARIABLES, env), ...kafkaPlaintextWarnings(kafka, registry)],
    /** Read again while the process runs. */
    secretFiles,
  };
}

function workerConfig(source: VariableSource) {
  const { errors } = source;
  const values = parseTable(WORKER_VARIABLES, source);
  const api = apiConfigOf(values, errors);
  const layout = layoutOf(values, errors);
  const pool = poolOf(values, layout, errors);
  const auth = etcdAuthOf(values, errors);
  const tls = etcdTlsOf(values, errors);
  return {
    etcd: {
      endpoints: values.ETCD_ENDPOINTS,
      prefix: values.ETCD_PREFIX,
      /** The size of its database at which etcd refuses writes. */
      quotaBytes: values.ETCD_QUOTA_BYTES,
      auth,
      tls,
    },
    layout,
    datacenterId: datacenterOf(values, layout, errors),
    /** Lease only this worker ID. */
    workerId: values.WORKER_ID,
    /** The address in the lease record; without it, the machine's first non-loopback one. */
    workerIp: values.WORKER_IP,
    /** Worker IDs of the namespace, both ends included. */
    pool,
    timing: timingOf(values, layout, errors),
    indexDir: values.INDEX_DIR,
    /** This worker's name in the request group; without it, one that is kept in the index directory. */
    instanceId: values.INSTANCE_ID,
    /** How many workers besides the owner keep a copy of each ledger partition. */
    standbys: values.INDEX_STANDBYS,
    /** Where this worker runs; a partition's copies are kept in several zones. */
    zone: values.WORKER_ZONE,
    /** A copy may lag by this many entries for its worker to own the partition. */
    acceptableLag: values.INDEX_ACCEPTABLE_LAG,
    copyLingerMs: values.INDEX_LINGER_MS,
    /** Most IDs for one request. */
    maxCount: maxCountOf(values, layout, errors),
    /** For `parseQuotas`; without it, there is no limit. */
    quotas: values.QUOTAS,
    /** Session timeout in the request group. */
    groupSessionMs: values.KAFKA_SESSION_TIMEOUT_MS,
    gateGraceMs: values.GATE_GRACE_MS,
    drainTimeoutMs: values.DRAIN_TIMEOUT_MS,
    /** How long the worker serves on after it was told to stop; only callers of the HTTP API need that. */
    shutdownDelayMs: api === undefined ? 0 : values.SHUTDOWN_DELAY_MS,
    commitIntervalMs: values.COMMIT_INTERVAL_MS,
    /** A decision is written to the ledger again when it is replayed at this age or older. */
    renewAfterMs: LEDGER_MARGIN_MS / 2,
    /** Bad records above this rate share dead letters and get no error replies. */
    junkRate: { perSecond: 10, burst: 1_000 },
    /** Requests wait for others whose reply topic uses more of a worker: an eighth of its time, and 5 ms at once. */
    debtRate: { usPerMs: 125, burstUs: 5_000 },
    /** The HTTP API; undefined when it is off. */
    api,
    /** The listener for health checks and metrics; port 0: any free port. */
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
