import { expect, test } from 'vitest';
import { RequestSender } from '../../src/client/kafka-link.ts';
import { decodeBatches } from '../../src/kafka/records/decode.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import type { Cluster } from '../../src/kafka/wire/cluster.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import type { ProduceRequest, ProduceResponse } from '../../src/kafka/wire/record-apis.ts';
import { scriptedLink } from '../support/scripted-link.ts';
import { FakeRuntime, turns } from './stage.ts';

const PARTITIONS = 2;
const ANSWER: ProduceResponse = { throttleMs: 0, baseOffset: 7, appendedAtMs: -1, logStartOffset: 0 };

/** A produce call that the broker has not answered yet. */
interface Call {
  readonly request: ProduceRequest;
  readonly purpose: string;
  readonly keys: readonly string[];
  answer(errorCode?: string): void;
}

/** A sender whose broker answers when the test says so. */
function staged() {
  const calls: Call[] = [];
  const link = scriptedLink({
    produce: async (request: ProduceRequest) => {
      const answered = Promise.withResolvers<ProduceResponse>();
      const batches = { records: request.batch, aborted: [] };
      const { records } = await decodeBatches(batches, 0, 'read_uncommitted', () => Promise.resolve());
      const answer = (errorCode?: string) =>
        answered.resolve(errorCode === undefined ? ANSWER : { ...ANSWER, errorCode });
      calls.push({ request, purpose, keys: records.map(({ key }) => String(key)), answer });
      return answered.promise;
    },
  });
  let purpose = '';
  const doubts: string[] = [];
  const cluster: Pick<Cluster, 'leader' | 'call' | 'markStale' | 'partitions'> = {
    partitions: async () => PARTITIONS,
    leader: async () => 1,
    call: (_node, on, _timeoutMs, use) => {
      purpose = on;
      return use(link);
    },
    markStale: (topic) => doubts.push(topic),
  };
  const sender = new RequestSender({ cluster, runtime: new FakeRuntime(), topic: 'id.requests' });
  const send = (key: string, value = 'v', isWanted = () => true) =>
    sender.send({ key: Buffer.from(key), value: Buffer.from(value) }, isWanted);
  return { calls, send, doubts };
}

/** Keys of one partition. */
function keys(count: number, partition = 0): string[] {
  const all = Array.from({ length: 4 * count }, (_, i) => `c-${i}`);
  return all.filter((key) => partitionFor(Buffer.from(key), PARTITIONS, () => 0) === partition).slice(0, count);
}

test('requests of one turn share a call, in their order, acknowledged by all replicas', async () => {
  const { calls, send } = staged();
  const asked = keys(100);
  const sent = Promise.all(asked.map((key) => send(key)));
  await turns();
  expect(calls.map(({ keys: got, purpose }) => ({ got, purpose }))).toEqual([{ got: asked, purpose: 'append' }]);
  expect(calls[0]?.request).toMatchObject({ topic: 'id.requests', partition: 0, acks: -1 });
  calls[0]?.answer();
  await sent;
});

test('requests that arrive during an append share the next one', async () => {
  const { calls, send } = staged();
  const [first = '', ...others] = keys(4);
  const sent = [send(first)];
  await turns();
  for (const key of others) {
    sent.push(send(key));
    await turns();
  }
  expect(calls).toHaveLength(1);
  calls[0]?.answer();
  await turns();
  expect(calls.map((call) => call.keys)).toEqual([[first], others]);
  calls[1]?.answer();
  await Promise.all(sent);
});

test('a slow broker does not delay other partitions', async () => {
  const { calls, send } = staged();
  const [slow = ''] = keys(1, 0);
  const [quick = ''] = keys(1, 1);
  void send(slow);
  const sent = send(quick);
  await turns();
  expect(calls.map(({ request }) => request.partition).sort()).toEqual([0, 1]);
  calls.find(({ request }) => request.partition === 1)?.answer();
  await sent;
});

test('one append has at most 500 requests and 64,000 bytes', async () => {
  const { calls, send } = staged();
  const many = keys(600);
  void Promise.all(many.map((key) => send(key)));
  await turns();
  calls[0]?.answer();
  await turns();
  expect(calls.map((call) => call.keys.length)).toEqual([500, 100]);

  const large = staged();
  void Promise.all(keys(5).map((key) => large.send(key, 'x'.repeat(30_000))));
  await turns();
  large.calls[0]?.answer();
  await turns();
  expect(large.calls.map((call) => call.keys.length)).toEqual([2, 2]);
});

test('a request above the limit of an append is sent alone', async () => {
  const { calls, send } = staged();
  const [one = '', two = ''] = keys(2);
  void send(one, 'x'.repeat(70_000));
  void send(two);
  await turns();
  expect(calls.map((call) => call.keys)).toEqual([[one]]);
});

test('a failed append rejects only its own requests', async () => {
  const { calls, send, doubts } = staged();
  const [one = '', two = ''] = keys(2);
  const refused = expect(send(one)).rejects.toSatisfy(
    (error) => error instanceof KafkaError && error.errorCode === 'NOT_LEADER_FOR_PARTITION',
  );
  await turns();
  const sent = send(two);
  await turns();
  calls[0]?.answer('NOT_LEADER_FOR_PARTITION');
  await refused;
  expect(doubts).toEqual(['id.requests']);
  await turns();
  expect(calls.map((call) => call.keys)).toEqual([[one], [two]]);
  calls[1]?.answer();
  await sent;
});

test('an abandoned request is not sent', async () => {
  const { calls, send } = staged();
  const [one = '', two = '', three = ''] = keys(3);
  void send(one);
  await turns();
  let isWanted = true;
  const given = send(two, 'v', () => isWanted);
  void send(three);
  isWanted = false;
  await turns();
  calls[0]?.answer();
  await given;
  await turns();
  expect(calls.map((call) => call.keys)).toEqual([[one], [three]]);
});

test('abandoned requests do not pile up behind an unanswered append', async () => {
  const { calls, send } = staged();
  const [one = '', ...others] = keys(3_000);
  void send(one);
  await turns();
  let held = 0;
  const given = others.map((key) => {
    held += 1;
    return send(key, 'v', () => false).then(() => {
      held -= 1;
    });
  });
  await turns();
  expect(held).toBeLessThan(1_000);
  calls[0]?.answer();
  await Promise.all(given);
  expect(calls).toHaveLength(1);
});
