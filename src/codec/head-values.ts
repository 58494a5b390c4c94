import type { Statement } from '../core/sequence-row.ts';
import { describeError, IdallocError } from '../errors.ts';
import { decodeLedgerEntry, encodeLedgerEntry } from './ledger-entry.ts';
import { encodeStatementKey, readLedgerKey } from './ledger-key.ts';
import { checkStatement, type LedgerNumbers, type LedgerStatement, RENEWAL } from './sequence-entry.ts';
import { parseBounded, parseExactObject, requireExactObject, requireInteger, requireText } from './strict-json.ts';

/**
 * How far a partition of the ledger had gone, as etcd remembers it. Stored as JSON, one field for each of these:
 *
 *   {"end":42,"digest":"<32 hexadecimal digits>","through":17,"time":1700000000000,"life":0}
 */
export interface EndHead {
  /** The offset after the last entry that a worker had read back, at least 1. */
  readonly end: number;
  /** The digest of that entry, as digestEntry returns it. */
  readonly digest: Buffer;
  /** The highest request offset that was decided; -1 for none. */
  readonly through: number;
  /** When that entry was appended, by the broker's clock, in milliseconds. */
  readonly time: number;
  /** How many losses of the partition were stated: within one life its end only rises. */
  readonly life: number;
}

const FIELDS = ['end', 'digest', 'through', 'time', 'life'];
const DIGEST = /^[0-9a-f]{32}$/;

export function encodeEndHead({ end, digest, through, time, life }: EndHead): Buffer {
  return Buffer.from(JSON.stringify({ end, digest: digest.toString('hex'), through, time, life }));
}

export function isSameHead(one: EndHead, other: EndHead): boolean {
  return encodeEndHead(one).equals(encodeEndHead(other));
}

/** Decodes the value of a key. Throws NAMESPACE_DAMAGED if it is malformed: that must never count as "none yet". */
export function decodeEndHead(key: string, value: Buffer): EndHead {
  try {
    const object = parseExactObject(value, FIELDS);
    return {
      end: requireInteger(object, 'end', 1),
      digest: Buffer.from(requireText(object, 'digest', DIGEST), 'hex'),
      through: requireInteger(object, 'through', -1),
      time: requireInteger(object, 'time', 0),
      life: requireInteger(object, 'life', 0),
    };
  } catch (error) {
    throw new IdallocError(
      'NAMESPACE_DAMAGED',
      `${key} does not say how far a ledger partition had gone (${describeError(error)}): another program wrote it; ` +
        "'idalloc namespace adopt-cluster' writes it again from what the ledger has",
      { cause: error },
    );
  }
}

/**
 * What etcd remembers of the sequences of a ledger partition: UTF-8 JSON, strict.
 *
 *   pending          { "namespace", "through", "records": [numbers or order, …] }
 *   numbers          { "key", "value", "edition" }
 *   order            { "key", "value", "edition", "first" }
 *   sequences/NAME   { "next", "step", "max", "format", "closed", "edition" }
 *
 * `key` and `value` are the key and the value of the ledger record, in base64. The value has no place yet: its `end` is
 * 0, its `through` -1, and its `at` that of a renewal, or 0 in an order.
 */

/** What is known of a sequence behind its last draft. */
export type SequenceHead = Statement;

/** A decision for one request, which the log may not show yet. */
export interface PendingNumbers {
  readonly kind: 'numbers';
  readonly sequence: string;
  /** The key of the ledger record. */
  readonly key: Buffer;
  /** The edition of the definition under which it was drafted. */
  readonly edition: number;
  readonly entry: Omit<LedgerNumbers, 'end' | 'through' | 'at'>;
}

/** An operator's order, which the log may not show yet. */
export interface PendingOrder {
  readonly kind: 'order';
  readonly sequence: string;
  /** The next number before it; -1 where the log has no row of the sequence. */
  readonly first: number;
  readonly statement: Statement;
}

export type Pending = PendingNumbers | PendingOrder;

/** The value under `pending`. */
export interface PendingValue {
  /** The UUID of the namespace under which it was swapped in. */
  readonly namespace: string;
  /** The highest request offset of all that was ever drafted; -1 for none. */
  readonly through: number;
  /** Numbers come in the order in which the log gets them. */
  readonly records: readonly Pending[];
}

/** What etcd takes in one request by default. Less is written: see MAX_PENDING in `ledger/sequence-rule`. */
const MAX_PENDING_BYTES = 1_572_864;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const PENDING_KEYS = ['namespace', 'through', 'records'] as const;
const HEAD_KEYS = ['next', 'step', 'max', 'format', 'closed', 'edition'] as const;
const NUMBERS_KEYS = ['key', 'value', 'edition'] as const;
const ORDER_KEYS = [...NUMBERS_KEYS, 'first'] as const;
const NOWHERE = { end: 0, through: -1 } as const;

