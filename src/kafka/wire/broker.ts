import type { Runtime } from '../../async/runtime.ts';
import type { ThrottledLog } from '../../async/throttle.ts';
import { formatHostPort } from '../../core/host-port.ts';
import { describeError } from '../../errors.ts';
import type { BrokerResponse } from './api.ts';
import { Connection } from './connection.ts';
import { closedError, type Deadlines } from './deadlines.ts';
import { isLinkError } from './error-codes.ts';
import { KafkaError, kafkaErrorCode } from './kafka-error.ts';
import type { BrokerAddress, BrokerLink, Dialer } from './port.ts';

/**
 * What a connection to a broker is for. A broker serves the calls of a connection in order, so calls that may wait for
 * something have a connection of their own: a fetch for records, an append for followers, a join for other members.
 */
export type Purpose =
  | 'control'
  | 'append'
  | 'publish'
  | 'publish large'
  | 'requests'
  | 'large requests'
  | 'indebted requests'
  | 'requests for numbers'
  | 'ledger'
  | 'entries'
  | 'replies'
  | 'group';

/** How long a connection may be idle before it is closed; undefined for ever. */
const IDLE_MS: Partial<Record<Purpose, number | undefined>> = { requests: undefined, ledger: undefined, group: 5_000 };
const DEFAULT_IDLE_MS = 60_000;

/** Whoever passes it in holds back repetitions. */
export type WireLog = (...line: Parameters<ThrottledLog>) => void;

/** A broker stays suspect for this long after its last failure. */
const SUSPECT_MS = 10_000;
/** A rejected login is not retried for this long: endless retries may lock the user out. */
const REFUSED_MS = 1_000;
/** A connection that follows a log gets a response at least twice in this time. */
const ALIVE_MS = 1_000;

export interface BrokerOptions {
  readonly dialer: Dialer;
  readonly address: BrokerAddress;
  readonly runtime: Runtime;
  readonly deadlines: Deadlines;
  readonly log: WireLog;
  readonly onResponse: () => void;
  /** Called when it did not answer or could not be reached. `isNew`: it was not suspect before. */
  readonly onSilence: (isNew: boolean) => void;
}

/**
 * One broker, identified by its address, with a connection for each purpose that is in use.
 *
 * It becomes suspect when a call goes unanswered or a connection can't be opened, and stays so until it answers, or
 * until SUSPECT_MS have passed without another such failure. A call may only be late because it queues on its
 * connection, like an append after one that waits for slow followers: so a broker that answered on any connection
 * within ALIVE_MS is not suspect. A throttle applies to one connection, as a broker throttles that, and not the client.
 */
export class Broker {
  readonly name: string;
  readonly #options: BrokerOptions;
  readonly #connections = new Map<Purpose, Connection>();
  readonly #throttledUntilMs = new Map<Purpose, number>();
  #suspectUntilMs = Number.NEGATIVE_INFINITY;
  #respondedMs = Number.NEGATIVE_INFINITY;
  /** When the first call was made of those since the last response; undefined if there is none. */
  #unansweredSinceMs: number | undefined;
  #refused: { readonly error: unknown; readonly untilMs: number } | undefined;
  #isSilent = false;
  #isClosed = false;

  constructor(options: BrokerOptions) {
    this.#options = options;
    this.name = formatHostPort(options.address);
  }

  get isSuspect(): boolean {
    return this.#options.runtime.monotonicMs() < this.#suspectUntilMs;
  }

  /** For how long calls have been made and none was answered, on any connection (ms); 0 if the last one was. */
  get silentMs(): number {
    return this.#unansweredSinceMs === undefined ? 0 : this.#options.runtime.monotonicMs() - this.#unansweredSinceMs;
  }

