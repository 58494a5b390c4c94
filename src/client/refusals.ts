import { MAX_REQUEST_COUNT } from '../codec/id-request.ts';
import { IdallocError } from '../errors.ts';

export function notACount(count: number): IdallocError {
  return new IdallocError('INVALID_COUNT', `count ${count} is no whole number from 1 to ${MAX_REQUEST_COUNT}`);
}

export function closed(): IdallocError {
  return new IdallocError('CLIENT_CLOSED', 'the client was closed');
}

export function awaited(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'others wait for the next IDs: wait with them, by takeAsync');
}

export function unfilled(): IdallocError {
  return new IdallocError('BUFFER_EMPTY', 'the client was made with prefetch: false: ask by request()');
}
