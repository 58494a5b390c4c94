import { FF1 } from '@noble/ciphers/ff1.js';
import { hkdf } from '@noble/hashes/hkdf.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { hexToBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { IdallocError } from '../../errors.ts';

/** A permutation of the texts of one length over the digits 0 to radix-1. */
export interface Permutation {
  encrypt(digits: number[]): number[];
  decrypt(digits: number[]): number[];
}

/** The forms that need a key. */
type KeyedFormName = 'uuid4' | 'number';

const LINE = /^([1-9]):([0-9a-f]{64})$/i;
const KEY_BYTES = 32;

/** One numbered key. Its bytes are not accessible from outside. */
export class FormKey {
  readonly number: number;
  readonly #secret: Uint8Array;
  readonly #permutations = new Map<string, Permutation>();

  constructor(number: number, secret: Uint8Array) {
    this.number = number;
    this.#secret = secret;
  }

  /**
   * The permutation of a form: FF1 of NIST SP 800-38G, without a tweak, with AES-256. Its key is HKDF-SHA-256 (RFC
   * 5869) of this one, without salt and with the info `idalloc form NAME`, so that every form has its own.
   */
  permutation(form: KeyedFormName, radix: number): Permutation {
    const known = this.#permutations.get(form);
    if (known !== undefined) return known;
    const key = hkdf(sha256, this.#secret, undefined, utf8ToBytes(`idalloc form ${form}`), KEY_BYTES);
    const made = FF1(radix, key);
    this.#permutations.set(form, made);
    return made;
  }
}

/** The keys of the keyed forms. They never appear in JSON or logs. */
export class FormKeys {
  /** The one that `format` uses. */
  readonly writing: FormKey;
  /** All that `parse` uses. */
  readonly all: readonly FormKey[];

  constructor(writing: FormKey, others: readonly FormKey[]) {
    this.writing = writing;
    this.all = [writing, ...others];
  }
}

/**
 * Parses lines of number:key, with a number from 1 to 9 and a key of 64 hexadecimal digits. `format` uses the first
 * key, `parse` all of them. Empty lines and those that start with # are ignored.
 *
 * @throws RangeError that names the first invalid line, but never a key.
 */
export function parseFormKeys(text: string): FormKeys {
  const found = new Map<number, FormKey>();
  const secrets = new Set<string>();
  for (const [at, line] of text.split('\n').entries()) {
    const entry = line.trim();
    if (entry === '' || entry.startsWith('#')) continue;
    const refuse = (what: string) => new RangeError(`line ${at + 1} ${what}`);
    const [, digit, secret] = LINE.exec(entry) ?? [];
    if (digit === undefined || secret === undefined) {
      throw refuse('must be number:key, with a number from 1 to 9 and a key of 64 hexadecimal digits');
    }
    const number = Number(digit);
    if (found.has(number)) throw refuse(`repeats the number ${number}`);
    if (secrets.has(secret.toLowerCase())) throw refuse('has the key of another number');
    secrets.add(secret.toLowerCase());
    found.set(number, new FormKey(number, hexToBytes(secret)));
  }
  const [writing, ...others] = found.values();
  if (writing === undefined) throw new RangeError('has no line of number:key');
  return new FormKeys(writing, others);
}

/**
 * The keys of `format` and `parse` from the text of FORM_KEY: one number:key per line; `format` uses the first.
 *
 * @throws IdallocError CONFIG_INVALID that names the invalid line, but never a key.
 */
export function formKeys(text: string): FormKeys {
  try {
    return parseFormKeys(text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new IdallocError('CONFIG_INVALID', `the form keys: ${error.message}`, { cause: error });
  }
}
