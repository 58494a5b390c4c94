import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import { undecidedRequests } from '../../../src/cli/audit/audit-run.ts';
import { encodeIdRequest } from '../../../src/codec/id-request.ts';
import { loadKafkaConfig } from '../../../src/config/config.ts';
import { LoopStage } from '../../support/loop-stage.ts';
import { entry, layout } from '../../support/memory-records.ts';
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

test('requests of a range are compared with the whole ledger, as the topics have both', async () => {
  const loop = new LoopStage({ nodes: 1 });
  const config = loadKafkaConfig({ KAFKA_BROKERS: 'b:1', REQUEST_PARTITIONS: '1' });
  const { requests, ledger } = config.topics;
  const { cluster } = loop.kafka;
  for (const topic of [requests, ledger]) cluster.createTopic(topic, { partitions: 1, replicas: 1 });
  const asked = ['before', 'decided', 'refused', 'behind'].map((id) => {
    return { key: null, value: encodeIdRequest({ count: 3, correlationId: Buffer.from(id), replyTopic: REPLIES }) };
  });
  cluster.send(requests, 0, asked);
  cluster.send(ledger, 0, [entry('decided', { count: 3, requestOffset: 1 })]);
  const context = { stop: new AbortController().signal, err: () => undefined, terminal: { errors: false } };
  const source = { cluster: loop.cluster, runtime: loop.runtime };
  const session = { context, config, source, layout } as unknown as Parameters<typeof undecidedRequests>[0];
  const range = { partition: 0, from: 1, to: 3 };
  expect(await loop.runtime.until(undecidedRequests(session, [range], { tempDir: tmpdir() }))).toEqual([
    { sequence: undefined, replyTopic: REPLIES, requests: 1, wanted: 3 },
  ]);
});
