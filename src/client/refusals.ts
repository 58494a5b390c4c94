import { MAX_REQUEST_COUNT } from '../codec/request-checks.ts';
import { IdallocError } from '../errors.ts';

export function invalidCount(count: number): IdallocError {
  return new IdallocError('INVALID_COUNT', `count must be an integer from 1 to ${MAX_REQUEST_COUNT}, not ${count}`);
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
