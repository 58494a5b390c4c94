import { retrying } from '../async/retrying.ts';
import type { Runtime } from '../async/runtime.ts';
import { aborted, atMost } from '../async/waiting.ts';
import { HOST_PORT, isHostPort } from '../core/host-port.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { ConnectionConfig } from '../kafka/wire/connection-config.ts';
import { KafkaError } from '../kafka/wire/kafka-error.ts';
import type { BrokerAddress } from '../kafka/wire/port.ts';
import { seedsOf } from '../kafka/wire/settings.ts';

/**
 * A setting that may change: a function is called for each new connection, and when a login is renewed, but once a
 * second at most.
 */
type Changing<T> = T | (() => T | Promise<T>);

/** TLS and login, as kafkajs takes them, or functions that return the current ones. */
interface Credentials {
  readonly ssl?: Changing<ConnectionConfig['ssl']>;
  readonly sasl?: Changing<ConnectionConfig['sasl']>;
}

/**
 * host:port of the bootstrap brokers; an IPv6 address in brackets. A function is called again when none of the known
 * brokers can be reached.
 */
type Places = readonly string[] | (() => readonly string[] | Promise<readonly string[]>);

/** The fields used here of the configuration for kafkajs' `new Kafka()`; others are ignored. */
export interface KafkaOptions extends Omit<ConnectionConfig, 'ssl' | 'sasl'>, Credentials {
  readonly brokers: Places;
}

/** How to reach the brokers: by their addresses, or by a service's existing kafkajs configuration. */
export type Access =
  | { readonly kafka: KafkaOptions; readonly brokers?: never }
  | ({ readonly kafka?: never; readonly brokers: Places; readonly clientId?: string } & Credentials);

/** The names of its options. */
export const ACCESS_NAMES = ['brokers', 'clientId', 'ssl', 'sasl', 'kafka'];

/** The settings at the time of each call: whatever the options have as functions or getters is read anew. */
export interface CurrentAccess {
  /**
   * Rejects with IdallocError CONFIG_INVALID for what is no login, and with KafkaError UNREACHABLE if a function of the
   * options fails.
   */
  readonly connection: () => Promise<ConnectionConfig>;
  /**
   * The bootstrap brokers. Rejects with IdallocError CONFIG_INVALID for what is no list of them, and KAFKA_UNAVAILABLE
   * if a function fails.
   */
  readonly brokers: () => Promise<readonly string[]>;
  /** Whether the login may be another one at the next attempt. */
  readonly isChanging: boolean;
}

/** Throws IdallocError CONFIG_INVALID, for callers without a type checker. */
export function accessOf(options: Access, runtime: Pick<Runtime, 'monotonicMs'>): CurrentAccess {
  checkKafka(options);
  const { kafka } = options;
  const source: KafkaOptions = kafka ?? (options as Exclude<Access, { readonly kafka: KafkaOptions }>);
  const name = kafka === undefined ? 'brokers' : 'kafka.brokers';
  const [ssl, sasl] = [new Sparing(runtime), new Sparing(runtime)];
  return {
    brokers: async () => {
      const places = await current(source, 'brokers').catch((cause: unknown) => {
        throw new IdallocError('KAFKA_UNAVAILABLE', `${name} failed: ${describeError(cause)}`, { cause });
      });
      return requirePlaces(name, places);
    },
    connection: async () => {
      const { clientId, socketFactory, reauthenticationThreshold } = source;
      const credentials = { ssl: await credential(source, 'ssl', ssl), sasl: await credential(source, 'sasl', sasl) };
      requireCredentials(credentials);
      return {
        clientId: clientId ?? 'idalloc-client',
        ...credentials,
        ...(socketFactory === undefined ? {} : { socketFactory }),
        ...(reauthenticationThreshold === undefined ? {} : { reauthenticationThreshold }),
      };
    },
    isChanging: isChanging(source, 'ssl') || isChanging(source, 'sasl'),
  };
}

/** Whether it is a function or a getter, its own or that of its class. */
function isChanging(source: KafkaOptions, name: keyof Credentials): boolean {
  let at: object | null = source;
  while (at !== null && !Object.hasOwn(at, name)) at = Object.getPrototypeOf(at);
  const { get, value } = (at && Object.getOwnPropertyDescriptor(at, name)) ?? {};
  return get !== undefined || typeof value === 'function';
}

function checkKafka({ kafka, brokers }: { readonly kafka?: unknown; readonly brokers?: unknown }): void {
  if ((kafka === undefined) === (brokers === undefined)) {
    throw new IdallocError('CONFIG_INVALID', 'set either kafka or brokers');
  }
  // Duck typing, because each installed copy of kafkajs has its own class.
  if (typeof (kafka as { consumer?: unknown } | null | undefined)?.consumer === 'function') {
    const message = "kafka is an instance of kafkajs' Kafka: pass its configuration instead";
    throw new IdallocError('CONFIG_INVALID', `${message}, such as { brokers, clientId, ssl, sasl }`);
  }
  if (kafka === undefined || (typeof kafka === 'object' && kafka !== null)) return;
  throw new IdallocError('CONFIG_INVALID', "kafka must be a configuration object for kafkajs' Kafka");
}

/**
 * How long what a function has returned, or why it failed, stands for it; and how long a call of it is waited for
 * before the next one.
 */
const CALLED_MS = { settled: 1_000, pending: 5_000 };

/** Calls a function sparingly: while brokers are away, or it fails, connections are tried many times a second. */
class Sparing {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  #last: Promise<unknown> | undefined;
  #state: keyof typeof CALLED_MS = 'settled';
  #sinceMs = 0;

