const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The longest JSON that is allowed in etcd, and in a header. */
const MAX_JSON_BYTES = 4096;

/**
 * Parses a JSON object that must have exactly the given keys, and may have the optional ones. Throws SyntaxError,
 * TypeError or RangeError with the reason.
 */
export function parseExactObject(
  bytes: Buffer,
  keys: readonly string[],
  optional: readonly string[] = [],
): Readonly<Record<string, unknown>> {
  return requireExactObject(parseBounded(bytes, MAX_JSON_BYTES), keys, optional);
}

/** The value as an object with exactly these keys, besides optional ones. Throws TypeError for any other value. */
export function requireExactObject(
  value: unknown,
  keys: readonly string[],
  optional: readonly string[] = [],
): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new TypeError('not a JSON object');
  const missing = keys.filter((key) => !Object.hasOwn(value, key));
  const unknown = Object.keys(value).filter((key) => !keys.includes(key) && !optional.includes(key));
  if (missing.length > 0) throw new TypeError(`it lacks ${missing.join(', ')}`);
  if (unknown.length > 0) throw new TypeError(`it has the unknown field ${unknown.slice(0, 3).join(', ')}`);
  return value as Readonly<Record<string, unknown>>;
}

/** The field as an integer of at least `min`. Throws TypeError for any other value. */
export function requireInteger(object: Readonly<Record<string, unknown>>, field: string, min: number): number {
  const value = object[field];
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min) return value;
  throw new TypeError(`${field} is not an integer of at least ${min}`);
}

/** The field as true or false. Throws TypeError for any other value. */
export function requireFlag(object: Readonly<Record<string, unknown>>, field: string): boolean {
  const value = object[field];
  if (typeof value === 'boolean') return value;
  throw new TypeError(`${field} is neither true nor false`);
}

/** The field as a string that matches the pattern. Throws TypeError for any other value. */
export function requireText(object: Readonly<Record<string, unknown>>, field: string, pattern: RegExp): string {
  const value = object[field];
  if (typeof value === 'string' && pattern.test(value)) return value;
  throw new TypeError(`${field} is not a string of the form ${pattern.source}`);
}

/** Parses JSON of at most so many bytes. Throws SyntaxError, TypeError or RangeError with the reason. */
export function parseBounded(bytes: Buffer, maxBytes: number): unknown {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes; at most ${maxBytes} are allowed`);
  return JSON.parse(utf8.decode(bytes));
}
