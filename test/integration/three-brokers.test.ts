import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ClusterScene, firstDecision, lead, PARTITIONS, UNTIL } from '../support/cluster-scene.ts';
import { HttpLoad, RequestLoad } from '../support/continuous-load.ts';
import { KafkaCluster } from '../support/kafka-cluster.ts';
import { Load } from '../support/load.ts';
import { report } from '../support/whole-history.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

const ANSWERED = 200;
const noKafka = whyNoProcesses('kafka');
let cluster: KafkaCluster;

const zoneOf = (node: number) => `zone-${node}`;

beforeAll(async () => {
  const properties = (node: number) => ({
    'broker.rack': zoneOf(node),
    'replica.selector.class': 'org.apache.kafka.common.replica.RackAwareReplicaSelector',
  });
  if (noKafka === undefined) cluster = await KafkaCluster.start(properties);
});

afterAll(() => cluster?.[Symbol.asyncDispose]());

describe.skipIf(noKafka !== undefined)(`three brokers${noKafka === undefined ? '' : `: ${noKafka}`}`, () => {
  test('while the leader of ledger and witness is frozen under load, decisions continue and HTTP never stops', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { realm, worker, replies, ledger } = scene;
    // The controller can't be frozen, so another broker must lead the witness topic; it is then frozen.
    const placeWitness = async (replicas: number[]) => {
      const partitionAssignment = [{ partition: 0, replicas }];
      await realm.admin.alterPartitionReassignments({ topics: [{ topic: realm.witnessTopic, partitionAssignment }] });
      const inSync = async () => (await witness())?.isr.toSorted();
      await expect.poll(inSync, UNTIL).toEqual(replicas.toSorted());
    };
    const witness = async () => (await scene.places(realm.witnessTopic)).get(0);
    await placeWitness([2, 3]);
    const node = (await witness())?.leader === 2 ? 2 : 3;
    await placeWitness([node, 5 - node, 1]);
    await worker.ready();
    await using requests = await RequestLoad.start(realm, cluster.brokers);
    const http = new HttpLoad(await worker.api());
    const partitions = new Set<number>();
    let frozenMs = Number.NaN;
    let thawedMs = Number.NaN;
    try {
      await replies.replies(ANSWERED);
      await scene.allInSync();
      for (const [at, { leader }] of await scene.places(realm.ledgerTopic)) if (leader === node) partitions.add(at);
      expect(partitions.size).toBeGreaterThan(0);
      frozenMs = Date.now();
      cluster.freeze(node);
      await requests.answered(ANSWERED);
    } finally {
      thawedMs = Date.now();
      cluster.thaw(node);
      await http.stop();
      await requests.stop();
    }
    // The test's consumers may be stuck until the broker is back; append times in the ledger show when decisions were
    // made.
    const ms = await firstDecision(ledger, partitions, frozenMs);
    await report(annotate, `${ms} ms from SIGSTOP of a leader to the next decision in its partitions`);
    await report(annotate, `a leader frozen: no request waited longer than ${requests.longestMs} ms`);
    expect(frozenMs + ms).toBeLessThan(thawedMs);
    // A busy machine pauses the process, which then asks etcd first.
    expect(http.refused.filter((answer) => !answer.includes('PROCESS_PAUSED'))).toEqual([]);
    await report(
      annotate,
      `a leader frozen: ${http.answered} IDs over HTTP; ${JSON.stringify(await scene.history(requests.sent))}`,
    );
    await expect.poll(() => worker.gate()).toBe('open');
  });

  test('the client library loses no request while a leader moves, its broker is killed, and the broker is back at another address', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { realm, worker, replies } = scene;
    const topics = [realm.requestTopic, realm.replyTopic];
    await worker.ready();
    await lead(realm, { always: 3 }, topics);
    await using requests = await RequestLoad.start(realm, cluster.brokers);
    try {
      await requests.answered(ANSWERED);
      await lead(realm, { always: 2 }, topics);
      await requests.answered(ANSWERED);
      await report(annotate, `leaders moved: no request waited longer than ${requests.longestMs} ms`);
      await scene.allInSync();
      await cluster.kill(2);
      await requests.answered(ANSWERED);
      await report(annotate, `a leader killed: no request waited longer than ${requests.longestMs} ms`);
    } finally {
      await cluster.readdress(2);
      await cluster.startNode(2);
    }
    await lead(realm, { always: 2 }, topics);
    await requests.answered(ANSWERED);
    await requests.stop(); // which throws for a request that failed
    await replies.replies(requests.sent.length);
    await report(annotate, `a broker at another address: ${JSON.stringify(await scene.history(requests.sent))}`);
  });

  test('a standby reads the ledger from the broker in its zone, goes on when that is gone, and takes over what it read', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { realm, worker, replies } = scene;
    await worker.ready();
    await lead(realm, { never: 2 }, [realm.ledgerTopic]);
    const [owned] = worker.partitions();
    expect(owned).toBeDefined();
    const standby = scene.start({ WORKER_ZONE: zoneOf(2) });
    await standby.ready();
    await standby.line(({ msg, broker }) => msg === 'reading from a replica that is near' && broker === 2);
    const kept = async () => (await standby.metric('idalloc_ledger_lag_records{partition="0"}')) === 0;
    const load = new Load(realm, { partitions: PARTITIONS, burst: 6 });
    try {
      await replies.replies(ANSWERED);
      await cluster.kill(2);
      await replies.replies(2 * ANSWERED);
      worker.kill('SIGKILL');
      await worker.ended();
      await replies.replies(load.requests.length + ANSWERED);
    } finally {
      await load.stop();
      await cluster.startNode(2);
    }
    await expect.poll(kept, UNTIL).toBe(true);
    await report(
      annotate,
      `a standby in the zone of a killed broker: ${JSON.stringify(await scene.history(load.requests))}`,
    );
  });

  test('while two of three brokers are down nothing is decided or replied; nothing is lost, and all is answered after that', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { realm, worker, replies, ledger } = scene;
    await realm.setTopicConfig(realm.requestTopic, 'min.insync.replicas', '1'); // requests are sent through the outage
    await worker.ready();
    const load = new Load(realm, { partitions: PARTITIONS, burst: 6 }); // continues through the outage
    const dark = [0, 1, 2].map((partition) => ({ correlationId: `dark-${partition}`, count: 1, partition }));
    let backMs = 0;
    try {
      await replies.replies(ANSWERED);
      await scene.allInSync();
      await Promise.all([cluster.kill(2), cluster.kill(3)]);
      const alone = async () => [...(await scene.places(realm.ledgerTopic)).values()].map(({ isr }) => isr.join());
      await expect.poll(alone, UNTIL).toEqual(['1', '1', '1']);
      const from = worker.lines.length;
      await realm.send(dark);
      // A leader without enough replicas may not return its last entries: then a known request waits for its entry.
      await worker.line(
        ({ code, error }) =>
          code === 'LEDGER_UNANSWERED' || (code === 'APPEND_UNANSWERED' && /NOT_ENOUGH_REPLICAS/.test(String(error))),
        from,
      );
      expect(replies.seen.filter(({ message }) => String(message.key).startsWith('dark-'))).toEqual([]);
      backMs = Date.now();
    } finally {
      await Promise.all([cluster.startNode(2), cluster.startNode(3)]);
      await load.stop();
    }
    const ms = await firstDecision(ledger, new Set([0, 1, 2]), backMs);
    await report(annotate, `${ms} ms from the start of two brokers to the next decision`);
    const history = await scene.history([...load.requests, ...dark]);
    await report(annotate, `two of three brokers killed: ${JSON.stringify(history)}`);
    for (const { message } of ledger.seen.filter(({ message }) => String(message.key).includes('dark-'))) {
      expect(Number(message.timestamp)).toBeGreaterThan(backMs);
    }
  });
});
