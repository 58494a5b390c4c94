import { afterEach, expect, test } from 'vitest';
import { encodeSequenceHead } from '../../src/codec/head-values.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

const START_MS = 10_000;
const JOINED_MS = 40_000;
const ANSWERED_MS = 10_000;

let stage: WorkerStage;
afterEach(() => stage.stop());

test('a standby that never saw what the ledger lost states it before it decides', async () => {
  stage = new WorkerStage();
  const asked = new StagedRequests(stage);
  const workers = new Map(['a', 'b'].map((name) => [name, stage.start({}, name)]));
  await stage.pass(JOINED_MS);
  const isOwner = (name: string) =>
    workers
      .get(name)
      ?.vitals()
      .copies.some(({ partition, state }) => partition === 0 && state === 'serving') === true;
  const [owner, standby] = isOwner('a') ? ['a', 'b'] : ['b', 'a'];
  stage.cut.add(standby);
  const lost = idsOf('lost', 2);
  asked.send(lost);
  await stage.pass(2_000);
  expect(asked.counts(lost)).toEqual([1, 1]);
  const { log } = stage.kafka.cluster.partition(config.topics.ledger, 0);
  await stage.stop(owner);
  stage.kafka.cluster.truncate(config.topics.ledger, 0, log.end - 2);
  stage.cut.delete(standby);
  await stage.pass(JOINED_MS);
  const fresh = idsOf('new', 1);
  asked.send(fresh);
  await stage.pass(ANSWERED_MS);
  expect(asked.repliesTo(fresh[0] as string).map((reply) => 'batch' in reply)).toEqual([true]);
  const stated = stage.lines.filter(({ msg }) => msg.startsWith('a ledger partition has lost its tail'));
  expect(stated).toMatchObject([{ partition: 0, code: 'LEDGER_TRUNCATED', through: 1 }]);
});

test('what the ledger has lost of a sequence is stated when its partition is taken over, though nobody asks for numbers', async () => {
  stage = new WorkerStage();
  const { topics, etcd, datacenterId } = config;
  const partition = partitionFor(Buffer.from('invoices'), topics.requestPartitions, () => 0);
  const head = { next: 5, step: 1, max: 1_000, format: '', closed: false, edition: 1 };
  const { sequence } = ledgerHeadKeys(etcd.prefix, datacenterId, topics.ledger, partition);
  stage.etcd.tamper(sequence('invoices'), encodeSequenceHead(head));
  stage.start();
  await stage.pass(START_MS);
  const stated = stage.lines.filter(({ msg }) => msg.startsWith('the ledger has lost numbers of sequences'));
  expect(stated).toMatchObject([{ partition, sequence: 'invoices', to: 5 }]);
});