  constructor(runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#runtime = runtime;
  }

  call(call: () => unknown): Promise<unknown> {
    const sinceMs = this.#runtime.monotonicMs() - this.#sinceMs;
    if (this.#last !== undefined && sinceMs < CALLED_MS[this.#state]) return this.#last;
    const result = (async () => await call())();
    const settled = () => {
      if (this.#last === result) this.#note('settled');
    };
    result.then(settled, settled);
    this.#last = result;
    this.#note('pending');
    return result;
  }

  #note(state: keyof typeof CALLED_MS): void {
    this.#state = state;
    this.#sinceMs = this.#runtime.monotonicMs();
  }
}

async function current<K extends 'brokers' | keyof Credentials>(
  source: KafkaOptions,
  name: K,
  calls?: Sparing,
): Promise<unknown> {
  const setting = source[name];
  if (typeof setting !== 'function') return setting;
  const call = () => setting();
  return await (calls === undefined ? call() : calls.call(call));
}

async function credential<K extends keyof Credentials>(
  source: KafkaOptions,
  name: K,
  calls: Sparing,
): Promise<ConnectionConfig[K]> {
  const value = await current(source, name, calls).catch((cause: unknown) => {
    // What a function asks may be away for a while, as brokers may: the connection is tried again.
    throw new KafkaError('UNREACHABLE', `the option ${name} failed: ${describeError(cause)}`, { cause });
  });
  return (value ?? undefined) as ConnectionConfig[K];
}

/**
 * A login that is none would be left out silently, or fail inside of kafkajs. Values are not shown: they may be secret.
 */
function requireCredentials({ ssl, sasl }: { readonly ssl: unknown; readonly sasl: unknown }): void {
  if (sasl !== undefined && typeof (sasl as { mechanism?: unknown }).mechanism !== 'string') {
    const wanted = 'an object with a mechanism, as kafkajs takes it, or a function that returns one';
    throw new IdallocError('CONFIG_INVALID', `sasl must be ${wanted}: it is ${kindOf(sasl)}`);
  }
  if (['undefined', 'boolean', 'object'].includes(typeof ssl)) return;
  const wanted = 'a boolean, an object with options of TLS, or a function that returns one';
  throw new IdallocError('CONFIG_INVALID', `ssl must be ${wanted}: it is ${kindOf(ssl)}`);
}

function kindOf(value: unknown): string {
  return typeof value === 'object' && value !== null
    ? `an object with ${Object.keys(value).join(', ') || 'no fields'}`
    : `of type ${typeof value}`;
}

function requirePlaces(name: string, places: unknown): readonly string[] {
  if (Array.isArray(places) && places.length > 0 && places.every(isPlace)) return places;
  throw new IdallocError('CONFIG_INVALID', `${name} must be a list of ${HOST_PORT}, not ${JSON.stringify(places)}`);
}

function isPlace(place: unknown): boolean {
  return typeof place === 'string' && isHostPort(place);
}

/**
 * Longest time to wait for a function of the options that finds the brokers, and the shortest between two calls of it.
 */
const FIND_MS = 5_000;
/** Between two attempts of the first search: what a function asks may be away for long. */
const WAITS = { minMs: 200, maxMs: FIND_MS };

/**
 * The bootstrap brokers of a client. When none of the known brokers answers, all of them may have moved: then they are
 * found again.
 */
export class Bootstrap {
  readonly #find: CurrentAccess['brokers'];
  readonly #runtime: Runtime;
  readonly #onError: (error: Error) => void;
  #seeds: readonly BrokerAddress[] = [];
  #foundMs = Number.NEGATIVE_INFINITY;
  readonly #closing = new AbortController();

  constructor(find: CurrentAccess['brokers'], runtime: Runtime, onError: (error: Error) => void) {
    this.#find = find;
    this.#runtime = runtime;
    this.#onError = onError;
  }

  get seeds(): readonly BrokerAddress[] {
    return this.#seeds;
  }

  /**
   * Finds them for the first time. Rejects with IdallocError CONFIG_INVALID, or KAFKA_UNAVAILABLE after the time limit
   * or when closed.
   */
  async open(timeoutMs: number): Promise<void> {
    const { signal } = this.#closing;
    const isTransient = (error: unknown) =>
      !signal.aborted && error instanceof IdallocError && error.code !== 'CONFIG_INVALID';
    await retrying(this.#runtime, { timeoutMs, waits: WAITS, isTransient, signal }, (leftMs) =>
      this.#findWithin(Math.min(leftMs, FIND_MS)),
    );
  }

  /** Finds them again, for the connections to come, unless that was done only now. */
  async findAgain(): Promise<void> {
    if (this.#closing.signal.aborted || this.#runtime.monotonicMs() - this.#foundMs < FIND_MS) return;
    try {
      await this.#findWithin(FIND_MS);
    } catch (error) {
      if (!this.#closing.signal.aborted) this.#onError(error as Error);
    }
  }

  /** Waits for no function any more, and calls none. */
  close(): void {
    this.#closing.abort();
  }

  async #findWithin(limitMs: number): Promise<void> {
    this.#foundMs = this.#runtime.monotonicMs();
    const find = (over: AbortSignal) =>
      Promise.race([this.#find(), aborted(AbortSignal.any([over, this.#closing.signal]))]);
    const found = await atMost(this.#runtime, limitMs, find);
    if (found === undefined) {
      throw new IdallocError('KAFKA_UNAVAILABLE', `the function brokers has returned nothing for ${limitMs} ms`);
    }
    this.#seeds = seedsOf(found);
  }
}
