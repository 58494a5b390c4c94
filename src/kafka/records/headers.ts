import type { Cursor } from './cursor.ts';
import type { Headers, HeaderValue } from './record.ts';
import { damaged } from './unreadable.ts';

/** A record with more headers has only the first few of them read, and one more that says how many were left out. */
export const MAX_HEADERS = 1_000;
/** Leaves room for what a dead letter adds, so that it is not cut again when it is read. */
const KEPT_HEADERS = 900;
export const HEADERS_CUT = 'idalloc-headers-cut';

type MutableHeaders = Record<string, HeaderValue | HeaderValue[]>;

/** Longer names are as well read anew. */
const MAX_COMPARED_BYTES = 64;

/** Nothing is inherited, so that no name is there before it was sent. Instances of a class are smaller than null objects. */
class NoNames {}
Object.setPrototypeOf(NoNames.prototype, null);
Reflect.deleteProperty(NoNames.prototype, 'constructor');

export function newHeaders(): MutableHeaders {
  return new NoNames() as MutableHeaders;
}

/** Reads the headers of records, one record after the other. */
export class HeaderReader {
  readonly #cursor: Cursor;
  /** Of the header in the same place of the record before, which mostly has the same name. */
  readonly #names: KnownName[] = [];
  /** Of the record read last. */
  read = 0;
  isCut = false;

  constructor(cursor: Cursor) {
    this.#cursor = cursor;
  }

  /** A name that comes again makes a list. */
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
