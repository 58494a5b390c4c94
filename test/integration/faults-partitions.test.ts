import { expect, test } from 'vitest';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const PARTITIONS = 2;

test('after a partition was added to the request topic alone, running workers and one that starts name that, and serve it by its others', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const [staying, leaving] = [realm.worker(), realm.worker()];
  await Promise.all([staying, leaving].map((worker) => worker.hasPartitions(1)));
  await realm.admin.createPartitions({ topicPartitions: [{ topic: realm.requestTopic, count: PARTITIONS + 1 }] });

  await leaving.stop();
  const starting = realm.worker();
  await Promise.all([staying, starting].map((worker) => worker.hasPartitions(1)));
  for (const worker of [staying, starting]) {
    await expect
      .poll(async () => (await worker.ops('/readyz')).text(), { timeout: 20_000 })
      .toMatch(/^{"status":"ready","warning":"TOPIC_INVALID".*has 3 partitions instead of 2/);
  }
  const replies = await realm.follow();
  for (const partition of [0, 1, 2]) {
    await realm.send([{ correlationId: `served-on-${partition}`, count: 1, partition }]);
    expect((await replies.reply(`served-on-${partition}`)).reply).toHaveProperty('batch');
  }

  const { code, stdout } = await runIdalloc(['topics', 'check'], realm.env);
  expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^warning TOPIC_INVALID: .* has 3 /m) });
});
