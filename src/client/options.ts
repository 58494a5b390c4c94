import type { HeaderNames } from '../codec/request-headers.ts';
import { HOST_PORT, isHostPort } from '../core/host-port.ts';
import { IdallocError } from '../errors.ts';
import type { ConnectionConfig } from '../kafka/wire/connection-config.ts';
import type { ClientHooks } from './hooks.ts';

/** Settings of the buffer and the requests. */
export interface BufferOptions {
  /** How long the buffer must last when no worker responds (default 20 s). */
  readonly coverSeconds?: number;
  /** The minimum rate to be ready for, in IDs per second (default 100); the buffer grows with the actual rate. */
  readonly idsPerSecond?: number;
  /** Maximum number of IDs in the buffer (default 5,000,000). */
  readonly maxBuffered?: number;
  /** Maximum IDs per request (default 100,000); halved automatically while the workers' MAX_COUNT is lower. */
  readonly maxCount?: number;
  /** IDs that may be older are dropped (default: 60,000, or three times coverSeconds if that is longer; Infinity: never). At least twice coverSeconds. */
  readonly maxAgeMs?: number;
  /** false: no buffer, only request() returns IDs. */
  readonly prefetch?: boolean;
  /** Longest wait of takeAsync, ready and request (default 30,000). Large requests may have to wait for minutes. */
  readonly timeoutMs?: number;
  /** A request without a reply is resent after this (default 3,000), doubling each time up to 30 s, or 2 min while others are answered. */
  readonly resendAfterMs?: number;
  /** Maximum number of callers waiting for IDs, and of requests in progress (default 10,000 each). */
  readonly maxWaiting?: number;
  readonly hooks?: ClientHooks;
}

/** The fields used here of the configuration for kafkajs' `new Kafka()`; others are ignored. */
export interface KafkaOptions extends ConnectionConfig {
  readonly brokers: readonly string[] | (() => readonly string[] | Promise<readonly string[]>);
}

/** How to reach the brokers: by their addresses, or by a service's existing kafkajs configuration. */
type Access =
  | {
      readonly kafka: KafkaOptions;
      readonly brokers?: never;
    }
  | {
      readonly kafka?: never;
      /** host:port of the bootstrap brokers; an IPv6 address in brackets. */
      readonly brokers: readonly string[];
      readonly clientId?: string;
      readonly ssl?: ConnectionConfig['ssl'];
      readonly sasl?: ConnectionConfig['sasl'];
    };

export type IdClientOptions = Access &
  BufferOptions & {
    /** Must start with the workers' REPLY_TOPIC_PREFIX, and must exist. */
    readonly replyTopic: string;
    /** Default `id.requests`. */
    readonly requestTopic?: string;
    /** The partition of the reply topic that this instance reads; default: a random one. */
    readonly partition?: number;
    /** The workers' header names, if they are not the defaults. */
    readonly headers?: Partial<HeaderNames>;
  };

export type BufferSettings = Required<BufferOptions>;

const MAX_IDS = 100_000_000;
const MAX_BATCH = 100_000;
const MAX_WAITING = 1_000_000;
const DAY_SECONDS = 86_400;

const DEFAULTS: BufferSettings = {
  coverSeconds: 20,
  idsPerSecond: 100,
  maxBuffered: 5_000_000,
  maxCount: MAX_BATCH,
  maxAgeMs: 60_000,
  prefetch: true,
  timeoutMs: 30_000,
  resendAfterMs: 3_000,
  maxWaiting: 10_000,
  hooks: {},
};
const OPTION_NAMES: readonly string[] = [
  ...['brokers', 'clientId', 'ssl', 'sasl', 'kafka', 'replyTopic', 'requestTopic', 'partition', 'headers'],
  ...Object.keys(DEFAULTS),
];

/**
 * The connection settings and the bootstrap brokers. Throws IdallocError CONFIG_INVALID for an unknown option, invalid brokers
 * or a missing topic, for callers without a type checker.
 */
export async function accessOf(
  options: IdClientOptions,
): Promise<{ readonly config: ConnectionConfig; readonly brokers: readonly string[] }> {
  checkAccess(options);
  const { brokers, ...config }: KafkaOptions = options.kafka ?? plain(options);
  const places = typeof brokers === 'function' ? await brokers() : brokers;
  checkPlaces(options.kafka === undefined ? 'brokers' : 'kafka.brokers', places);
  return { config: { ...config, clientId: config.clientId ?? 'idalloc-client' }, brokers: places };
}

