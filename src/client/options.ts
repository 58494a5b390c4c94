import type { HeaderNames } from '../codec/request-headers.ts';
import { IdallocError } from '../errors.ts';
import type { ConnectionConfig } from '../kafka/wire/kafkajs-connection.ts';
import type { ClientHooks } from './hooks.ts';

/** How the buffer is kept. */
export interface BufferOptions {
  /** How long the buffer lasts when no worker answers (default 20 s). */
  readonly coverSeconds?: number;
  /** The least rate to be ready for, in IDs per second (default 100); the buffer grows when more are used. */
  readonly idsPerSecond?: number;
  /** Most IDs to hold (default 5,000,000). */
  readonly maxBuffered?: number;
  /** Most IDs in one request (default 100,000); halved by itself where the workers allow fewer. */
  readonly maxCount?: number;
  /** IDs that may be older are dropped; by default they keep. At least twice coverSeconds. */
  readonly maxAgeMs?: number;
  /** false: nothing is fetched ahead, and only request() gives IDs. */
  readonly prefetch?: boolean;
  /** Longest wait of takeAsync, ready and request (default 30,000). */
  readonly timeoutMs?: number;
  /** Without a reply a request is sent again after this (default 3,000), then after twice as long each time, up to 30 s. */
  readonly resendAfterMs?: number;
  /** Most callers that wait for IDs, and most requests under way (default 10,000 each). */
  readonly maxWaiting?: number;
  readonly hooks?: ClientHooks;
}

/** Of the object that `new Kafka()` of kafkajs takes, what is used here; it may have the other fields too. */
export interface KafkaOptions extends ConnectionConfig {
  readonly brokers: readonly string[] | (() => readonly string[] | Promise<readonly string[]>);
}

/** How to reach the brokers: by their addresses, or by a configuration of kafkajs that a service has already. */
type Access =
  | {
      readonly kafka: KafkaOptions;
      readonly brokers?: never;
    }
  | {
      readonly kafka?: never;
      /** host:port of the first brokers to ask. */
      readonly brokers: readonly string[];
      readonly clientId?: string;
      readonly ssl?: ConnectionConfig['ssl'];
      readonly sasl?: ConnectionConfig['sasl'];
    };

export type IdClientOptions = Access &
  BufferOptions & {
    /** Must begin as the workers' REPLY_TOPIC_PREFIX says. It has to exist. */
    readonly replyTopic: string;
    /** Default `id.requests`. */
    readonly requestTopic?: string;
    /** The partition of the reply topic that this instance reads; by default one at random. */
    readonly partition?: number;
    /** Where the workers were given other header names. */
    readonly headers?: Partial<HeaderNames>;
  };

type OptionName = Extract<
  | keyof BufferOptions
  | 'replyTopic'
  | 'requestTopic'
  | 'partition'
  | 'headers'
  | keyof Extract<Access, { kafka?: never }>,
  string
>;

const OPTION_NAMES: Readonly<Record<OptionName, true>> = {
  brokers: true,
  clientId: true,
  ssl: true,
  sasl: true,
  kafka: true,
  replyTopic: true,
  requestTopic: true,
  partition: true,
  headers: true,
  coverSeconds: true,
  idsPerSecond: true,
  maxBuffered: true,
  maxCount: true,
  maxAgeMs: true,
  prefetch: true,
  timeoutMs: true,
  resendAfterMs: true,
  maxWaiting: true,
  hooks: true,
};

