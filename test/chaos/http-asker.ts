import { setTimeout as pause } from 'node:timers/promises';
import { decompose, type Layout } from '../../src/core/layout.ts';
import type { Slot } from './slot.ts';

/** IDs of each request, and the time between two of them. */
const COUNT = 3;
const PACE_MS = 20;
const TIMEOUT_MS = 2_000;

interface View {
  readonly value_string: string;
  readonly value_number?: number;
}

/** Asks the workers of all places for IDs over HTTP, one after the other, until it is stopped. A refusal is no fault. */
export class HttpAsker implements AsyncDisposable {
  readonly #slots: readonly Slot[];
  readonly #layout: Layout;
  readonly #ids: bigint[] = [];
  readonly #ended: Promise<void>;
  readonly #refused = new Map<string, number>();
  #stopping = false;

  constructor(slots: readonly Slot[], layout: Layout) {
    this.#slots = slots;
    this.#layout = layout;
    this.#ended = this.#run();
    this.#ended.catch(() => undefined); // stop() tells
  }

  /** All that was given. It grows until stop() has resolved. */
  get ids(): readonly bigint[] {
    return this.#ids;
  }

  /** How many requests were refused, by status; those without an answer are 'none'. */
  get refused(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refused);
  }

  /** Rejects for an answer that was no batch in the layout. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#ended;
  }

  /** Stops it whatever it met: a test that fails for another cause has more to tell. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop().catch(() => undefined);
  }

  async #run(): Promise<void> {
    for (let asked = 0; !this.#stopping; asked += 1) {
      const worker = this.#slots[asked % this.#slots.length]?.worker;
      const port = worker?.lines.findLast(({ msg }) => msg === 'the HTTP API is listening')?.port;
      if (port !== undefined) await this.#ask(`http://127.0.0.1:${port}/api/v1/ids?count=${COUNT}`);
      await pause(PACE_MS);
    }
  }

  async #ask(url: string): Promise<void> {
    const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch(() => undefined);
    // A connection that is cut in the middle of an answer ends like one that was refused.
    const body = await response?.json().catch(() => undefined);
    if (response?.status !== 200 || body === undefined) {
      const status = String(response?.status ?? 'none');
      this.#refused.set(status, (this.#refused.get(status) ?? 0) + 1);
      return;
    }
    const { ids } = body as { readonly ids: readonly View[] };
    if (ids.length !== COUNT) throw new Error(`${ids.length} IDs over HTTP, ${COUNT} were asked for`);
    for (const { value_string: text, value_number: number } of ids) {
      const id = BigInt(text);
      decompose(this.#layout, id);
      const isRight = this.#layout.fitsNumber ? number !== undefined && BigInt(number) === id : number === undefined;
      if (!isRight) throw new Error(`${text} came with the number ${number}`);
      this.#ids.push(id);
    }
  }
}
