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

/**
 * Requests IDs from the workers of all slots over HTTP, in turn, until it is stopped. A refused request is no error.
 */
export class HttpClient implements AsyncDisposable {
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
    this.#ended.catch(() => undefined); // stop() rejects with it
  }

  /** All IDs received. The list grows until stop() resolves. */
  get ids(): readonly bigint[] {
    return this.#ids;
  }

  /** The number of refused requests by status; requests without a response count as 'none'. */
  get refused(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refused);
  }

  /** Rejects if a response was not a batch in the layout. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#ended;
  }

  /** Stops it and ignores its error: the error that made the test fail is more useful. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop().catch(() => undefined);
  }

  async #run(): Promise<void> {
    for (let turn = 0; !this.#stopping; turn += 1) {
      const worker = this.#slots[turn % this.#slots.length]?.worker;
      const port = worker?.lines.findLast(({ msg }) => msg === 'the HTTP API is listening')?.port;
      if (port !== undefined) await this.#request(`http://127.0.0.1:${port}/api/v1/ids?count=${COUNT}`);
      await pause(PACE_MS);
    }
  }

  async #request(url: string): Promise<void> {
    const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch(() => undefined);
    // A response that is cut off counts as a refused request.
    const body = await response?.json().catch(() => undefined);
    if (response?.status !== 200 || body === undefined) {
      const status = String(response?.status ?? 'none');
      this.#refused.set(status, (this.#refused.get(status) ?? 0) + 1);
      return;
    }
    const { ids } = body as { readonly ids: readonly View[] };
    if (ids.length !== COUNT) throw new Error(`${ids.length} IDs over HTTP, ${COUNT} were requested`);
    for (const { value_string: text, value_number: number } of ids) {
      const id = BigInt(text);
      decompose(this.#layout, id);
      const isRight = this.#layout.fitsNumber ? number !== undefined && BigInt(number) === id : number === undefined;
      if (!isRight) throw new Error(`ID ${text} came with value_number ${number}`);
      this.#ids.push(id);
    }
  }
}
