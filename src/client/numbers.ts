import { IdallocError } from '../errors.ts';
import type { Answer } from './requester.ts';

const MAX_NUMBER = BigInt(Number.MAX_SAFE_INTEGER);

/**
 * Whether the IDs that came may be given out as JavaScript numbers. A layout says so, not the IDs: those of a wider one are
 * small in its first days, and would be rounded later on. Once IDs came that are no numbers, none are given for good: a
 * namespace has one layout, so nobody who is right has to wait for that to change.
 */
export class NumberCheck {
  #refusal: string | undefined;

  /** Takes note of IDs before they are given out. */
  note({ batch, layout }: Pick<Answer, 'batch' | 'layout'>): void {
    if (layout === undefined) this.#refusal ??= 'have a layout that this version of the client does not know';
    else if (!layout.fitsNumber) {
      this.#refusal ??= `have the layout '${layout.name}', whose IDs outgrow the 53 bits that a JavaScript number holds`;
    }
    const isLarge = batch.ranges.some(({ first, count }) => first + BigInt(count - 1) * batch.step > MAX_NUMBER);
    if (isLarge) this.#refusal ??= 'are larger than 2^53, which their layout does not allow';
  }

  /** Throws CONFIG_INVALID once IDs came that are no numbers. */
  require(): void {
    if (this.#refusal === undefined) return;
    const remedy = 'take bigints, by next(), or make a namespace with LAYOUT=js-safe';
    throw new IdallocError('CONFIG_INVALID', `these IDs ${this.#refusal}: ${remedy}`);
  }
}
