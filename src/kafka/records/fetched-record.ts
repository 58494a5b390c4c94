import { isSame, Slice } from '../../core/slice.ts';
import { Cursor, damaged } from './cursor.ts';
import { type BatchHead, timestampOf } from './format.ts';
import type { FetchedRecord, Headers, HeaderValue, RecordFields } from './record.ts';

/**
 * Most of what is fetched is never looked at as objects: requests that follow each other have the same headers and the
 * same value but for one ID, and entries of the ledger are indexed by their keys. So a record is checked when its batch
 * is decoded, but not taken apart. It remembers where its fields are, and a field becomes a view or an object when it
 * is asked for.
 *
 * The names of its headers are shared with the record before it if they are the same, in the same order. So two records
 * are compared, value by value, without a look at names.
 */

/**
 * If a record has more headers, only the first KEPT_HEADERS are read, and one is added with the number of dropped ones.
 */
export const MAX_HEADERS = 1_000;
/** Leaves room for the headers that a dead letter adds, so that it is not cut again when it is read. */
const KEPT_HEADERS = 900;
export const HEADERS_CUT = 'idalloc-headers-cut';

/** The names of a record's headers, in order, and how many headers were left out. */
interface KnownNames {
  readonly texts: readonly string[];
  /** Each name as it is in the record: its bytes, behind their length. */
  readonly sized: readonly Buffer[];
  readonly leftOut: number;
}

/** Those of the last record that was read: the next one mostly has the same, in whatever batch it is. */
let lastNames: KnownNames = { texts: [], sized: [], leftOut: 0 };

type MutableHeaders = Record<string, HeaderValue | HeaderValue[]>;

/**
 * Headers inherit nothing, so that only names that were sent exist. Instances of a class are smaller than
 * null-prototype objects.
 */
class NullPrototype {}
Object.setPrototypeOf(NullPrototype.prototype, null);
Reflect.deleteProperty(NullPrototype.prototype, 'constructor');

export function newHeaders(): MutableHeaders {
  return new NullPrototype() as MutableHeaders;
}

/**
 * Reads the records of a batch, one after another.
 *
 * Record: length varint, attributes int8, timestamp delta varlong, offset delta varint, key bytes, value bytes,
 * headers; bytes: length varint, -1 for null; headers: count varint, then name and value as bytes.
 */
export class RecordReader {
  readonly #head: BatchHead;
  readonly #cursor: Cursor;
  /** The headers of the last record, without those that were left out. */
  headers = 0;
  readonly #longest: number;
  #isInUse = false;

  /** `body`: the records of the batch, decompressed. Of a record of more than `longest` bytes only these are known. */
  constructor(head: BatchHead, body: Buffer, longest = Number.POSITIVE_INFINITY) {
    this.#head = head;
    this.#cursor = new Cursor(body);
    this.#longest = longest;
  }

  /** Whether a record is a view of the body. */
  get isInUse(): boolean {
    return this.#isInUse;
  }

  /** Whether the last record of the body has been read. */
  get isAtEnd(): boolean {
    return this.#cursor.at === this.#cursor.length;
  }

  /** Throws UnreadableBatch for bytes that are not a record. */
  next(): FetchedRecord {
    const cursor = this.#cursor;
    const length = cursor.varint();
    const end = cursor.at + length;
    if (length < 0 || end > cursor.length) throw damaged();
    cursor.byte(); // attributes, still unused
    const timestampMs = timestampOf(this.#head, cursor.varlong());
    const offset = this.#head.baseOffset + cursor.varint();
    const keyAt = cursor.at;
    cursor.skipSized();
    const valueAt = cursor.at;
    cursor.skipSized();
    const count = cursor.varint();
    const headersAt = cursor.at;
    const names = this.#readNames(count);
    if (names.leftOut > 0 ? cursor.at > end : cursor.at !== end) throw damaged();
    const isLeftOut = length > this.#longest;
    this.#isInUse ||= !isLeftOut;
    cursor.at = end;
    if (isLeftOut) return leftOut(length, this.#head.isDense, offset, timestampMs);
    return new RecordInBatch(
      cursor.bytes,
      { keyAt, valueAt, headersAt },
      names,
      this.#head.isDense,
      offset,
      timestampMs,
      length,
    );
  }

  #readNames(count: number): KnownNames {
    const cursor = this.#cursor;
    if (count < 0) throw damaged();
    const kept = count > MAX_HEADERS ? KEPT_HEADERS : count;
    this.headers = kept;
    const known = lastNames;
    if (count === kept && known.leftOut === 0 && known.texts.length === kept) {
      const first = cursor.at;
      let i = 0;
      while (i < kept && cursor.skip(known.sized[i] as Buffer)) {
        cursor.skipSized();
        i += 1;
      }
      if (i === kept) return known;
      cursor.at = first;
    }
    const [texts, sized]: [string[], Buffer[]] = [[], []];
    for (let i = 0; i < kept; i += 1) {
      const start = cursor.at;
      texts.push(cursor.sized()?.toString('utf8') ?? '');
      sized.push(Buffer.from(cursor.since(start)));
      cursor.skipSized();
    }
    lastNames = { texts, sized, leftOut: count - kept };
    return lastNames;
  }
}

/** A record of which only its length is known. */
function leftOut(bytes: number, isDense: boolean, offset: number, timestampMs: number): FetchedRecord {
  const fields = { bytes, isLike: () => false, isOfBatch: () => false, headerAt: () => undefined };
  return { offset, timestampMs, isDense, key: null, value: null, headers: newHeaders(), fields };
}

/** A record within its batch. */
class RecordInBatch implements FetchedRecord, RecordFields {
  readonly offset: number;
  readonly timestampMs: number;
  readonly isDense: boolean;
  readonly bytes: number;
  readonly #bytes: Buffer;
  readonly #names: KnownNames;
  /** Where the key begins, with its length; the value, the headers behind it, and the first name follow each other. */
  readonly #keyAt: number;
  readonly #valueAt: number;
  readonly #headersAt: number;
  #headers: Headers | undefined;

