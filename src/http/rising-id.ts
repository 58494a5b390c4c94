import { formatHex } from '../core/layout.ts';

const LAST = 3;
const textsOf = (base: number) =>
  Array.from({ length: base ** LAST }, (_, number) => number.toString(base).padStart(LAST, '0'));

/** `last`: the texts of the last three digits. */
const NOTATIONS = {
  decimal: { last: textsOf(10), write: String },
  hex: { last: textsOf(16), write: formatHex },
};

/**
 * A text that ends in an ID which rises. Writing a BigInt is slow, so it is done only when more than its last three
 * digits change.
 */
export class RisingId {
  readonly #before: string;
  readonly #notation: (typeof NOTATIONS)['decimal' | 'hex'];
  readonly #step: number;
  #upper: bigint;
  #last: number;
  #unchanged: string;

  /** `step`: below 2^52. */
  constructor(before: string, notation: keyof typeof NOTATIONS, first: bigint, step: bigint) {
    this.#before = before;
    this.#notation = NOTATIONS[notation];
    this.#step = Number(step);
    const size = BigInt(this.#notation.last.length);
    this.#upper = first / size;
    this.#last = Number(first % size);
    this.#unchanged = this.#write();
  }

  /** The text with the ID, which rises by a step for the next time. */
  next(): string {
    const { last, write } = this.#notation;
    if (this.#last >= last.length) {
      this.#upper += BigInt(Math.floor(this.#last / last.length));
      this.#last %= last.length;
      this.#unchanged = this.#write();
    }
    const text = this.#upper === 0n ? this.#before + write(BigInt(this.#last)) : this.#unchanged + last[this.#last];
    this.#last += this.#step;
    return text;
  }

  #write(): string {
    const { last, write } = this.#notation;
    // Joined, since V8 keeps a sum of strings as a tree, which would be walked again for each ID.
    return [this.#before, write(this.#upper * BigInt(last.length)).slice(0, -LAST)].join('');
  }
}