/**
 * The configuration to connect with, and the first brokers to ask. Throws IdallocError CONFIG_INVALID for what no type
 * checker has seen: an unknown option, invalid brokers, no topic.
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
  return {
    brokers,
    ...(clientId === undefined ? {} : { clientId }),
    ...(ssl === undefined ? {} : { ssl }),
    ...(sasl === undefined ? {} : { sasl }),
  };
}

function checkAccess(options: IdClientOptions): void {
  const { kafka, brokers, replyTopic } = options;
  // A misspelt option would leave its default in force, unseen until the buffer runs empty.
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(OPTION_NAMES, name));
  if (unknown.length > 0) {
    const known = Object.keys(OPTION_NAMES).join(', ');
    throw new IdallocError('CONFIG_INVALID', `unknown option ${unknown.join(', ')}: the client takes ${known}`);
  }
  if (typeof replyTopic !== 'string' || replyTopic === '') {
    throw new IdallocError('CONFIG_INVALID', 'replyTopic is required: a topic that begins with REPLY_TOPIC_PREFIX');
  }
  if ((kafka === undefined) === (brokers === undefined)) {
    throw new IdallocError('CONFIG_INVALID', 'give either kafka or brokers');
  }
  if (isClient(kafka)) {
    const message = "kafka is an instance of kafkajs' Kafka: pass the configuration that it was made with";
    throw new IdallocError('CONFIG_INVALID', `${message}, such as { brokers, clientId, ssl, sasl }`);
  }
  if (kafka === undefined || (typeof kafka === 'object' && kafka !== null)) return;
  throw new IdallocError(
    'CONFIG_INVALID',
    "kafka must be the object of configuration that kafkajs' clients are made with",
  );
}

function checkPlaces(name: string, places: unknown): void {
  if (Array.isArray(places) && places.length > 0 && places.every(isPlace)) return;
  throw new IdallocError('CONFIG_INVALID', `${name} is ${JSON.stringify(places)}, must be a list of 'host:port'`);
}

/** Each version of kafkajs has a class of its own, so it is known by what it can do. */
function isClient(kafka: unknown): boolean {
  return typeof (kafka as { consumer?: unknown } | null | undefined)?.consumer === 'function';
}

function isPlace(place: unknown): boolean {
  const [, port] = typeof place === 'string' ? (/^[^\s/]+:(\d{1,5})$/.exec(place) ?? []) : [];
  return port !== undefined && Number(port) >= 1 && Number(port) <= 65_535;
}

export type BufferSettings = Required<Omit<BufferOptions, 'maxAgeMs'>> & { readonly maxAgeMs: number | undefined };

const MAX_IDS = 100_000_000;
const MAX_BATCH = 100_000;
const MAX_WAITING = 1_000_000;
const DAY_SECONDS = 86_400;

/** The options with their defaults. Throws IdallocError CONFIG_INVALID naming every fault at once. */
export function bufferSettings(options: BufferOptions): BufferSettings {
  const settings: BufferSettings = {
    coverSeconds: options.coverSeconds ?? 20,
    idsPerSecond: options.idsPerSecond ?? 100,
    maxBuffered: options.maxBuffered ?? 5_000_000,
    maxCount: options.maxCount ?? MAX_BATCH,
    maxAgeMs: options.maxAgeMs,
    prefetch: options.prefetch ?? true,
    timeoutMs: options.timeoutMs ?? 30_000,
    resendAfterMs: options.resendAfterMs ?? 3_000,
    maxWaiting: options.maxWaiting ?? 10_000,
    hooks: options.hooks ?? {},
  };
  const faults = [
    ...outside(settings, 'coverSeconds', 0.1, DAY_SECONDS),
    ...outside(settings, 'idsPerSecond', 0.001, MAX_IDS),
    ...outside(settings, 'maxBuffered', 2, MAX_IDS),
    ...outside(settings, 'maxCount', 1, MAX_BATCH),
    ...outside(settings, 'timeoutMs', 1, DAY_SECONDS * 1_000),
    ...outside(settings, 'resendAfterMs', 10, DAY_SECONDS * 1_000),
    ...outside(settings, 'maxWaiting', 1, MAX_WAITING),
  ];
  const { maxAgeMs, coverSeconds, idsPerSecond, maxBuffered } = settings;
  if (maxAgeMs !== undefined && !(maxAgeMs >= 2_000 * coverSeconds)) {
    faults.push(`maxAgeMs is ${maxAgeMs}; IDs wait for up to twice coverSeconds, so at least ${2_000 * coverSeconds}`);
  }
  if (2 * idsPerSecond * coverSeconds > maxBuffered) {
    faults.push(
      `maxBuffered is ${maxBuffered}; two buffers of idsPerSecond x coverSeconds take ${2 * idsPerSecond * coverSeconds}`,
    );
  }
  if (faults.length > 0) throw new IdallocError('CONFIG_INVALID', faults.join('; '));
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
  return [`${name} is ${String(value)}, must be ${WHOLE.has(name) ? 'whole and ' : ''}in ${least}..${most}`];
}
