import { expect, test } from 'vitest';
import { IdAllocEnvironment } from '../../src/testcontainers/index.ts';

test.each([
  ['orders.replies', /^withReplyTopic: .*name one that begins with id\.replies\./],
  ['id.requests', /belongs to the allocator itself/],
  ['id replies', /not a legal topic name/],
])('rejects the reply topic %s before any container starts', async (topic, message) => {
  const start = new IdAllocEnvironment().withReplyTopic(topic).start();
  await expect(start).rejects.toMatchObject({ code: 'INVALID_REPLY_TOPIC', message: expect.stringMatching(message) });
});

test("checks the reply topic against the workers' prefix", async () => {
  const start = new IdAllocEnvironment()
    .withReplyTopic('id.replies.test')
    .withWorkerEnvironment({ REPLY_TOPIC_PREFIX: 'answers.' })
    .start();
  await expect(start).rejects.toMatchObject({ message: expect.stringMatching(/begins with answers\./) });
});
