import { expect, test } from 'vitest';
import { encodeIdRequest } from '../../../src/codec/id-request.ts';
import { REPLIES, Topics } from './history.ts';

function forNumbers(id: string, sequence: string, count: number): Buffer {
  return encodeIdRequest({ count, correlationId: Buffer.from(id), replyTopic: REPLIES, sequence });
}

test('requests without a decision are summed by sequence and reply topic, each ID once', () => {
  const topics = new Topics();
  topics.serve('decided');
  topics.ask('a', { count: 3 });
  topics.ask('a', { count: 3 });
  topics.ask('b', { count: 4, replyTopic: 'id.replies.other' });
  topics.ask('c', { count: 5 });
  topics.ask('junk', { value: Buffer.from('junk') });
  for (const id of ['a', 'n1', 'n2']) topics.ask(id, { value: forNumbers(id, 'invoices', 2) });
  const key = (one: { readonly replyTopic: string; readonly sequence: string | undefined }) =>
    `${one.replyTopic} ${one.sequence ?? 'IDs'}`;
  const sums = topics.undecided().map((one) => [key(one), one.requests, one.wanted]);
  expect(sums.toSorted()).toEqual([
    [`${REPLIES} IDs`, 2, 8],
    [`${REPLIES} invoices`, 3, 6],
    ['id.replies.other IDs', 1, 4],
  ]);
});
