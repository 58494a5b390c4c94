import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { replyTopicViolation } from '../../src/codec/reply-policy.ts';
import { POLICY } from '../support/memory-worker.ts';

describe('the allow-list of reply topics', () => {
  it.each(['id.replies.a', 'id.replies.orders-1_x', `id.replies.${'a'.repeat(238)}`, 'id.requests.reply'])(
    'allows %s',
    (topic) => expect(replyTopicViolation(topic, POLICY)).toBeUndefined(),
  );

  it.each([
    ['', 'legal'],
    ['.', 'legal'],
    ['..', 'legal'],
    ['id.replies.a b', 'legal'],
    ['id.replies.a\n', 'legal'],
    ['id.replies.ä', 'legal'],
    [`id.replies.${'a'.repeat(239)}`, 'legal'],
    ['__transaction_state', 'internal'],
    ['id.requests', 'belongs to the allocator'],
    ['id.replies.ledger', 'belongs to the allocator'],
    ['id.replies.', 'is not allowed'],
    ['id.repliesx', 'is not allowed'],
    ['xid.replies.a', 'is not allowed'],
    ['id.requests.reply.x', 'is not allowed'],
    ['other.reply', 'is not allowed'],
  ])('rejects %j: %s', (topic, why) => expect(replyTopicViolation(topic, POLICY)).toContain(why));

  it('rejects internal topics whatever the prefix is', () => {
    expect(replyTopicViolation('__consumer_offsets', { ...POLICY, prefix: '__' })).toContain('internal');
  });

  it('allows topics under the prefix and the topic of NestJS, and no others', () => {
    const allowed = /^id\.replies\.[A-Za-z0-9._-]+$|^id\.requests\.reply$/;
    const suffix = fc.oneof(fc.string(), fc.stringMatching(/^[a-z.]{0,20}$/));
    const prefix = fc.constantFrom('', 'id.replies.', 'id.requests.reply', 'id.');
    fc.assert(
      fc.property(prefix, suffix, (start, rest) => {
        const topic = start + rest;
        const may = replyTopicViolation(topic, POLICY) === undefined;
        expect(may).toBe(allowed.test(topic) && !POLICY.ownTopics.includes(topic));
      }),
    );
  });
});