  get calls(): number {
    return [...this.#connections.values()].reduce((sum, { calls }) => sum + calls, 0);
  }

  isOpen(purpose: Purpose): boolean {
    return this.#connections.get(purpose)?.isOpen ?? false;
  }

  /** Makes one call on the connection of that purpose; see `Cluster.call`. */
  async call<R extends BrokerResponse>(
    purpose: Purpose,
    deadlineMs: number,
    use: (link: BrokerLink) => Promise<R>,
  ): Promise<R> {
    const { deadlines, onResponse } = this.#options;
    await this.#unthrottled(purpose, deadlineMs);
    this.#unansweredSinceMs ??= this.#options.runtime.monotonicMs();
    const connection = this.#connection(purpose);
    let isLate = false;
    const late = () => {
      isLate = true;
      return this.#late(connection, purpose);
    };
    try {
      const response = await deadlines.within(
        deadlineMs,
        connection.run(use, () => isLate),
        late,
      );
      this.#responded(purpose, response.throttleMs);
      onResponse();
      return response;
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (errorCode === 'UNREACHABLE' && !isLate) this.#suspect(error);
      if (errorCode === 'LOGIN_REFUSED')
        this.#refused = { error, untilMs: this.#options.runtime.monotonicMs() + REFUSED_MS };
      if (errorCode !== undefined && !isLinkError(errorCode)) {
        this.#responded(purpose, 0);
        onResponse();
      }
      throw error;
    }
  }

  /** Closes all connections, and opens no more. */
  close(): Promise<void> {
    this.#isClosed = true;
    return this.drop();
  }

  /** Closes the connections except those of the given purposes. */
  async drop(...but: readonly Purpose[]): Promise<void> {
    const ending = [...this.#connections].filter(([purpose]) => !but.includes(purpose));
    await Promise.all(ending.map(([, connection]) => connection.close()));
  }

  #connection(purpose: Purpose): Connection {
    const known = this.#connections.get(purpose);
    if (known !== undefined) return known;
    if (this.#options.deadlines.closed) throw closedError();
    if (this.#isClosed) throw new KafkaError('UNREACHABLE', `${this.name} is no longer a broker of the cluster`);
    const { dialer, address, runtime } = this.#options;
    if (this.#refused !== undefined && runtime.monotonicMs() < this.#refused.untilMs) throw this.#refused.error;
    const connection: Connection = new Connection({
      dialer,
      address,
      runtime,
      idleMs: purpose in IDLE_MS ? IDLE_MS[purpose] : DEFAULT_IDLE_MS,
      onEnd: () => {
        if (this.#connections.get(purpose) === connection) this.#connections.delete(purpose);
        this.#log('debug', `the connection for '${purpose}' was closed`);
      },
    });
    this.#connections.set(purpose, connection);
    return connection;
  }

  /** Waits until the throttle ends. The broker would not read an earlier call. */
  async #unthrottled(purpose: Purpose, deadlineMs: number): Promise<void> {
    const { runtime, deadlines } = this.#options;
    for (;;) {
      const untilMs = this.#throttledUntilMs.get(purpose);
      if (untilMs === undefined) return;
      if (untilMs <= runtime.monotonicMs()) {
        this.#throttledUntilMs.delete(purpose);
        return;
      }
      await deadlines.until(Math.min(untilMs, deadlineMs));
      if (untilMs > runtime.monotonicMs() && runtime.monotonicMs() >= deadlineMs) {
        throw new KafkaError('NO_RESPONSE', `${this.name} throttles this client's connection for '${purpose}'`);
      }
    }
  }

  #responded(purpose: Purpose, throttleMs: number): void {
    this.#respondedMs = this.#options.runtime.monotonicMs();
    this.#suspectUntilMs = Number.NEGATIVE_INFINITY;
    this.#unansweredSinceMs = this.calls === 0 ? undefined : this.#respondedMs;
    if (this.#isSilent) this.#log('warn', 'a broker answers again');
    this.#isSilent = false;
    if (throttleMs <= 0) return;
    this.#throttledUntilMs.set(purpose, this.#options.runtime.monotonicMs() + throttleMs);
    this.#log('debug', `the connection for '${purpose}' is throttled`, { throttleMs });
  }

  #late(connection: Connection, purpose: Purpose): KafkaError {
    const error = connection.giveUp()
      ? new KafkaError('UNREACHABLE', `${this.name} did not open a connection before the deadline`)
      : new KafkaError(
          'NO_RESPONSE',
          `${this.name} did not answer on the connection for '${purpose}' before the deadline`,
        );
    const isAlive = this.#options.runtime.monotonicMs() - this.#respondedMs < ALIVE_MS;
    if (!isAlive || error.errorCode === 'UNREACHABLE') this.#suspect(error);
    return error;
  }

  #suspect(error: unknown): void {
    const isNew = !this.isSuspect;
    this.#suspectUntilMs = this.#options.runtime.monotonicMs() + SUSPECT_MS;
    this.#isSilent = true;
    this.#log('warn', 'a broker does not answer', { error: describeError(error) });
    this.#options.onSilence(isNew);
  }

  #log(level: 'warn' | 'debug', message: string, fields: object = {}): void {
    this.#options.log(level, { broker: this.name, ...fields }, message, { about: this.name });
  }
}
