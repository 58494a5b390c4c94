import { hash } from 'node:crypto';
import { type Bytes, bufferOf, isSame, Slice } from '../core/slice.ts';
import { IdallocError } from '../errors.ts';
import { checkCorrelationId, checkSequence } from './request-checks.ts';
import type { RecordHeaders } from './request-headers.ts';
import { ADOPTION_HEADER, REPLAY_HEADER } from './request-position.ts';
import { STATEMENT_HEADER } from './sequence-entry.ts';

/**
 * The key of a ledger record that is not a marker:
 *
 *   01 | request ID                          IDs for a request
 *   02 | length (1) | sequence | request ID  numbers of a sequence for a request
 *   03 | sequence                            a statement: what the sequence is
 *
 * The request ID is its correlation ID if it has no other. So it is recognised within its sequence, and never meets
 * that of a request for IDs.
 */
export type LedgerKey =
  | { readonly kind: 'batch'; readonly requestId: Buffer }
  | { readonly kind: 'numbers'; readonly sequence: string; readonly requestId: Buffer }
  | { readonly kind: 'statement'; readonly sequence: string };

/** First byte of the key of an entry of IDs. */
export const LEDGER_KEY_VERSION = 1;
const NUMBERS = 2;
const STATEMENT = 3;

/** The record key of an entry of IDs: the version byte, then the request ID. */
export function encodeLedgerKey(requestId: Buffer): Buffer {
  const key = Buffer.allocUnsafe(1 + checkCorrelationId(requestId).length);
  key[0] = LEDGER_KEY_VERSION;
  key.set(requestId, 1);
  return key;
}

/**
 * The request ID (a view) in the key of an entry of IDs. Throws LEDGER_UNREADABLE for a key that workers don't write.
 */
export function decodeLedgerKey(key: Buffer): Buffer {
  if (key[0] === LEDGER_KEY_VERSION && key.length >= 2 && key.length <= 257) return key.subarray(1);
  throw new IdallocError(
    'LEDGER_UNREADABLE',
    `a ledger key of ${key.length} bytes starts with ${key[0] ?? 'nothing'}, not with version ${LEDGER_KEY_VERSION}: ` +
      'a newer release or another program wrote to the ledger topic',
  );
}

/**
 * A key that need not be bytes of its own: its first byte, and what follows that in other bytes. So the entry of a
 * request is looked up, and written, by the request ID where that was fetched.
 */
export class EntryKey implements Bytes {
  readonly version: number;
  readonly rest: Slice;
  #name: string | undefined;

  constructor(version: number, rest: Slice) {
    this.version = version;
    this.rest = rest;
  }

  static of(key: Buffer): EntryKey {
    return new EntryKey(key[0] ?? 0, new Slice(key, 1, key.length - 1));
  }

  /** The key of an entry of IDs for a request ID of 1 to 256 bytes. */
  static ofIds(requestId: Slice): EntryKey {
    return new EntryKey(LEDGER_KEY_VERSION, requestId);
  }

  get length(): number {
    return 1 + this.rest.length;
  }

  copy(target: Uint8Array, at: number): void {
    target[at] = this.version;
    this.rest.copy(target, at + 1);
  }

  equals(key: Uint8Array): boolean {
    const { bytes, at, length } = this.rest;
    return key.length === 1 + length && key[0] === this.version && isSame(key, 1, bytes, at, length);
  }

  /** A number of 31 bits, which equal keys share and others hardly ever. */
  get sketch(): number {
    const { bytes, at, length } = this.rest;
    let sketch = length;
    for (let i = Math.max(0, length - 8); i < length; i += 1)
      sketch = Math.imul(sketch ^ (bytes[at + i] as number), 16_777_619);
    return sketch >>> 1;
  }

  /** The key as a Buffer of its own. */
  toBuffer(): Buffer {
    return bufferOf(this);
  }

  /** The key as the key of a map: equal for equal keys. */
  get name(): string {
    this.#name ??= this.toBuffer().toString('latin1');
    return this.#name;
  }
}

export function encodeNumbersKey(sequence: string, requestId: Buffer): Buffer {
  const name = Buffer.from(checkSequence(sequence), 'latin1');
  return Buffer.concat([Buffer.of(NUMBERS, name.length), name, checkCorrelationId(requestId)]);
}

export function encodeStatementKey(sequence: string): Buffer {
  return Buffer.concat([Buffer.of(STATEMENT), Buffer.from(checkSequence(sequence), 'latin1')]);
}

/** Whether it is the key of a record of a sequence, as its first byte says. */
export function isOfSequence(key: Buffer): boolean {
  return key[0] === NUMBERS || key[0] === STATEMENT;
}

/** What a key says; byte fields are views. Throws LEDGER_UNREADABLE for a key that workers don't write. */
export function readLedgerKey(key: Buffer): LedgerKey {
  try {
    if (key[0] === STATEMENT) return { kind: 'statement', sequence: nameIn(key, 1, key.length) };
    if (key[0] === NUMBERS) {
      const end = 2 + (key[1] ?? 0);
      return { kind: 'numbers', sequence: nameIn(key, 2, end), requestId: checkCorrelationId(key.subarray(end)) };
    }
  } catch (error) {
    const message = `a ledger key of ${key.length} bytes is not that of a sequence: another program wrote to the ledger topic`;
    throw new IdallocError('LEDGER_UNREADABLE', message, { cause: error });
  }
  return { kind: 'batch', requestId: decodeLedgerKey(key) };
}

function nameIn(key: Buffer, from: number, to: number): string {
  if (to > key.length) throw new RangeError('the name is cut');
  return checkSequence(key.toString('latin1', from, to));
}

const NOTHING = Buffer.alloc(0);

/**
 * 16 bytes that identify one entry of the ledger after a restart: a hash over its key and value, over the header of a
 * statement, and over its offset and append time, since the markers that sample the brokers' clocks all have the same
 * key and value. Other headers say nothing of what is decided. No record has two of them: a statement of a sequence has
 * a key, one of a replay is a marker that says nothing else, and an adoption is a marker that does.
 */
export function digestEntry(entry: {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers?: RecordHeaders | undefined;
  readonly appendedAtMs: number;
}): Buffer {
  const key = entry.key ?? NOTHING;
  const value = entry.value ?? NOTHING;
  const head = Buffer.alloc(24);
  head.writeDoubleBE(entry.offset, 0);
  head.writeDoubleBE(entry.appendedAtMs, 8);
  head.writeUInt32BE(key.length, 16);
  head.writeUInt32BE(value.length, 20);
  const { [STATEMENT_HEADER]: stated, [REPLAY_HEADER]: replayed, [ADOPTION_HEADER]: adopted } = entry.headers ?? {};
  const header = stated ?? replayed ?? adopted;
  const said = typeof header === 'string' || Buffer.isBuffer(header) ? Buffer.from(header) : NOTHING;
  return hash('sha256', Buffer.concat([head, key, value, said]), 'buffer').subarray(0, 16);
}
