import { describeError, IdallocError } from './errors.ts';
import type { Log } from './log.ts';

/** What the keeper starts and stops: one consumer's life of reading a topic. */
export interface Reader {
  start(): Promise<void>;
  stop(): Promise<void>;
  restart(partition: number): void;
}

export interface ReaderKeeperOptions {
  /** What is read, for the log. */
  readonly what: string;
  /** Makes a reader that has not started; onCrash tells that it ended and will not come back by itself. */
  readonly create: (onCrash: (error: Error) => void) => Reader;
  readonly sleep: (delayMs: number) => Promise<void>;
  readonly monotonicMs: () => number;
  readonly log: Log;
  /** Reading does not last: somebody has to see to it. */
  readonly fail: (error: unknown) => void;
}

const REST_MS = 500;
/** Readers that end so many times with less than a minute between are not ended by a broker that restarts. */
const MAX_CRASHES = 60;
const CALM_MS = 60_000;

/**
 * Keeps a topic being read: kafkajs gives a consumer up for good also after faults of a moment, such as a connection
 * that closes while it looks for its coordinator. A new reader then begins as the first one did.
 */
export class ReaderKeeper {
  readonly #options: ReaderKeeperOptions;
  #reader: Reader | undefined;
  #replacing: Promise<void> = Promise.resolve();
  #stopped = false;
  #crashes = 0;
  #lastCrashMs = Number.NEGATIVE_INFINITY;

  constructor(options: ReaderKeeperOptions) {
    this.#options = options;
  }

  /** Rejects with KAFKA_UNAVAILABLE when the first reader can't start; later ones are tried again. */
  async start(): Promise<void> {
    try {
      await this.#make().start();
    } catch (error) {
      if (error instanceof IdallocError) throw error;
      const message = `the ${this.#options.what} can not be read: ${describeError(error)}; look at the brokers`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }

  /** Reads a partition anew; a reader that is not there yet begins all of them anew. */
  restart(partition: number): void {
    this.#reader?.restart(partition);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#reader?.stop();
    await this.#replacing;
  }

  #make(): Reader {
    const reader = this.#options.create((error) => this.#crashed(reader, error));
    this.#reader = reader;
    return reader;
  }

  #crashed(reader: Reader, error: unknown): void {
    if (this.#stopped || this.#reader !== reader) return;
    const { what, monotonicMs, log, fail } = this.#options;
    const nowMs = monotonicMs();
    this.#crashes = nowMs - this.#lastCrashMs > CALM_MS ? 1 : this.#crashes + 1;
    this.#lastCrashMs = nowMs;
    this.#reader = undefined;
    if (this.#crashes > MAX_CRASHES) {
      fail(error);
      return;
    }
    log.warn({ error: describeError(error) }, `reading the ${what} ended, it is begun anew`);
    this.#replacing = this.#replacing.then(() => this.#replace(reader));
  }

  async #replace(before: Reader): Promise<void> {
    const { sleep, log } = this.#options;
    await before.stop().catch((error) => {
      log.debug({ error: describeError(error) }, 'the reader that ended could not be stopped');
    });
    await sleep(REST_MS);
    if (this.#stopped) return;
    const next = this.#make();
    await next.start().catch((error) => this.#crashed(next, error));
  }
}
