import { MAX_REQUEST_COUNT } from '../codec/id-request.ts';
import { IdallocError } from '../errors.ts';

export function notACount(count: number): IdallocError {
  return new IdallocError('INVALID_COUNT', `count must be an integer from 1 to ${MAX_REQUEST_COUNT}, not ${count}`);
}

export function closed(): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client is closed');
}

export function awaited(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'other callers wait for the next IDs: use takeAsync to queue for them');
}

export function unfilled(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'there is no buffer (prefetch: false): use request()');
}