function plain({ brokers, clientId, ssl, sasl }: Exclude<IdClientOptions, { readonly kafka: unknown }>): KafkaOptions {
  return { brokers, clientId, ssl, sasl };
}

function checkAccess(options: IdClientOptions): void {
  const { kafka, brokers, replyTopic } = options;
  // A misspelled option would silently leave its default in effect.
  const unknown = Object.keys(options).filter((name) => !OPTION_NAMES.includes(name));
  if (unknown.length > 0) {
    const known = OPTION_NAMES.join(', ');
    throw new IdallocError('CONFIG_INVALID', `unknown option ${unknown.join(', ')}: the options are ${known}`);
  }
  if (typeof replyTopic !== 'string' || replyTopic === '') {
    throw new IdallocError('CONFIG_INVALID', 'replyTopic is required: a topic that starts with REPLY_TOPIC_PREFIX');
  }
  if ((kafka === undefined) === (brokers === undefined)) {
    throw new IdallocError('CONFIG_INVALID', 'set either kafka or brokers');
  }
  if (isClient(kafka)) {
    const message = "kafka is an instance of kafkajs' Kafka: pass its configuration instead";
    throw new IdallocError('CONFIG_INVALID', `${message}, such as { brokers, clientId, ssl, sasl }`);
  }
  if (kafka === undefined || (typeof kafka === 'object' && kafka !== null)) return;
  throw new IdallocError('CONFIG_INVALID', "kafka must be a configuration object for kafkajs' Kafka");
}

function checkPlaces(name: string, places: unknown): void {
  if (Array.isArray(places) && places.length > 0 && places.every(isPlace)) return;
  throw new IdallocError('CONFIG_INVALID', `${name} must be a list of ${HOST_PORT}, not ${JSON.stringify(places)}`);
}

/** Duck typing, because each installed copy of kafkajs has its own class. */
function isClient(kafka: unknown): boolean {
  return typeof (kafka as { consumer?: unknown } | null | undefined)?.consumer === 'function';
}

function isPlace(place: unknown): boolean {
  return typeof place === 'string' && isHostPort(place);
}

/** The options with their defaults. Throws IdallocError CONFIG_INVALID naming all invalid options. */
export function bufferSettings(options: BufferOptions): BufferSettings {
  const names = Object.keys(DEFAULTS) as (keyof BufferSettings)[];
  const { coverSeconds = DEFAULTS.coverSeconds } = options;
  const defaults = { ...DEFAULTS, maxAgeMs: Math.max(DEFAULTS.maxAgeMs, 3_000 * coverSeconds) };
  const settings = Object.fromEntries(names.map((name) => [name, options[name] ?? defaults[name]])) as BufferSettings;
  const problems = [
    ...outside(settings, 'coverSeconds', 0.1, DAY_SECONDS),
    ...outside(settings, 'idsPerSecond', 0.001, MAX_IDS),
    ...outside(settings, 'maxBuffered', 2, MAX_IDS),
    ...outside(settings, 'maxCount', 1, MAX_BATCH),
    ...outside(settings, 'timeoutMs', 1, DAY_SECONDS * 1_000),
    ...outside(settings, 'resendAfterMs', 10, DAY_SECONDS * 1_000),
    ...outside(settings, 'maxWaiting', 1, MAX_WAITING),
  ];
  const { maxAgeMs, idsPerSecond, maxBuffered } = settings;
  if (typeof maxAgeMs !== 'number' || maxAgeMs < 2_000 * coverSeconds || Number.isNaN(maxAgeMs)) {
    problems.push(`maxAgeMs must be at least ${2_000 * coverSeconds}, twice coverSeconds, not ${maxAgeMs}`);
  }
  if (2 * idsPerSecond * coverSeconds > maxBuffered) {
    problems.push(
      `maxBuffered must be at least 2 x idsPerSecond x coverSeconds, ${2 * idsPerSecond * coverSeconds}, not ${maxBuffered}`,
    );
  }
  if (problems.length > 0) throw new IdallocError('CONFIG_INVALID', problems.join('; '));
  return settings;
}

const WHOLE = new Set(['maxBuffered', 'maxCount', 'maxWaiting']);

function outside<K extends keyof BufferSettings>(
  settings: BufferSettings,
  name: K,
  least: number,
  most: number,
): string[] {
  const value: unknown = settings[name];
  const fits = typeof value === 'number' && value >= least && value <= most;
  if (fits && (!WHOLE.has(name) || Number.isInteger(value))) return [];
  return [
    `${name} must be ${WHOLE.has(name) ? 'an integer' : 'a number'} from ${least} to ${most}, not ${String(value)}`,
  ];
}
