import { Problem } from './problem.ts';

const MAX_ID = 2n ** 64n - 1n;
const MAX_KEY_LENGTH = 255;

/** What a request's query, path and headers say, before anybody has looked at it. */
type Raw = Readonly<Record<string, unknown>>;

/** `count` of a query, 1 without one. Throws 400 INVALID_COUNT, and 400 MALFORMED_REQUEST for any other parameter. */
export function countOf(query: Raw, maxCount: number): number {
  requireNoOthers(query, ['count']);
  const text = query.count;
  if (text === undefined) return 1;
  if (typeof text === 'string' && /^[1-9][0-9]{0,5}$/.test(text) && Number(text) <= maxCount) return Number(text);
  throw new Problem(400, `count must be given once, a whole number from 1 to ${maxCount}`, { code: 'INVALID_COUNT' });
}

/** Throws 400 MALFORMED_REQUEST for a parameter that is not one of `names`: a misspelled one must not go unnoticed. */
export function requireNoOthers(query: Raw, names: readonly string[]): void {
  const other = Object.keys(query).find((name) => !names.includes(name));
  if (other === undefined) return;
  const known = names.length === 0 ? 'there is none here' : `there is ${names.join(', ')}`;
  throw malformed(`unknown query parameter '${other.slice(0, 50)}': ${known}`);
}

/**
 * An ID from [0, 2^64) as people and programs write it: decimal, 16 hexadecimal digits, or up to 16 of them after 0x. Of
 * 16 digits that could be either, a leading zero or a letter makes them hexadecimal. Throws 400 MALFORMED_REQUEST.
 */
export function idOf(text: string): bigint {
  if (/^(0|[1-9][0-9]{0,19})$/.test(text) && BigInt(text) <= MAX_ID) return BigInt(text);
  if (/^0x[0-9a-f]{1,16}$/i.test(text)) return BigInt(text);
  if (/^[0-9a-f]{16}$/i.test(text)) return BigInt(`0x${text}`);
  throw malformed(`an ID is decimal from 0 to ${MAX_ID}, 16 hexadecimal digits, or up to 16 of them after 0x`);
}

/** The Idempotency-Key, as it is: opaque. Throws 400 MALFORMED_REQUEST for one that is empty or too long. */
export function idempotencyKeyOf(headers: Raw): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key === 'string' && key.length >= 1 && key.length <= MAX_KEY_LENGTH) return key;
  throw malformed(`Idempotency-Key must be given once, with 1 to ${MAX_KEY_LENGTH} characters`);
}

/** The POST takes no body; clients that always send one may send an empty JSON object. Throws 400 MALFORMED_REQUEST. */
export function requireEmpty(body: string): void {
  const text = body.trim();
  if (text !== '' && !/^\{\s*\}$/.test(text)) throw malformed('no body is expected here, or an empty JSON object: {}');
}

export function malformed(detail: string): Problem {
  return new Problem(400, detail, { code: 'MALFORMED_REQUEST' });
}
