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
 * The purpose of a connection. A broker serves the calls of a lane in order, so calls that may block have their own
 * lane.
 */
export type Lane =
  | 'control'
  | 'append'
  | 'publish'
  | 'publish large'
  | 'requests'
  | 'large requests'
  | 'ledger'
  | 'group'
  | (string & {});

/** How long a lane's connection may be idle before it is closed; undefined for ever. */
const IDLE_MS: Readonly<Record<string, number | undefined>> = { requests: undefined, ledger: undefined, group: 5_000 };
const DEFAULT_IDLE_MS = 60_000;

/** Whoever passes it in holds back repetitions. */
export type WireLog = (...line: Parameters<ThrottledLog>) => void;

/** A broker stays suspect for this long after its last failure. */
const SUSPECT_MS = 10_000;
/** A rejected login is not retried for this long: endless retries may lock the user out. */
const REFUSED_MS = 1_000;
/** A lane that follows a log gets a response at least twice in this time. */
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
 * One broker, identified by its address, with a connection for each lane in use.
 *
 * It becomes suspect when a call goes unanswered or a connection can't be opened, and stays so until it answers, or
 * until SUSPECT_MS have passed without another such failure. A call may only be late because it queues in its lane,
 * like an append after one that waits for slow followers: so a broker that answered on any lane within ALIVE_MS is not
 * suspect. A throttle applies to its lane only: a broker throttles one connection, not the client.
 */
export class Broker {
  readonly name: string;
  readonly #options: BrokerOptions;
  readonly #connections = new Map<Lane, Connection>();
  readonly #throttledUntilMs = new Map<Lane, number>();
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

  /** For how long calls have been made and none was answered, on any lane (ms); 0 if the last one was. */
  get silentMs(): number {
    return this.#unansweredSinceMs === undefined ? 0 : this.#options.runtime.monotonicMs() - this.#unansweredSinceMs;
  }

  get calls(): number {
    return [...this.#connections.values()].reduce((sum, { calls }) => sum + calls, 0);
  }

  isOpen(lane: Lane): boolean {
    return this.#connections.get(lane)?.isOpen ?? false;
  }

  /** Makes one call on the connection of a lane; see `Cluster.call`. */
  async call<R extends BrokerResponse>(
    lane: Lane,
    deadlineMs: number,
    use: (link: BrokerLink) => Promise<R>,
  ): Promise<R> {
    const { deadlines, onResponse } = this.#options;
    await this.#unthrottled(lane, deadlineMs);
    this.#unansweredSinceMs ??= this.#options.runtime.monotonicMs();
    const connection = this.#connection(lane);
    let isLate = false;
    const late = () => {
      isLate = true;
      return this.#late(connection, lane);
    };
    try {
      const response = await deadlines.within(
        deadlineMs,
        connection.run(use, () => isLate),
        late,
      );
      this.#responded(lane, response.throttleMs);
      onResponse();
      return response;
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (errorCode === 'UNREACHABLE' && !isLate) this.#suspect(error);
      if (errorCode === 'LOGIN_REFUSED')
        this.#refused = { error, untilMs: this.#options.runtime.monotonicMs() + REFUSED_MS };
      if (errorCode !== undefined && !isLinkError(errorCode)) {
        this.#responded(lane, 0);
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

  /** Closes the connections of all lanes except those given. */
  async drop(...but: readonly Lane[]): Promise<void> {
    const ending = [...this.#connections].filter(([lane]) => !but.includes(lane));
    await Promise.all(ending.map(([, connection]) => connection.close()));
  }

  #connection(lane: Lane): Connection {
    const known = this.#connections.get(lane);
    if (known !== undefined) return known;
    if (this.#options.deadlines.closed) throw closedError();
    if (this.#isClosed) throw new KafkaError('UNREACHABLE', `${this.name} is no longer a broker of the cluster`);
    const { dialer, address, runtime } = this.#options;
    if (this.#refused !== undefined && runtime.monotonicMs() < this.#refused.untilMs) throw this.#refused.error;
    const connection: Connection = new Connection({
      dialer,
      address,
      runtime,
      idleMs: lane in IDLE_MS ? IDLE_MS[lane] : DEFAULT_IDLE_MS,
      onEnd: () => {
        if (this.#connections.get(lane) === connection) this.#connections.delete(lane);
        this.#log('debug', `connection of lane '${lane}' closed`);
      },
    });
    this.#connections.set(lane, connection);
    return connection;
  }

  /** Waits until the throttle ends. The broker would not read an earlier call. */
  async #unthrottled(lane: Lane, deadlineMs: number): Promise<void> {
    const { runtime, deadlines } = this.#options;
    for (;;) {
      const untilMs = this.#throttledUntilMs.get(lane);
      if (untilMs === undefined) return;
      if (untilMs <= runtime.monotonicMs()) {
        this.#throttledUntilMs.delete(lane);
        return;
      }
      await deadlines.until(Math.min(untilMs, deadlineMs));
      if (untilMs > runtime.monotonicMs() && runtime.monotonicMs() >= deadlineMs) {
        throw new KafkaError('NO_RESPONSE', `${this.name} throttles this client on lane '${lane}'`);
      }
    }
  }

  #responded(lane: Lane, throttleMs: number): void {
    this.#respondedMs = this.#options.runtime.monotonicMs();
    this.#suspectUntilMs = Number.NEGATIVE_INFINITY;
    this.#unansweredSinceMs = this.calls === 0 ? undefined : this.#respondedMs;
    if (this.#isSilent) this.#log('warn', 'a broker answers again');
    this.#isSilent = false;
    if (throttleMs <= 0) return;
    this.#throttledUntilMs.set(lane, this.#options.runtime.monotonicMs() + throttleMs);
    this.#log('debug', `throttled on lane '${lane}'`, { throttleMs });
  }

  #late(connection: Connection, lane: Lane): KafkaError {
    const error = connection.giveUp()
      ? new KafkaError('UNREACHABLE', `${this.name} did not open a connection before the deadline`)
      : new KafkaError('NO_RESPONSE', `${this.name} did not answer on lane '${lane}' before the deadline`);
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
