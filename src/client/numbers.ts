import { IdallocError } from '../errors.ts';
import type { BatchReply } from './requester.ts';

const MAX_NUMBER = BigInt(Number.MAX_SAFE_INTEGER);

/**
 * Whether IDs may be returned as JavaScript numbers. The layout decides, not the IDs: those of a wider layout are small
 * in its first days, and would be rounded later. After the first IDs that do not fit, all calls fail: a namespace has
 * one layout, so this never changes.
 */
export class NumberCheck {
  #refusal: string | undefined;

  /** Checks a reply before its IDs are used. */
  note({ batch, layout }: Pick<BatchReply, 'batch' | 'layout'>): void {
    if (layout === undefined) this.#refusal ??= 'have a layout that this version of the client does not know';
    else if (!layout.fitsNumber) {
      this.#refusal ??= `have the layout '${layout.name}', whose IDs exceed the 53 bits of a JavaScript number`;
    }
    const isLarge = batch.ranges.some(({ first, count }) => first + BigInt(count - 1) * batch.step > MAX_NUMBER);
    if (isLarge) this.#refusal ??= 'exceed 2^53, which their layout does not allow';
  }

  /** Throws CONFIG_INVALID once IDs have arrived that do not fit. */
  require(): void {
    if (this.#refusal === undefined) return;
    const remedy = 'use bigints with next(), or a namespace with LAYOUT=js-safe';
    throw new IdallocError('CONFIG_INVALID', `these IDs ${this.#refusal}: ${remedy}`);
  }
}
