const DECIMAL = '0123456789';
const UPPER = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const NO_DIGIT = -1;

/**
 * Integers in one base, most significant digit first. Converts several digits at a time in doubles, because one bigint
 * division costs as much as tens of those.
 */
class Digits {
  readonly #digits: string;
  readonly #valueOf: readonly number[];
  readonly #perChunk: number;

  /** `digits`: in ascending order of character codes, so that texts of the same length sort like the numbers. */
  constructor(digits: string) {
    this.#digits = digits;
    this.#valueOf = Array.from({ length: 128 }, (_, code) => digits.indexOf(String.fromCharCode(code)));
    this.#perChunk = Math.floor(53 / Math.log2(digits.length));
  }

  /** `value` in exactly `length` digits; the caller must check that it fits. */
  write(value: bigint, length: number): string {
    const base = this.#digits.length;
    const chunk = BigInt(base ** this.#perChunk);
    let text = '';
    for (let rest = value; rest > 0n; rest /= chunk) {
      let part = Number(rest % chunk);
      for (let k = 0; k < this.#perChunk; k += 1) {
        text = this.#digits.charAt(part % base) + text;
        part = Math.floor(part / base);
      }
    }
    return text.slice(-length).padStart(length, '0');
  }

  /** The number in a text; undefined if a character is not a digit. */
  read(text: string): bigint | undefined {
    const base = this.#digits.length;
    let value = 0n;
    for (let at = 0; at < text.length; at += this.#perChunk) {
      const chunk = text.slice(at, at + this.#perChunk);
      let part = 0;
      for (let k = 0; k < chunk.length; k += 1) {
        const digit = this.#valueOf[chunk.charCodeAt(k)] ?? NO_DIGIT;
        if (digit === NO_DIGIT) return undefined;
        part = part * base + digit;
      }
      value = value * BigInt(base ** chunk.length) + BigInt(part);
    }
    return value;
  }
}

export const HEX = new Digits(`${DECIMAL}abcdef`);
export const BASE62 = new Digits(`${DECIMAL}${UPPER}${UPPER.toLowerCase()}`);
/** Crockford's: without I, L, O and U. */
export const CROCKFORD_DIGITS = `${DECIMAL}ABCDEFGHJKMNPQRSTVWXYZ`;
export const CROCKFORD = new Digits(CROCKFORD_DIGITS);

/**
 * Crockford's decoding rules: lowercase letters count as uppercase, I and L as 1, O as 0, and hyphens are ignored. Only
 * for text of ASCII: others, such as ſ and ß, have uppercase letters in ASCII.
 */
export function normalisedCrockford(text: string): string {
  return text.replaceAll('-', '').toUpperCase().replaceAll('O', '0').replace(/[IL]/g, '1');
}
