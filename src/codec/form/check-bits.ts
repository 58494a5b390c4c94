import { sha256 } from '@noble/hashes/sha2.js';
import type { Layout } from '../../core/layout.ts';
import type { FormName } from './form.ts';

const ID_BYTES = 8;
/** Maximum number of hash bits. */
const MOST_BITS = 128;

/**
 * Fills the bits that an ID leaves free in a form: the first bits of SHA-256 over the ASCII text
 * `idalloc:FORM:FINGERPRINT:` and the ID as 8 bytes, big-endian. It detects typing errors, foreign texts and other
 * layouts, but anyone with the layout can compute it, so it proves nothing. SHA-256 is available in every language, and
 * the input fits into one block.
 */
export class CheckBits {
  readonly #message: Uint8Array;
  readonly #idAt: DataView;
  readonly #unused: bigint;

  /** `bits`: 0 to 128. */
  constructor(form: FormName, layout: Layout, bits: number) {
    const head = new TextEncoder().encode(`idalloc:${form}:${layout.fingerprint}:`);
    this.#message = new Uint8Array(head.length + ID_BYTES);
    this.#message.set(head);
    this.#idAt = new DataView(this.#message.buffer, head.length);
    this.#unused = BigInt(MOST_BITS - bits);
  }

  of(id: bigint): bigint {
    this.#idAt.setBigUint64(0, id);
    const hash = sha256(this.#message);
    const read = new DataView(hash.buffer, hash.byteOffset);
    return ((read.getBigUint64(0) << 64n) | read.getBigUint64(8)) >> this.#unused;
  }
}
