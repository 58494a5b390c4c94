import type { RequestRecord } from './ports.ts';

/** A request that lets others go first. */
export interface Deferred {
  readonly record: RequestRecord;
  /** The name of its ledger key. */
  readonly name: string;
  /** The fraction of a part that it fills; may be above 1. */
  readonly share: number;
}

/** Where large requests of one partition wait, so that they do not hold up those after them. */
export interface Deferrals {
  readonly isEmpty: boolean;
  /** Whether a request with this key waits here. */
  has(name: string): boolean;
  /** Adds a request, unless it is already here; false when there is no room and it must be served in its place. */
  take(deferred: Deferred): boolean;
}

const MAX_REQUESTS = 1_000;

/** The deferred requests of one partition, bounded and in offset order. */
export class DeferredQueue implements Deferrals {
  readonly #waiting: Deferred[] = [];
  readonly #names = new Map<string, number>();
  /** Offsets that were added and may be offered again when the requests beside them are retried. */
  readonly #taken = new Set<number>();
  #last = -1;

  /** The offset of the first waiting request. */
  get first(): number | undefined {
    return this.#waiting[0]?.record.offset;
  }

  /** How many wait, and the append time of the first (wall ms); undefined for none. */
  get oldest(): { readonly waiting: number; readonly sinceMs: number } | undefined {
    const [first] = this.#waiting;
    return first === undefined ? undefined : { waiting: this.#waiting.length, sinceMs: first.record.timestampMs };
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

  /** No offset below this one will be offered again. */
  passed(through: number): void {
    for (const offset of this.#taken) if (offset < through) this.#taken.delete(offset);
  }

  /** The first requests, as many as fill one part; empty when none wait. */
  part(): readonly RequestRecord[] {
    let filled = 0;
    const end = this.#waiting.findIndex(({ share }, i) => {
      filled += share;
      return i > 0 && filled > 1;
    });
    return this.#waiting.slice(0, end === -1 ? this.#waiting.length : end).map(({ record }) => record);
  }

  /** Every waiting request up to this offset has been answered. */
  answered(offset: number): void {
    for (let head = this.#waiting[0]; head !== undefined && head.record.offset <= offset; head = this.#waiting[0]) {
      this.#waiting.shift();
      const others = (this.#names.get(head.name) ?? 1) - 1;
      if (others === 0) this.#names.delete(head.name);
      else this.#names.set(head.name, others);
    }
  }
}
