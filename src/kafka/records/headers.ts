import type { Cursor } from './cursor.ts';
import { damaged } from './cursor.ts';
import type { Headers, HeaderValue } from './record.ts';

/**
 * If a record has more headers, only the first KEPT_HEADERS are read, and one is added with the number of dropped ones.
 */
export const MAX_HEADERS = 1_000;
/** Leaves room for the headers that a dead letter adds, so that it is not cut again when it is read. */
const KEPT_HEADERS = 900;
export const HEADERS_CUT = 'idalloc-headers-cut';

type MutableHeaders = Record<string, HeaderValue | HeaderValue[]>;

/** Longer names are not worth caching. */
const MAX_COMPARED_BYTES = 64;

/**
 * Inherits nothing, so that only names that were sent exist. Instances of a class are smaller than null-prototype
 * objects.
 */
class NullPrototype {}
Object.setPrototypeOf(NullPrototype.prototype, null);
Reflect.deleteProperty(NullPrototype.prototype, 'constructor');

export function newHeaders(): MutableHeaders {
  return new NullPrototype() as MutableHeaders;
}

/** Reads the headers of records, one record after the other. */
export class HeaderReader {
  readonly #cursor: Cursor;
  /** The name of the header at the same index of the previous record, which is usually the same. */
  readonly #names: KnownName[] = [];
  /** Headers of the last record that were read. */
  read = 0;
  isCut = false;

  constructor(cursor: Cursor) {
    this.#cursor = cursor;
  }

  /** A repeated name gets a list of values. */
  headers(): Headers {
    const headers = newHeaders();
    const count = this.#cursor.varint();
    if (count < 0) throw damaged();
    this.isCut = count > MAX_HEADERS;
    this.read = this.isCut ? KEPT_HEADERS : count;
    for (let i = 0; i < this.read; i += 1) {
      const name = this.#name(i);
      const value = this.#cursor.sized();
      const known = headers[name];
      if (known === undefined) headers[name] = value;
      else if (Array.isArray(known)) known.push(value);
      else headers[name] = [known, value];
    }
    if (this.isCut) headers[HEADERS_CUT] = Buffer.from(`${count - this.read} of ${count} left out`);
    return headers;
  }

  #name(i: number): string {
    const known = this.#names[i];
    if (known !== undefined && this.#cursor.skip(known.sized)) return known.text;
    const start = this.#cursor.at;
    const text = this.#cursor.sized()?.toString('utf8') ?? '';
    const sized = this.#cursor.since(start);
    if (sized.length <= MAX_COMPARED_BYTES) this.#names[i] = { sized, text };
    return text;
  }
}

/** A name as it is read, and its bytes with their length. */
interface KnownName {
  readonly text: string;
  readonly sized: Buffer;
}
