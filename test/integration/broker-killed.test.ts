import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ClusterScene, firstDecision, PARTITIONS } from '../support/cluster-scene.ts';
import { KafkaCluster } from '../support/kafka-cluster.ts';
import { Load } from '../support/load.ts';
import { report } from '../support/whole-history.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

const ANSWERED = 200;
const noKafka = whyNoProcesses('kafka');
let cluster: KafkaCluster;

beforeAll(async () => {
  if (noKafka === undefined) cluster = await KafkaCluster.start();
});

afterAll(() => cluster?.[Symbol.asyncDispose]());

describe.skipIf(noKafka !== undefined)(`three brokers${noKafka === undefined ? '' : `: ${noKafka}`}`, () => {
  test('after kill -9 of a broker that leads ledger partitions under load the worker continues, with one batch per request', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { worker, replies, ledger } = scene;
    await worker.ready();
    const load = new Load(scene.realm, { partitions: PARTITIONS });
    try {
      await replies.replies(ANSWERED);
      await scene.allInSync();
      const led = [...(await scene.places(scene.realm.ledgerTopic))].filter(([, { leader }]) => leader === 2);
      const partitions = new Set(led.map(([partition]) => partition));
      expect(partitions.size).toBeGreaterThan(0);
      await cluster.kill(2);
      const ms = await firstDecision(ledger, partitions, Date.now());
      await report(annotate, `${ms} ms from kill -9 of a leader to the next decision in its partitions`);
      await replies.replies(load.requests.length);
    } finally {
      await load.stop();
      await cluster.startNode(2);
    }
    await report(annotate, `a leader killed: ${JSON.stringify(await scene.history(load.requests))}`);
    await expect.poll(() => worker.gate()).toBe('open');
  });
});
