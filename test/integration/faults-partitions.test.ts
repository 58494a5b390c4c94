import { expect, test } from 'vitest';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 2;
const FATAL_LEVEL = 60;

function whyEnded({ lines }: WorkerProcess): unknown {
  return lines.find(({ level }) => level === FATAL_LEVEL)?.msg;
}

test('after a partition was added to the request topic alone, no worker starts, and a running one names that and serves on', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const [staying, leaving] = [realm.worker(), realm.worker()];
  await Promise.all([staying, leaving].map((worker) => worker.hasPartitions(1)));
  await realm.admin.createPartitions({ topicPartitions: [{ topic: realm.requestTopic, count: PARTITIONS + 1 }] });

  const refused = realm.worker();
  expect((await refused.ended()).code).toBe(1);
  expect(whyEnded(refused)).toMatch(/TOPIC_INVALID/);

  await leaving.stop();
  await staying.hasPartitions(PARTITIONS);
  await expect
    .poll(async () => (await staying.ops('/readyz')).text(), { timeout: 20_000 })
    .toMatch(/^{"status":"ready","warning":"TOPIC_INVALID".*has 3 partitions instead of 2/);
  const replies = await realm.follow();
  await realm.send([{ correlationId: 'served-on', count: 1, partition: 0 }]);
  expect((await replies.reply('served-on')).reply).toHaveProperty('batch');
});