  constructor(
    bytes: Buffer,
    at: { readonly keyAt: number; readonly valueAt: number; readonly headersAt: number },
    names: KnownNames,
    isDense: boolean,
    offset: number,
    timestampMs: number,
    length: number,
  ) {
    this.offset = offset;
    this.timestampMs = timestampMs;
    this.isDense = isDense;
    this.bytes = length;
    this.#bytes = bytes;
    this.#names = names;
    this.#keyAt = at.keyAt;
    this.#valueAt = at.valueAt;
    this.#headersAt = at.headersAt;
  }
  get fields(): RecordFields {
    return this;
  }

  get key(): Buffer | null {
    return sizedAt(this.#bytes, this.#keyAt);
  }

  get value(): Buffer | null {
    return sizedAt(this.#bytes, this.#valueAt);
  }

  get headers(): Headers {
    this.#headers ??= this.#readHeaders();
    return this.#headers;
  }

  detached(): FetchedRecord {
    const from = this.#keyAt;
    let end = this.#headersAt;
    for (const { length } of this.#names.sized) end = endOfSized(this.#bytes, end + length);
    const at = { keyAt: 0, valueAt: this.#valueAt - from, headersAt: this.#headersAt - from };
    const bytes = Buffer.from(this.#bytes.subarray(from, end));
    return new RecordInBatch(bytes, at, this.#names, this.isDense, this.offset, this.timestampMs, this.bytes);
  }

  isLike(other: RecordInBatch, except: string): boolean {
    const [bytes, theirs] = [this.#bytes, other.#bytes];
    const { texts, sized } = this.#names;
    if (other.#names !== this.#names || this.#names.leftOut > 0) return false;
    // What is compared begins with the length of the value, and ends with the number of headers.
    const fixed = this.#headersAt - this.#valueAt;
    if (fixed !== other.#headersAt - other.#valueAt) return false;
    if (!isSame(bytes, this.#valueAt, theirs, other.#valueAt, fixed)) return false;
    let [at, theirAt] = [this.#headersAt, other.#headersAt];
    for (let i = 0; i < texts.length; i += 1) {
      at += (sized[i] as Buffer).length;
      theirAt += (sized[i] as Buffer).length;
      const [end, theirEnd] = [endOfSized(bytes, at), endOfSized(theirs, theirAt)];
      const isAny = texts[i] === except;
      if (!isAny && (end - at !== theirEnd - theirAt || !isSame(bytes, at, theirs, theirAt, end - at))) return false;
      [at, theirAt] = [end, theirEnd];
    }
    return true;
  }

  isOfBatch(other: object): boolean {
    return #bytes in other && other.#bytes === this.#bytes;
  }

  headerAt(name: string): Slice | undefined {
    const { texts, sized } = this.#names;
    let at = this.#headersAt;
    for (let i = 0; i < texts.length; i += 1) {
      at += (sized[i] as Buffer).length;
      const end = endOfSized(this.#bytes, at);
      if (texts[i] === name) {
        const length = lengthAt(this.#bytes, at);
        return length < 0 ? undefined : new Slice(this.#bytes, end - length, length);
      }
      at = end;
    }
    return undefined;
  }

  /** A repeated name gets a list of values. */
  #readHeaders(): Headers {
    const { texts, sized, leftOut } = this.#names;
    const headers = newHeaders();
    let at = this.#headersAt;
    texts.forEach((name, i) => {
      at += (sized[i] as Buffer).length;
      const value = sizedAt(this.#bytes, at);
      at = endOfSized(this.#bytes, at);
      const known = headers[name];
      if (known === undefined) headers[name] = value;
      else if (Array.isArray(known)) known.push(value);
      else headers[name] = [known, value];
    });
    if (leftOut > 0) headers[HEADERS_CUT] = Buffer.from(`${leftOut} of ${leftOut + texts.length} left out`);
    return headers;
  }
}

/** The length before bytes that were read before, and so are within their record; -1 for null. */
function lengthAt(bytes: Buffer, at: number): number {
  const first = bytes[at] as number;
  if (first < 0x80) return (first >>> 1) ^ -(first & 1);
  return new Cursor(bytes, at).varint();
}

function endOfSized(bytes: Buffer, at: number): number {
  const first = bytes[at] as number;
  if (first < 0x80) return at + 1 + Math.max(0, (first >>> 1) ^ -(first & 1));
  const cursor = new Cursor(bytes, at);
  cursor.skipSized();
  return cursor.at;
}

function sizedAt(bytes: Buffer, at: number): Buffer | null {
  return new Cursor(bytes, at).sized();
}
