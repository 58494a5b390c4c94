import type { Runtime, Timer } from '../../async/runtime.ts';
import { formatHostPort } from '../../core/host-port.ts';
import { KafkaError } from './kafka-error.ts';
import type { BrokerAddress, BrokerLink, Dialer } from './port.ts';

/** A dial to a broker that accepts the connection and then stays silent ends after this. */
const MAX_DIAL_MS = 5_000;

export interface ConnectionOptions {
  readonly dialer: Dialer;
  readonly address: BrokerAddress;
  readonly runtime: Runtime;
  /** Closed after this long without a call; undefined for never. */
  readonly idleMs: number | undefined;
  /** Called once, when it has ended or could not be opened: the owner drops it. */
  readonly onEnd: () => void;
}

/**
 * One connection of one purpose: dialling, then open, then ended; it never reopens. All calls of the purpose share it,
 * including its dial.
 *
 * A dial ends when the last call waiting for it has given up, and after MAX_DIAL_MS at the latest.
 */
export class Connection {
  readonly #options: ConnectionOptions;
  readonly #abort = new AbortController();
  readonly #dialed: Promise<BrokerLink>;
  #dialTimer: Timer | undefined;
  #idleTimer: Timer | undefined;
  #link: BrokerLink | undefined;
  #ended = false;
  #calls = 0;
  #givenUp = 0;
  #usedMs: number;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#usedMs = options.runtime.monotonicMs();
    this.#dialTimer = options.runtime.schedule(MAX_DIAL_MS, () => void this.close());
    this.#dialed = this.#dial();
    this.#dialed.catch(() => undefined); // each waiting call gets the error itself
  }

  /** Calls waiting for the connection or for a response. */
  get calls(): number {
    return this.#calls;
  }

  get isOpen(): boolean {
    return this.#link !== undefined && !this.#ended;
  }

  /**
   * Runs a call once the connection is open, unless `isLate` by then. The last call to give up a dial ends it: see
   * `giveUp`.
   */
  async run<R>(use: (link: BrokerLink) => Promise<R>, isLate: () => boolean): Promise<R> {
    this.#calls += 1;
    try {
      const link = this.#link ?? (await this.#dialed);
      if (isLate()) throw new KafkaError('UNREACHABLE', 'the connection opened after the deadline');
      return await use(link);
    } finally {
      this.#calls -= 1;
      this.#usedMs = this.#options.runtime.monotonicMs();
      this.#watchIdle();
    }
  }

  /** A call is past its deadline. True if it was still waiting for the connection, so that nothing was sent. */
  giveUp(): boolean {
    const wasDialing = this.#link === undefined;
    this.#givenUp += 1;
    if (!wasDialing || this.#givenUp === this.#calls) void this.close();
    return wasDialing;
  }

  /** Closes it immediately, or cancels its dial. Resolves when the socket is gone. */
  async close(): Promise<void> {
    this.#end();
    this.#abort.abort();
    const link = this.#link ?? (await this.#dialed.catch(() => undefined));
    link?.close();
    await link?.ended;
  }

  async #dial(): Promise<BrokerLink> {
    const { dialer, address } = this.#options;
    try {
      const link = await dialer.dial(address, this.#abort.signal);
      this.#link = link;
      void link.ended.then(() => this.#end());
      this.#dialTimer?.cancel();
      this.#watchIdle();
      return link;
    } catch (error) {
      this.#end();
      throw this.#abort.signal.aborted ? givenUp(address) : error;
    }
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#dialTimer?.cancel();
    this.#idleTimer?.cancel();
    this.#options.onEnd();
  }

  /** At most one timer, whatever the number of calls: when it fires it checks the time of the last call. */
  #watchIdle(): void {
    const { idleMs, runtime } = this.#options;
    if (idleMs === undefined || this.#calls > 0 || this.#ended || this.#idleTimer !== undefined) return;
    const idleAtMs = () => this.#usedMs + idleMs;
    this.#idleTimer = runtime.schedule(Math.max(0, idleAtMs() - runtime.monotonicMs()), () => {
      this.#idleTimer = undefined;
      // The same expression as when it was scheduled: a difference that rounds the other way would reschedule for ever.
      if (this.#calls === 0 && idleAtMs() <= runtime.monotonicMs()) void this.close();
      else this.#watchIdle();
    });
  }
}

function givenUp(address: BrokerAddress): KafkaError {
  return new KafkaError('UNREACHABLE', `${formatHostPort(address)}: the connection attempt was cancelled`);
}
