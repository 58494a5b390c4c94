import { expect, test } from 'vitest';
import { describeError, IdallocError } from '../src/errors.ts';

test.each<[unknown, string]>([
  [new IdallocError('NOT_FOUND', 'no such ID'), 'NOT_FOUND: no such ID'],
  [new Error('error:0A000086:certificate verify failed\n'), 'error:0A000086:certificate verify failed'],
  [new Error('Last error: connect ECONNREFUSED. Resolution note: '), 'Last error: connect ECONNREFUSED'],
  [new Error('No addresses. Resolution note: ENOTFOUND'), 'No addresses. Resolution note: ENOTFOUND'],
  ['a text', 'a text'],
])('%s is described without what libraries leave at the end', (thrown, text) => {
  expect(describeError(thrown)).toBe(text);
});
