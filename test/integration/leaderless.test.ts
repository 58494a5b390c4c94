import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { ClusterScene, PARTITIONS, UNTIL } from '../support/cluster-scene.ts';
import { type DecodedReply, decodeReply, type Seen } from '../support/followed.ts';
import { idFor } from '../support/home.ts';
import { KafkaCluster } from '../support/kafka-cluster.ts';
import type { TestRequest } from '../support/realm.ts';
import { report } from '../support/whole-history.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

const ASKS = 20;
const ERROR_LEVEL = 50;
const UNCLEAN = 'unclean.leader.election.enable';
const appendedMs = (one: Seen | undefined) => Number(one?.message.timestamp);
const bytesOf = ({ seen }: DecodedReply) => seen.message.value?.toString('hex');
const noKafka = whyNoProcesses('kafka');
let cluster: KafkaCluster;

beforeAll(async () => {
  if (noKafka === undefined) cluster = await KafkaCluster.start();
});

afterAll(() => cluster?.[Symbol.asyncDispose]());

describe.skipIf(noKafka !== undefined)(`three brokers${noKafka === undefined ? '' : `: ${noKafka}`}`, () => {
  test('a known request waits while the ledger partition of its entry has no leader, and then gets its batch', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { realm, worker, replies } = scene;
    const [known, other] = [0, 1].map((at) => ({ correlationId: idFor('known', at, PARTITIONS), count: 3 })) as [
      TestRequest,
      TestRequest,
    ];
    await worker.ready();
    await realm.send([known, other]);
    const first = await replies.reply(known.correlationId);
    await scene.allInSync();
    const partitionAssignment = [{ partition: 0, replicas: [2] }];
    await realm.admin.alterPartitionReassignments({ topics: [{ topic: realm.ledgerTopic, partitionAssignment }] });
    const leader = async () => (await scene.places(realm.ledgerTopic)).get(0);
    await expect.poll(leader, UNTIL).toMatchObject({ leader: 2, isr: [2] });
    // With two, it would have no leader after a crash.
    await realm.setTopicConfig(realm.ledgerTopic, 'min.insync.replicas', '1');
    const from = worker.lines.length;
    await cluster.kill(2);
    let backMs = 0;
    try {
      await realm.send([known, other]);
      await worker.line(({ partition, error }) => partition === 0 && /no broker leads/.test(String(error)), from);
      expect((await replies.reply(other.correlationId, 1)).replayed).toBe(true);
      expect(replies.seen.filter(({ message }) => String(message.key) === known.correlationId)).toHaveLength(1);
      backMs = performance.now();
    } finally {
      await cluster.startNode(2);
    }
    const again = await replies.reply(known.correlationId, 1);
    await report(
      annotate,
      `a known request was answered ${Math.round(again.seen.atMs - backMs)} ms from its leader's start`,
    );
    expect(again.replayed).toBe(true);
    expect(bytesOf(again)).toBe(bytesOf(first));
  });

  test('a reply topic without a leader fails alone: others get replies meanwhile, and it gets its replies once it is back', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster);
    const { realm, worker, replies } = scene;
    const letters = await realm.follow(realm.deadLetterTopic);
    const lonely = `${realm.env.REPLY_TOPIC_PREFIX}lonely`;
    await realm.createTopic(lonely, { on: 3 });
    // Replies and letters have the time at which a broker appended them; the consumers of this test may be late.
    for (const topic of [realm.replyTopic, realm.deadLetterTopic])
      await realm.setTopicConfig(topic, 'message.timestamp.type', 'LogAppendTime');
    const idOf = (name: string, partition: number) => idFor(name, partition, PARTITIONS);
    const ask = (name: string, partition: number, replyTopic = realm.replyTopic) => {
      return { correlationId: idOf(name, partition), count: 2, replyTopic };
    };
    await worker.ready();
    await realm.send([ask('before', 0, lonely)]);
    await expect.poll(() => realm.records(lonely), UNTIL).toBe(1);
    await scene.allInSync();
    await cluster.kill(3);
    try {
      const leaders = async () => [...(await scene.places(realm.ledgerTopic)).values()].map(({ isr }) => isr.length);
      await expect.poll(leaders, UNTIL).toEqual([2, 2, 2]);
      for (const round of [0, 1]) {
        const begunMs = performance.now();
        await realm.send([ask(`lonely-${round}`, 0, lonely), ...[0, 1, 2].map((p) => ask(`well-${round}-${p}`, p))]);
        const wellReplies = await Promise.all([0, 1, 2].map((p) => replies.reply(idOf(`well-${round}-${p}`, p))));
        const letterOf = () => letters.seen.find(({ message }) => String(message.key) === idOf(`lonely-${round}`, 0));
        await letters.until('a dead letter', () => letterOf() !== undefined);
        const letter = letterOf();
        expect(String(letter?.message.headers?.['kafka_dlt-exception-fqcn'])).toBe('REPLY_UNDELIVERABLE');
        expect(String(letter?.message.headers?.['kafka_dlt-exception-message'])).toContain('no leader');
        const [own = 0, ...others] = wellReplies.map(({ seen }) => Math.round(seen.atMs - begunMs));
        const letterMs = Math.round((letter?.atMs ?? 0) - begunMs);
        await report(
          annotate,
          `leaderless reply topic, round ${round}: given up after ${letterMs} ms; other topics got replies after ${own} ms in its partition, after ${others} ms in other partitions`,
        );
        // In the first round the worker waits for the leader; later it gives up immediately, and delays nothing.
        if (round === 0) for (const { seen } of wellReplies) expect(appendedMs(seen)).toBeLessThan(appendedMs(letter));
      }
    } finally {
      await cluster.startNode(3);
    }
    const takesAgain = async () => {
      await realm.send([ask('lonely-0', 0, lonely)]);
      return realm.records(lonely);
    };
    await expect.poll(takesAgain, { ...UNTIL, interval: 500 }).toBeGreaterThan(1);
    const { reply } = await (await realm.follow(lonely)).reply(idOf('lonely-0', 0));
    expect('batch' in reply && expandIds(reply.batch)).toHaveLength(2);
    expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  });

  test('a ledger truncated by an unclean election is restored: decisions that it still has are replied again, no ID twice', async ({
    annotate,
  }) => {
    await using scene = await ClusterScene.on(cluster, { partitions: 1, env: { ALLOW_WEAK_LEDGER: '1' } });
    const { realm, worker, replies } = scene;
    const asks = (name: string) =>
      Array.from({ length: ASKS }, (_, i) => ({ correlationId: `${name}-${i}`, count: 3 }));
    const answered = async (name: string, nth = 0) => {
      await realm.send(asks(name));
      return Promise.all(asks(name).map(({ correlationId }) => replies.reply(correlationId, nth)));
    };
    const inSync = async () => (await scene.places(realm.ledgerTopic)).get(0)?.isr.toSorted();
    const becomes = (isr: readonly number[]) => expect.poll(inSync, UNTIL).toEqual(isr);
    const partitionAssignment = [{ partition: 0, replicas: [2, 3] }];
    await realm.admin.alterPartitionReassignments({ topics: [{ topic: realm.ledgerTopic, partitionAssignment }] });
    await becomes([2, 3]);
    await realm.setTopicConfig(realm.ledgerTopic, 'min.insync.replicas', '1');
    await worker.ready();
    await realm.setTopicConfig(realm.ledgerTopic, UNCLEAN, 'true');

    await answered('kept');
    await cluster.kill(3);
    await becomes([2]);
    await answered('lost');
    await cluster.kill(2);
    const from = worker.lines.length;
    await cluster.startNode(3);
    const begunMs = performance.now();
    await answered('after');
    const afterMs = Math.round(performance.now() - begunMs);
    const { cause } = await worker.line(({ msg }) => msg === 'restoring a ledger partition from the log', from);
    await cluster.startNode(2);
    await answered('kept', 1);
    await answered('lost', 1);
    await answered('end'); // so that all earlier requests of the one partition have replies
    await report(
      annotate,
      `a truncated ledger: ${cause}; new requests answered ${afterMs} ms after the stale leader came`,
    );

    const batches = (name: string) => {
      const replies = seen.filter(({ message }) => String(message.key).startsWith(`${name}-`)).map(decodeReply);
      return [...new Map(replies.map((one) => [bytesOf(one), one])).values()];
    };
    const { seen } = scene.replies;
    for (const name of ['kept', 'after', 'end']) expect(batches(name), name).toHaveLength(ASKS);
    const all = ['kept', 'lost', 'after', 'end'].flatMap(batches);
    const ids = all.flatMap(({ reply }) => ('batch' in reply ? expandIds(reply.batch) : []));
    expect(new Set(ids).size).toBe(ids.length);
    const errors = all.flatMap(({ reply }) => ('error' in reply ? [reply.error.code] : []));
    expect(new Set(errors).difference(new Set(['FORGOTTEN']))).toEqual(new Set());
    await report(annotate, `of ${ASKS} lost decisions ${errors.length} are forgotten; all ${ASKS} kept ones stand`);
  });
});
