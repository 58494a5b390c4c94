import type { Runtime, Timer } from '../../core/runtime.ts';
import { KafkaFault } from './fault.ts';
import type { BrokerAddress, BrokerLink, Dialer } from './port.ts';

/** A broker that accepts a connection and says nothing is given up after this, whoever still waits. */
const MAX_DIAL_MS = 5_000;

export interface ConnectionOptions {
  readonly dialer: Dialer;
  readonly address: BrokerAddress;
  readonly runtime: Runtime;
  /** Closed after so long without a call; undefined for never. */
  readonly idleMs: number | undefined;
  /** Once, when it has ended or could not be opened: whoever holds it lets it go. */
  readonly onEnd: () => void;
}

/**
 * One connection of one lane: dialing, then open, then ended, and never back. All calls of the lane share it, its dial
 * included.
 *
 * A dial ends when the last call that waited for it has given up, and after MAX_DIAL_MS at the latest.
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
    this.#dialed.catch(() => undefined); // each call that waits hears of it by itself
  }

  /** Calls that wait for it, or for an answer on it. */
  get calls(): number {
    return this.#calls;
  }

  get isOpen(): boolean {
    return this.#link !== undefined && !this.#ended;
  }

  /**
   * Runs a call once the connection is open. The call is not made any more if `isLate` says so by then. The last one to
   * give up a dial ends it: see `giveUp`.
   */
  async run<R>(use: (link: BrokerLink) => Promise<R>, isLate: () => boolean): Promise<R> {
    this.#calls += 1;
    try {
      const link = this.#link ?? (await this.#dialed);
      if (isLate()) throw new KafkaFault('UNREACHABLE', 'the connection was there after the deadline');
      return await use(link);
    } finally {
      this.#calls -= 1;
      this.#usedMs = this.#options.runtime.monotonicMs();
      this.#watchIdle();
    }
  }

  /** A call is late. Whether it waited for the connection only, so that nothing of it was sent. */
  giveUp(): boolean {
    const wasDialing = this.#link === undefined;
    this.#givenUp += 1;
    if (!wasDialing || this.#givenUp === this.#calls) void this.close();
    return wasDialing;
  }

  /** Ends it at once, a dial too. Resolves when the socket is gone. */
  async close(): Promise<void> {
    this.#end();
    this.#abort.abort();
    this.#link?.close();
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

  /** At most one timer, whatever the number of calls: it looks when the last one was. */
  #watchIdle(): void {
    const { idleMs, runtime } = this.#options;
    if (idleMs === undefined || this.#calls > 0 || this.#ended || this.#idleTimer !== undefined) return;
    const idleAtMs = () => this.#usedMs + idleMs;
    this.#idleTimer = runtime.schedule(Math.max(0, idleAtMs() - runtime.monotonicMs()), () => {
      this.#idleTimer = undefined;
      // Compared as it was scheduled: a difference that is rounded the other way would have it look again for ever.
      if (this.#calls === 0 && idleAtMs() <= runtime.monotonicMs()) void this.close();
      else this.#watchIdle();
    });
  }
}

function givenUp({ host, port }: BrokerAddress): KafkaFault {
  return new KafkaFault('UNREACHABLE', `${host}:${port} was given up before it opened a connection`);
}
