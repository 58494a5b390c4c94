import { MAX_REQUEST_COUNT } from '../codec/request-checks.ts';
import { IdallocError } from '../errors.ts';

export function invalidCount(count: number): IdallocError {
  return new IdallocError('INVALID_COUNT', `count must be an integer from 1 to ${MAX_REQUEST_COUNT}, not ${count}`);
}

/** Wall milliseconds of an optional expiry. Throws MALFORMED_REQUEST for one that a request can't hold. */
export function expiryOf(expiresAt: Date | undefined): number | undefined {
  if (expiresAt === undefined) return undefined;
  const expiresAtMs = typeof expiresAt.getTime === 'function' ? expiresAt.getTime() : Number.NaN; // a Date of any realm
  if (expiresAtMs >= 0) return expiresAtMs;
  throw new IdallocError('MALFORMED_REQUEST', 'expiresAt must be a Date of 1970 or later');
}

export function clientClosed(): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client is closed');
}

export function reservedForWaiting(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'other callers wait for the next IDs: use takeAsync to queue for them');
}

export function noBuffer(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'there is no buffer (prefetch: false): use request()');
}
