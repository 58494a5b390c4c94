import type { HeaderNames } from '../codec/request-headers.ts';
import { IdallocError } from '../errors.ts';
import { ACCESS_NAMES, type Access } from './access.ts';
import { type ClientHooks, hookProblems } from './hooks.ts';

/** Settings of the buffer and the requests. */
export interface BufferOptions {
  /** How long the buffer must last when no worker responds (default 20 s). */
  readonly coverSeconds?: number;
  /**
   * The minimum rate to be ready for, in IDs per second; the buffer grows with the actual rate. Default: 100, and a
   * tenth of that after a minute in which nobody took IDs.
   */
  readonly idsPerSecond?: number;
  /** Maximum number of IDs in the buffer (default 5,000,000). */
  readonly maxBuffered?: number;
  /** Maximum IDs per request (default 100,000); halved automatically while the workers' MAX_COUNT is lower. */
  readonly maxCount?: number;
  /**
   * IDs that may be older are dropped (default: 60,000, or three times coverSeconds if that is longer; Infinity:
   * never). At least twice coverSeconds.
   */
  readonly maxAgeMs?: number;
  /** false: no buffer, only request() returns IDs. */
  readonly prefetch?: boolean;
  /** Longest wait of takeAsync, ready and request (default 30,000). Large requests may have to wait for minutes. */
  readonly timeoutMs?: number;
  /**
   * A request without a reply is resent after this (default 3,000), doubling each time up to 30 s, or 2 min while
   * others are answered.
   */
  readonly resendAfterMs?: number;
  /**
   * Maximum number of callers waiting for IDs, and of calls of request() and sequences in progress (default 10,000
   * each).
   */
  readonly maxWaiting?: number;
  readonly hooks?: ClientHooks;
}

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
    /**
     * Longest time for connect() (default 10,000): unreachable brokers are tried again until then; Infinity for ever.
     */
    readonly connectTimeoutMs?: number;
    /** Ends connect() with the signal's reason. It has no effect on an open client. */
    readonly signal?: AbortSignal;
  };

export type BufferSettings = Required<BufferOptions> & {
  /** The minimum rate to be ready for while nobody takes IDs. */
  readonly idleIdsPerSecond: number;
};

const MAX_IDS = 100_000_000;
const MAX_BATCH = 100_000;
const MAX_WAITING = 1_000_000;
const DAY_SECONDS = 86_400;

const DEFAULTS: Required<BufferOptions> = {
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
const CONNECT_TIMEOUT_MS = 10_000;
const OPTION_NAMES: readonly string[] = [
  ...ACCESS_NAMES,
  ...['replyTopic', 'requestTopic', 'partition', 'headers', 'connectTimeoutMs', 'signal'],
  ...Object.keys(DEFAULTS),
];

/**
 * The time limit of connect(). Throws IdallocError CONFIG_INVALID for an unknown option, a missing topic, or limits
 * that can't be kept, for callers without a type checker.
 */
export function connectTimeoutOf(options: IdClientOptions): number {
  // A misspelled option would silently leave its default in effect.
  const unknown = Object.keys(options).filter((name) => !OPTION_NAMES.includes(name));
  if (unknown.length > 0) {
    const known = OPTION_NAMES.join(', ');
    throw new IdallocError('CONFIG_INVALID', `unknown option ${unknown.join(', ')}: the options are ${known}`);
  }
  const { replyTopic, signal, connectTimeoutMs = CONNECT_TIMEOUT_MS } = options;
  if (typeof replyTopic !== 'string' || replyTopic === '') {
    throw new IdallocError('CONFIG_INVALID', 'replyTopic is required: a topic that starts with REPLY_TOPIC_PREFIX');
  }
  if (signal !== undefined && typeof signal?.addEventListener !== 'function') {
    throw new IdallocError('CONFIG_INVALID', 'signal must be an AbortSignal');
  }
  const most = DAY_SECONDS * 1_000;
  if (connectTimeoutMs === Number.POSITIVE_INFINITY || (connectTimeoutMs >= 1 && connectTimeoutMs <= most)) {
    return Number(connectTimeoutMs);
  }
  const range = `a number from 1 to ${most}, or Infinity`;
  throw new IdallocError('CONFIG_INVALID', `connectTimeoutMs must be ${range}, not ${String(connectTimeoutMs)}`);
}

/** The options with their defaults. Throws IdallocError CONFIG_INVALID naming all invalid options. */
export function bufferSettings(options: BufferOptions): BufferSettings {
  const names = Object.keys(DEFAULTS) as (keyof BufferOptions)[];
  const { coverSeconds = DEFAULTS.coverSeconds } = options;
  const defaults = { ...DEFAULTS, maxAgeMs: Math.max(DEFAULTS.maxAgeMs, 3_000 * coverSeconds) };
  const known = Object.fromEntries(names.map((name) => [name, options[name] ?? defaults[name]]));
  const idleIdsPerSecond = options.idsPerSecond ?? DEFAULTS.idsPerSecond / 10;
  const settings = { ...known, idleIdsPerSecond } as BufferSettings;
  const problems = [
    ...outside(settings, 'coverSeconds', 0.1, DAY_SECONDS),
    ...outside(settings, 'idsPerSecond', 0.001, MAX_IDS),
    ...outside(settings, 'maxBuffered', 2, MAX_IDS),
    ...outside(settings, 'maxCount', 1, MAX_BATCH),
    ...outside(settings, 'timeoutMs', 1, DAY_SECONDS * 1_000),
    ...outside(settings, 'resendAfterMs', 10, DAY_SECONDS * 1_000),
    ...outside(settings, 'maxWaiting', 1, MAX_WAITING),
    ...hookProblems(settings.hooks),
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
