import type { CallName, RequestOf } from './calls.ts';
import type { Clockwork } from './clockwork.ts';

/** Whoever connects: all that it learns is delivered to it. */
export interface Host {
  readonly name: string;
  deliver(run: () => void): void;
  /** Whether anything passes between it and a broker now. */
  reaches(node: number): boolean;
  /** Sees each call as it is made, and that it has ended for whoever made it: with an answer of the broker, or not. */
  readonly observer?: CallObserver;
  /** Decides what becomes of a message to or from this host, before anybody else does, where it has an opinion. */
  fateOf?(message: Message): Fate | undefined;
}

/** One way of one call. */
export type Message = {
  readonly [C in CallName]: { readonly call: C; readonly request: RequestOf<C>; readonly way: 'there' | 'back' };
}[CallName];

export interface CallObserver {
  sent<C extends CallName>(call: C, request: RequestOf<C>): void;
  ended<C extends CallName>(call: C, request: RequestOf<C>, isAnswered: boolean): void;
}

/** Code of the test itself: it runs all the time and reaches every broker. */
export const HERE: Host = { name: 'test', deliver: (run) => run(), reaches: () => true };

/** How bad the network is; each is a probability, for one message or one connection. */
export interface Weather {
  /** From this message on, the connection carries nothing any more that way. */
  readonly lost: number;
  /** Late, and all that comes after it on the connection: by seconds as a rule, now and then by minutes. */
  readonly late: number;
  /** The connection breaks before the message arrives. */
  readonly reset: number;
  /** What a produce asks for is done a second time, at any time in the next minute. */
  readonly doubled: number;
  /** A connection is refused. */
  readonly refused: number;
  /** A commit takes its time, beside all that. */
  readonly lateCommits: number;
}

export const FAIR: Weather = { lost: 0, late: 0, reset: 0, doubled: 0, refused: 0, lateCommits: 0 };

/** Milliseconds from sending to arrival; what happens to the message else. */
export type Fate = number | 'lost' | 'reset';

export interface NetworkOptions {
  readonly clock: Clockwork;
  /** Of a message on a good day. */
  readonly delayMs?: () => number;
}

const DOUBLED_WITHIN_MS = 60_000;
const LATE_COMMIT_MS = 8_000;
/** Shares of late messages, and how late they are. */
const LATE: readonly { readonly upTo: number; readonly fromMs: number; readonly toMs: number }[] = [
  { upTo: 0.8, fromMs: 5, toMs: 4_500 },
  { upTo: 0.97, fromMs: 4_000, toMs: 20_000 },
  { upTo: 1, fromMs: 20_000, toMs: 180_000 },
];

/** Decides what becomes of messages between hosts and brokers. Everything may be changed while it is in use. */
export class Network {
  readonly #clock: Clockwork;
  readonly #delayMs: () => number;
  weather: Weather = FAIR;
  /** Brokers that nothing reaches and that reach nobody outside. */
  readonly blackHoled = new Set<number>();
  /** Decides before the weather does, where it has an opinion: for tests that script what happens. */
  script: (call: CallName | 'dial', way: 'there' | 'back', node: number) => Fate | undefined = () => undefined;

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
    if (call === 'commitOffsets' && this.#chance(lateCommits)) return this.#clock.random() * LATE_COMMIT_MS;
    return this.#delayMs();
  }

  /** What becomes of an attempt to connect; 'reset' for one that is refused. */
  dialFate(node: number): Fate {
    const scripted = this.script('dial', 'there', node);
    if (scripted !== undefined) return scripted;
    if (this.#chance(this.weather.refused)) return 'reset';
    if (this.#chance(this.weather.lost)) return 'lost';
    return this.#chance(this.weather.late) ? this.#lateMs() : this.#delayMs();
  }

  /** When a second copy of a call arrives; undefined for never. */
  doubledAfterMs(call: CallName): number | undefined {
    if (call !== 'produce' || !this.#chance(this.weather.doubled)) return undefined;
    // Soon as a rule: then it meets what the first one was part of.
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

  /** Rolls no dice for what never happens, so that a fair network costs nothing. */
  #chance(probability: number): boolean {
    return probability > 0 && this.#clock.random() < probability;
  }
}
