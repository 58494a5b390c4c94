import type { ApiName, RequestOf } from '../../../src/kafka/wire/port.ts';
import type { Clockwork } from './clockwork.ts';

/** A client host; everything it learns is delivered through it. */
export interface Host {
  readonly name: string;
  deliver(run: () => void): void;
  /** Whether messages currently pass between it and a broker. */
  reaches(node: number): boolean;
  /** Observes each call when it is made, and when it has ended for the caller, with or without an answer. */
  readonly observer?: CallObserver;
  /** Decides the fate of a message to or from this host before the network does, unless it returns undefined. */
  fateOf?(message: Message): Fate | undefined;
}

/** One direction of one call. */
export type Message = {
  readonly [A in ApiName]: { readonly call: A; readonly request: RequestOf<A>; readonly way: 'there' | 'back' };
}[ApiName];

export interface CallObserver {
  sent<A extends ApiName>(call: A, request: RequestOf<A>): void;
  ended<A extends ApiName>(call: A, request: RequestOf<A>, isAnswered: boolean): void;
}

/** The test itself: it always runs and reaches every broker. */
export const HERE: Host = { name: 'test', deliver: (run) => run(), reaches: () => true };

/** Fault rates of the network; each is a probability for one message or one connection. */
export interface Weather {
  /** From this message on, the connection is dead in that direction. */
  readonly lost: number;
  /** This message and all after it on the connection are late: usually by seconds, sometimes by minutes. */
  readonly late: number;
  /** The connection breaks before the message arrives. */
  readonly reset: number;
  /** A produce request is executed a second time, at any time in the next minute. */
  readonly doubled: number;
  /** A connection is refused. */
  readonly refused: number;
  /** A commit is slow, in addition. */
  readonly lateCommits: number;
}

export const FAIR: Weather = { lost: 0, late: 0, reset: 0, doubled: 0, refused: 0, lateCommits: 0 };

/** Milliseconds from sending to arrival, or what happens to the message instead. */
export type Fate = number | 'lost' | 'reset';

export interface NetworkOptions {
  readonly clock: Clockwork;
  /** The delay of a normal message. */
  readonly delayMs?: () => number;
}

const DOUBLED_WITHIN_MS = 60_000;
const LATE_COMMIT_MS = 8_000;
/** How late messages are, with their shares. */
const LATE: readonly { readonly upTo: number; readonly fromMs: number; readonly toMs: number }[] = [
  { upTo: 0.8, fromMs: 5, toMs: 4_500 },
  { upTo: 0.97, fromMs: 4_000, toMs: 20_000 },
  { upTo: 1, fromMs: 20_000, toMs: 180_000 },
];

/** Decides the fate of messages between hosts and brokers. Everything may be changed while it is in use. */
export class Network {
  readonly #clock: Clockwork;
  readonly #delayMs: () => number;
  weather: Weather = FAIR;
  /** Brokers that are cut off from all hosts. */
  readonly blackHoled = new Set<number>();
  /** Decides before the random faults do, unless it returns undefined: for scripted tests. */
  script: (call: ApiName | 'dial', way: 'there' | 'back', node: number) => Fate | undefined = () => undefined;

  /**
   * Whether a produce request to a topic is never executed again once its sender has the answer. That is so in Kafka: a
   * connection carries each request once. Other topics have doubles that are worse than Kafka's.
   */
  isDoneOnceAnswered: (topic: string) => boolean = () => false;

  constructor({ clock, delayMs = () => 0 }: NetworkOptions) {
    this.#clock = clock;
    this.#delayMs = delayMs;
  }

  fateOf(message: Message, host: Host, node: number): Fate {
    const { call, way } = message;
    const scripted = host.fateOf?.(message) ?? this.script(call, way, node);
    if (scripted !== undefined) return scripted;
    const { lost, reset, late, lateCommits } = this.weather;
    if (this.#chance(lost)) return 'lost';
    if (this.#chance(reset)) return 'reset';
    if (this.#chance(late)) return this.#lateMs();
    if (call === 'offsetCommit' && this.#chance(lateCommits)) return this.#clock.random() * LATE_COMMIT_MS;
    return this.#delayMs();
  }

  /** The fate of an attempt to connect; 'reset' if it is refused. */
  dialFate(node: number): Fate {
    const scripted = this.script('dial', 'there', node);
    if (scripted !== undefined) return scripted;
    if (this.#chance(this.weather.refused)) return 'reset';
    if (this.#chance(this.weather.lost)) return 'lost';
    return this.#chance(this.weather.late) ? this.#lateMs() : this.#delayMs();
  }

  /** When a second copy of a call arrives; undefined for never. */
  doubledAfterMs(call: ApiName): number | undefined {
    if (call !== 'produce' || !this.#chance(this.weather.doubled)) return undefined;
    // Usually soon, so that it interferes with what the first one was part of.
    const share = this.#clock.random();
    return DOUBLED_WITHIN_MS * share ** 4;
  }

  passes(host: Host, node: number): boolean {
    return host.reaches(node) && !this.blackHoled.has(node);
  }

  #lateMs(): number {
    const kind = this.#clock.random();
    const { fromMs, toMs } = LATE.find(({ upTo }) => kind < upTo) ?? { fromMs: 0, toMs: 0 };
    return fromMs + this.#clock.random() * (toMs - fromMs);
  }

  /** Uses no random number for a zero rate, so that a fault-free network costs nothing. */
  #chance(probability: number): boolean {
    return probability > 0 && this.#clock.random() < probability;
  }
}