/** Throws RangeError if decodePending would reject it. */
export function encodePending({ namespace, through, records }: PendingValue): Buffer {
  return Buffer.from(JSON.stringify({ namespace, through, records: records.map(toWire) }));
}

/** `key` is etcd's, for the error. Throws NAMESPACE_DAMAGED for anything that encodePending does not write. */
export function decodePending(value: Buffer, key: string): PendingValue {
  return orDamaged(key, () => {
    const fields = requireExactObject(parseBounded(value, MAX_PENDING_BYTES), PENDING_KEYS);
    if (!Array.isArray(fields.records)) throw new TypeError('records is not a list');
    return {
      namespace: requireText(fields, 'namespace', UUID),
      through: requireInteger(fields, 'through', -1),
      records: fields.records.map(fromWire),
    };
  });
}

/** Throws RangeError if decodeSequenceHead would reject it. */
export function encodeSequenceHead(head: SequenceHead): Buffer {
  const { next, step, max, format, closed } = head;
  checkStatement(head);
  return Buffer.from(JSON.stringify({ next, step, max, format, closed, edition: checkEdition(head.edition) }));
}

/** `key` is etcd's, for the error. Throws NAMESPACE_DAMAGED for anything that encodeSequenceHead does not write. */
export function decodeSequenceHead(value: Buffer, key: string): SequenceHead {
  return orDamaged(key, () => {
    const fields = parseExactObject(value, HEAD_KEYS);
    const { format, closed } = fields;
    if (typeof format !== 'string' || typeof closed !== 'boolean') throw new TypeError('format or closed is wrong');
    const next = requireInteger(fields, 'next', 0);
    const [step, max] = [requireInteger(fields, 'step', 1), requireInteger(fields, 'max', 0)];
    const head = { next, step, max, format, closed, edition: requireInteger(fields, 'edition', 1) };
    checkStatement(head);
    return head;
  });
}

function toWire(pending: Pending): Readonly<Record<string, unknown>> {
  if (pending.kind === 'order') {
    const { sequence, first, statement } = pending;
    const value = encodeLedgerEntry(entryOf(statement));
    return { ...texts(encodeStatementKey(sequence), value), edition: checkEdition(statement.edition), first };
  }
  const value = encodeLedgerEntry({ ...pending.entry, ...NOWHERE, at: RENEWAL });
  return { ...texts(pending.key, value), edition: checkEdition(pending.edition) };
}

function fromWire(wire: unknown): Pending {
  const isOrder = typeof wire === 'object' && wire !== null && 'first' in wire;
  const fields = requireExactObject(wire, isOrder ? ORDER_KEYS : NUMBERS_KEYS);
  const [key, value] = [bytesOf(fields, 'key'), bytesOf(fields, 'value')];
  const known = readLedgerKey(key);
  const record = decodeLedgerEntry(value);
  if (isOrder && known.kind === 'statement' && record.kind === 'statement') {
    const { next, step, max, format, closed } = record;
    const statement = { next, step, max, format, closed, edition: requireInteger(fields, 'edition', 1) };
    return { kind: 'order', sequence: known.sequence, first: requireInteger(fields, 'first', -1), statement };
  }
  if (!isOrder && known.kind === 'numbers' && record.kind === 'numbers') {
    const { end, through, at, ...entry } = record;
    const edition = requireInteger(fields, 'edition', 1);
    return { kind: 'numbers', sequence: known.sequence, key, edition, entry };
  }
  throw new TypeError('a record is neither numbers nor an order');
}

function entryOf({ next, step, max, format, closed, edition }: Statement): LedgerStatement {
  const known = { next, step, max, format, closed, edition };
  return { kind: 'statement', ...NOWHERE, at: 0, ...known, first: undefined, isLoss: false };
}

/** What is swapped in has an edition, also of a sequence from before there were any. */
function checkEdition(edition: number): number {
  if (edition >= 1) return edition;
  throw new RangeError(`edition ${edition} is not swapped in: the first one is 1`);
}

function texts(key: Buffer, value: Buffer): { readonly key: string; readonly value: string } {
  return { key: key.toString('base64'), value: value.toString('base64') };
}

function bytesOf(fields: Readonly<Record<string, unknown>>, field: string): Buffer {
  return Buffer.from(requireText(fields, field, BASE64), 'base64');
}

function orDamaged<T>(key: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const message =
      `the value of ${key} in etcd can't be read (${describeError(error)}): another program or a newer release wrote it. ` +
      'Numbers of its ledger partition wait. If the ledger has lost nothing, delete the key: workers write it again from the ledger';
    throw new IdallocError('NAMESPACE_DAMAGED', message, { cause: error });
  }
}
