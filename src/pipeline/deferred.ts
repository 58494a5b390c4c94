import type { RequestRecord } from './ports.ts';

/** A request that others go before. */
export interface Deferred {
  readonly record: RequestRecord;
  /** Of its key in the ledger. */
  readonly name: string;
  /** How much of a part of such requests it fills; may be above 1. */
  readonly share: number;
}

/** Where requests of one partition wait that are not to hold up those behind them. */
export interface Deferrals {
  /** Whether nothing waits here. */
  readonly isEmpty: boolean;
  /** Whether a request with this key waits here. */
  has(name: string): boolean;
  /** Takes a request in, or has it from before; false where there is no place for it, and it must be served where it is. */
  take(deferred: Deferred): boolean;
}

const MAX_REQUESTS = 1_000;

/** Requests of one partition that were put off, in the order of their offsets. Bounded, and never out of order. */
export class DeferredQueue implements Deferrals {
  readonly #waiting: Deferred[] = [];
  readonly #names = new Map<string, number>();
  /** Offsets that were taken and may come again, when those beside them are tried again. */
  readonly #taken = new Set<number>();
  #last = -1;

  /** The offset of the first one that waits. */
  get first(): number | undefined {
    return this.#waiting[0]?.record.offset;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  has(name: string): boolean {
    return this.#names.has(name);
  }

  take(deferred: Deferred): boolean {
    const { record, name } = deferred;
    if (this.#taken.has(record.offset)) return true;
    if (record.offset < this.#last || this.#waiting.length >= MAX_REQUESTS) return false;
    this.#last = record.offset;
    this.#taken.add(record.offset);
    this.#waiting.push(deferred);
    this.#names.set(name, (this.#names.get(name) ?? 0) + 1);
    return true;
  }

  /** Nothing below this offset is offered again. */
  passed(through: number): void {
    for (const offset of this.#taken) if (offset < through) this.#taken.delete(offset);
  }

  /** The first ones, as many as make one part; none when nothing waits. */
  part(): readonly RequestRecord[] {
    let filled = 0;
    const end = this.#waiting.findIndex(({ share }, i) => {
      filled += share;
      return i > 0 && filled > 1;
    });
    return this.#waiting.slice(0, end === -1 ? this.#waiting.length : end).map(({ record }) => record);
  }

  /** Everything that waits up to this offset has been answered. */
  answered(offset: number): void {
    for (let head = this.#waiting[0]; head !== undefined && head.record.offset <= offset; head = this.#waiting[0]) {
      this.#waiting.shift();
      const others = (this.#names.get(head.name) ?? 1) - 1;
      if (others === 0) this.#names.delete(head.name);
      else this.#names.set(head.name, others);
    }
  }
}
