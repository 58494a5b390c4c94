import { describe, expect, test } from 'vitest';
import type { Transport } from '../../src/client/requester.ts';
import { formatHostPort } from '../../src/core/host-port.ts';
import { IdallocError } from '../../src/errors.ts';
import { UNREADABLE } from '../../src/kafka/records/decode.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import type { BrokerAddress } from '../../src/kafka/wire/port.ts';
import type { MetadataResponse } from '../../src/kafka/wire/topic-apis.ts';
import { addressOf } from '../support/fake-kafka/view.ts';
import { LinkStage, NODES, REPLIES } from './link-stage.ts';

/** Longer than a long poll and everything that follows it. */
const SOON_MS = 600;
/** A partition that is gone for so long is no longer read. */
const GONE_MS = 4_000;
/** After this time the controller fences a silent broker. */
const FENCED_MS = 9_000;

async function linked(options: Parameters<LinkStage['open']>[0] = {}, stage = new LinkStage()) {
  return { stage, link: await stage.during(stage.open(options)) };
}

function request(key = 'c-1', replyTopic = REPLIES) {
  const id = Buffer.from(key);
  return { key: id, correlationId: id, value: Buffer.from('value'), replyTopic, isWanted: () => true };
}

/** Sends as a requester does: again after each failure. */
function sentAtLast(stage: LinkStage, link: Transport): Promise<void> {
  const send = (): Promise<void> => link.send(request()).catch(() => stage.clock.sleep(500).then(send));
  return stage.during(send());
}

/** Random choices are those of the last partition. */
function lastPartitionOf(stage: LinkStage): LinkStage {
  stage.clock.random = () => 0.99;
  return stage;
}

/** A key whose home is this partition. */
function keyOf(partition: number): string {
  const keys = Array.from({ length: 100 }, (_, i) => `c-${i}`);
  return keys.find((key) => partitionFor(Buffer.from(key), 2, () => 0) === partition) ?? '';
}

test('a request is one record, keyed by what names it, with the correlation ID and the reply partition', async () => {
  const { stage, link } = await linked({ partition: 1 });
  await stage.during(link.send({ ...request(keyOf(1)), correlationId: Buffer.from('this try') }));
  const headers = { kafka_correlationId: 'this try', kafka_replyPartition: '1' };
  expect(stage.sent).toEqual([{ partition: 1, key: keyOf(1), value: 'value', headers }]);
});

test('a resend has the time of the first send in a header, in milliseconds', async () => {
  const { stage, link } = await linked();
  await stage.during(link.send({ ...request(), firstSentMs: 1_700_000_000_123 }));
  const headers = { kafka_correlationId: 'c-1', kafka_replyPartition: '0', 'idalloc-first-sent': '1700000000123' };
  expect(stage.sent.map((sent) => sent.headers)).toEqual([headers]);
});

test('replies are read from where the partition ended when the link was opened, and from no other partition', async () => {
  const stage = new LinkStage();
  stage.reply('of before', { partition: 1 });
  const { link } = await linked({ partition: 1 }, stage);
  stage.reply('at once', { partition: 1 });
  stage.reply('elsewhere', { partition: 0 });
  await stage.clock.pass(SOON_MS);
  expect(stage.received).toEqual(['at once']);
  await link.close();
});

test('a reply that comes right after its request was sent is not missed', async () => {
  const { stage, link } = await linked();
  await Promise.all([stage.during(link.send(request())), Promise.resolve().then(() => stage.reply('quick'))]);
  await stage.clock.pass(SOON_MS);
  expect(stage.received).toEqual(['quick']);
});

test('without the option, a random partition is read', async () => {
  const { stage, link } = await linked({}, lastPartitionOf(new LinkStage()));
  await stage.during(link.send(request()));
  expect(stage.sent).toMatchObject([{ headers: { kafka_replyPartition: '1' } }]);
});

test('a reply has its layout text, unless the header is too long or repeated', async () => {
  const { stage, link } = await linked();
  await stage.during(link.send(request()));
  stage.reply('known');
  stage.reply('custom', { headers: { 'idalloc-layout': 'timestamp:42' } });
  stage.reply('endless', { headers: { 'idalloc-layout': 'x'.repeat(513) } });
  await stage.clock.pass(SOON_MS);
  expect(stage.replies.map(({ layoutText }) => layoutText)).toEqual([undefined, 'timestamp:42', undefined]);
  await link.close();
});

test('a reply carries the time of a retry that its headers name in decimal digits', async () => {
  const { stage, link } = await linked({ partition: 0 });
  await stage.during(link.send(request()));
  stage.reply('plain');
  stage.reply('timed', { headers: { 'idalloc-retry-after-ms': '1490' } });
  stage.reply('vague', { headers: { 'idalloc-retry-after-ms': 'soon' } });
  await stage.clock.pass(SOON_MS);
  expect(stage.replies.map(({ retryAfterMs }) => retryAfterMs)).toEqual([undefined, 1_490, undefined]);
  await link.close();
});

test('headers can have other names', async () => {
  const { stage, link } = await linked({
    headers: { correlationId: 'what', replyPartition: 'where', replayed: 'again' },
  });
  await stage.during(link.send(request()));
  expect(stage.sent.map(({ headers }) => headers)).toEqual([{ what: 'c-1', where: '0' }]);
  stage.reply('first', { headers: { 'idalloc-replayed': '1' } });
  stage.reply('second', { headers: { again: '1' } });
  await stage.clock.pass(SOON_MS);
  expect(stage.replies.map(({ replayed }) => replayed)).toEqual([false, true]);
});

test('records without key or value are ignored', async () => {
  const { stage } = await linked();
  const some = Buffer.from('some');
  stage.kafka.send(REPLIES, 0, [
    { key: null, value: some },
    { key: some, value: null },
  ]);
  stage.reply('behind them');
  await stage.clock.pass(SOON_MS);
  expect(stage.received).toEqual(['behind them']);
});

test('replies that cannot be decompressed are reported with the reason, and later replies are received', async () => {
  const { stage } = await linked();
  const reason = 'a lz4 batch needs the package lz4-napi';
  stage.kafka.send(REPLIES, 0, [{ key: null, value: null, headers: { [UNREADABLE]: reason } }]);
  stage.reply('behind them');
  await stage.clock.pass(SOON_MS);
  expect(stage.received).toEqual(['behind them']);
  expect(stage.faults).toEqual([new IdallocError('MALFORMED_REPLY', `replies can't be read: ${reason}`)]);
});

test('a reply of an aborted transaction is ignored', async () => {
  const { stage } = await linked();
  stage.kafka.send(REPLIES, 0, [{ key: Buffer.from('c-1'), value: Buffer.from('aborted') }], 7n);
  stage.kafka.endTransaction(REPLIES, 0, 'abort', 7n);
  stage.reply('behind it');
  await stage.clock.pass(SOON_MS);
  expect(stage.received).toEqual(['behind it']);
});

test('eight reply topics are read; a ninth is rejected', async () => {
  const { stage, link } = await linked();
  const topics = Array.from({ length: 8 }, (_, i) => `id.replies.${i}`);
  for (const topic of topics) stage.kafka.createTopic(topic);
  for (const topic of [...topics.slice(0, 7), ...topics.slice(0, 7)])
    await stage.during(link.send(request('c', topic)));
  for (const topic of topics) stage.reply(topic, { topic });
  await stage.clock.pass(SOON_MS);
  expect(stage.received.sort()).toEqual(topics.slice(0, 7));
  const ninth = stage.during(link.send(request('c', topics[7])));
  await expect(ninth).rejects.toMatchObject({ code: 'QUEUE_FULL' });
});

test('a missing reply topic is looked up again by the next request', async () => {
  const { stage, link } = await linked();
  const late = request('c-1', 'id.replies.late');
  await expect(stage.during(link.send(late))).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
  stage.kafka.createTopic('id.replies.late');
  await stage.during(link.send(late));
  expect(stage.sent).toHaveLength(1);
});

test.each<[string, Parameters<LinkStage['open']>[0], RegExp]>([
  [
    'the reply topic',
    { replyTopic: 'id.replies.none' },
    /no topic 'id.replies.none': correct its name, or create it: idalloc topics init --reply-topic id.replies.none$/,
  ],
  ['both topics', { replyTopic: 'none', requestTopic: 'no' }, /no topic 'no', 'none'/],
  ['the partition', { partition: 2 }, /'id.replies.a' has no partition 2: it has 2/],
  ['a partition that is no number', { partition: 0.5 }, /no partition 0.5/],
])('without %s nothing is opened: TOPIC_INVALID, at once', async (_what, options, message) => {
  const stage = new LinkStage();
  const beganMs = stage.clock.nowMs;
  const opened = stage.during(stage.open(options));
  await expect(opened).rejects.toMatchObject({ code: 'TOPIC_INVALID', message: expect.stringMatching(message) });
  expect(stage.clock.nowMs - beganMs, 'it is not looked for again').toBeLessThan(200);
  expect([stage.connections, stage.timers.size]).toEqual([0, 0]);
});

test('an unauthorized topic is TOPIC_INVALID', async () => {
  const stage = new LinkStage();
  stage.kafka.deny(REPLIES);
  const opened = stage.during(stage.open());
  await expect(opened).rejects.toMatchObject({
    code: 'TOPIC_INVALID',
    message: `this user is not authorized for '${REPLIES}'`,
  });
});

test('unreachable brokers are retried for 10 s; then it is KAFKA_UNAVAILABLE, with nothing left open', async () => {
  const stage = new LinkStage();
  for (let node = 1; node <= NODES; node += 1) stage.kafka.crash(node);
  const waiting = stage.during(stage.open());
  stage.clock.schedule(8_000, () => {
    for (let node = 1; node <= NODES; node += 1) stage.kafka.restart(node);
  });
  await (await waiting).close();

  for (let node = 1; node <= NODES; node += 1) stage.kafka.crash(node);
  const beganMs = stage.clock.nowMs;
  const message = expect.stringMatching(/the replies on 'id.replies.a' cannot be read/);
  await expect(stage.during(stage.open())).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE', message });
  expect(stage.clock.nowMs - beganMs).toBeLessThan(11_000);
  expect([stage.connections, stage.timers.size]).toEqual([0, 0]);
});

const REFUSED_LOGIN = { code: 'CONFIG_INVALID', message: expect.stringMatching(/no such user.*check .*ssl and sasl/) };

test('a rejected login fails immediately, and names the options to check', async () => {
  const stage = new LinkStage();
  stage.dialer = { dial: async () => Promise.reject(new KafkaError('LOGIN_REFUSED', 'no such user')) };
  const beganMs = stage.clock.nowMs;
  await expect(stage.during(stage.open())).rejects.toMatchObject(REFUSED_LOGIN);
  expect(stage.clock.nowMs - beganMs).toBeLessThan(1_000);
});

test('a login that may change is tried again until it is accepted, or the time is up', async () => {
  const stage = new LinkStage();
  const { dialer } = stage;
  const acceptedMs = stage.clock.nowMs + 5_000;
  stage.wire = { isLoginChanging: true };
  stage.dialer = {
    dial: (address, signal) =>
      stage.clock.nowMs < acceptedMs
        ? Promise.reject(new KafkaError('LOGIN_REFUSED', 'no such user'))
        : dialer.dial(address, signal),
  };
  await expect(stage.during(stage.open({ timeoutMs: 3_000 }))).rejects.toMatchObject(REFUSED_LOGIN);
  const { link } = await linked({}, stage);
  expect(stage.clock.nowMs).toBeGreaterThanOrEqual(acceptedMs);
  await link.close();
});

test('brokers that all moved are found by the bootstrap brokers of then', async () => {
  const stage = new LinkStage();
  const { dialer } = stage;
  let offset = 0;
  const moved = ({ host, port }: BrokerAddress) => ({ host, port: port + offset });
  const silentMs: number[] = [];
  stage.wire = { onSilence: () => silentMs.push(stage.clock.nowMs) };
  // Each broker listens elsewhere from now on, and its metadata says so.
  stage.dialer = {
    dial: async (address, signal) => {
      const node = [1, 2, 3].find((one) => formatHostPort(moved(addressOf(one))) === formatHostPort(address));
      if (node === undefined) throw new KafkaError('UNREACHABLE', 'nothing listens there');
      const link = await dialer.dial(addressOf(node), signal);
      return {
        ended: link.ended,
        close: () => link.close(),
        call: async (api, request) => {
          const response = await link.call(api, request);
          if (api !== 'metadata') return response;
          const { brokers, ...more } = response as MetadataResponse;
          return { ...more, brokers: brokers.map((one) => ({ ...one, ...moved(one) })) } as typeof response;
        },
      };
    },
  };
  const { link } = await linked({}, stage);
  await stage.clock.pass(10_000);
  expect(silentMs).toEqual([]);
  offset = 10_000;
  for (let node = 1; node <= NODES; node += 1) {
    stage.kafka.crash(node);
    stage.kafka.restart(node);
  }
  const movedMs = stage.clock.nowMs;
  await stage.clock.pass(5_000);
  expect((silentMs[0] ?? Number.NaN) - movedMs).toBeGreaterThan(1_900);
  stage.seeds = [moved(addressOf(1))];
  await sentAtLast(stage, link);
  stage.reply('from there');
  await stage.clock.pass(2 * SOON_MS);
  expect(stage.received).toEqual(['from there']);
  await link.close();
});

test.each([300, 2_000])('opening ends after its time limit of %i ms, with nothing left open', async (timeoutMs) => {
  const stage = new LinkStage();
  for (let node = 1; node <= NODES; node += 1) stage.kafka.freeze(node);
  const beganMs = stage.clock.nowMs;
  await expect(stage.during(stage.open({ timeoutMs }))).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  expect(stage.clock.nowMs - beganMs).toBeLessThanOrEqual(timeoutMs + 50);
  expect([stage.connections, stage.timers.size]).toEqual([0, 0]);
});

test.each(['before it began', 'while it waits for brokers'])(
  'opening that is aborted %s rejects with the reason at once, with nothing left open',
  async (when) => {
    const stage = new LinkStage();
    for (let node = 1; node <= NODES; node += 1) stage.kafka.freeze(node);
    const stop = new AbortController();
    const reason = new Error('the service stops');
    if (when === 'before it began') stop.abort(reason);
    const opened = stage.open({ signal: stop.signal, timeoutMs: Number.POSITIVE_INFINITY });
    const refused = expect(opened).rejects.toBe(reason);
    await stage.clock.pass(when === 'before it began' ? 0 : 60_000);
    stop.abort(reason);
    await stage.clock.pass(50);
    await refused;
    expect([stage.connections, stage.timers.size]).toEqual([0, 0]);
  },
);

test('the signal has no effect on a link that is open', async () => {
  const stop = new AbortController();
  const { stage, link } = await linked({ signal: stop.signal });
  stop.abort();
  await stage.during(link.send(request()));
  expect(stage.sent).toHaveLength(1);
});

test('a login that is refused later, after a restart of the brokers, is reported for sending and for reading', async () => {
  const stage = new LinkStage();
  const { dialer } = stage;
  let isRefused = false;
  stage.dialer = {
    dial: (address, signal) =>
      isRefused ? Promise.reject(new KafkaError('LOGIN_REFUSED', 'no such user')) : dialer.dial(address, signal),
  };
  const { link } = await linked({}, stage);
  isRefused = true;
  for (let node = 1; node <= NODES; node += 1) {
    stage.kafka.crash(node);
    stage.kafka.restart(node);
  }
  await expect(stage.during(link.send(request()))).rejects.toMatchObject(REFUSED_LOGIN);
  await stage.clock.pass(SOON_MS);
  expect(stage.faults.at(-1)).toMatchObject(REFUSED_LOGIN);
});

test('options that hold no login later are reported as they are, for sending and for reading', async () => {
  const stage = new LinkStage();
  const { dialer } = stage;
  const noLogin = new IdallocError('CONFIG_INVALID', 'sasl must be an object');
  let isNone = false;
  stage.dialer = { dial: (address, signal) => (isNone ? Promise.reject(noLogin) : dialer.dial(address, signal)) };
  const { link } = await linked({}, stage);
  isNone = true;
  for (let node = 1; node <= NODES; node += 1) {
    stage.kafka.crash(node);
    stage.kafka.restart(node);
  }
  await expect(stage.during(link.send(request()))).rejects.toBe(noLogin);
  await stage.clock.pass(SOON_MS);
  expect(stage.faults.at(-1)).toBe(noLogin);
});

test('a frozen bootstrap broker is skipped', async () => {
  const stage = new LinkStage();
  stage.seeds = [addressOf(3), addressOf(1)];
  stage.kafka.freeze(3);
  const beganMs = stage.clock.nowMs;
  const { link } = await linked({}, stage);
  await stage.during(link.send(request(keyOf(0))));
  expect(stage.clock.nowMs - beganMs).toBeLessThan(2_000);
});

test('a record that the brokers reject is KAFKA_UNAVAILABLE, with the reason', async () => {
  const { stage, link } = await linked();
  stage.kafka.refuses = (call) => (call === 'produce' ? 'NOT_ENOUGH_REPLICAS' : undefined);
  await expect(stage.during(link.send(request()))).rejects.toMatchObject({
    code: 'KAFKA_UNAVAILABLE',
    message: expect.stringMatching(/could not be sent to 'id.requests': .*NOT_ENOUGH_REPLICAS/),
  });
});

test('replies continue after a leader change', async () => {
  const { stage } = await linked();
  stage.reply('before');
  await stage.clock.pass(SOON_MS);
  expect(stage.kafka.moveLeader(REPLIES, 0, 2)).toBe(true);
  stage.reply('after');
  await stage.clock.pass(2 * SOON_MS);
  expect(stage.received).toEqual(['before', 'after']);
});

test('a broker that freezes delays its partitions until others lead them, and is reported; no reply is missed', async () => {
  const { stage, link } = await linked();
  stage.kafka.freeze(1);
  const refused = link.send(request(keyOf(0))).catch((error: unknown) => error);
  await stage.during(link.send(request(keyOf(1))));
  expect(await stage.during(refused)).toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  await stage.clock.pass(FENCED_MS);
  stage.reply('from the new leader');
  await stage.clock.pass(2_000);
  await stage.during(link.send(request(keyOf(0))));
  expect(stage.received).toEqual(['from the new leader']);
  expect(stage.faults[0]).toMatchObject({
    code: 'KAFKA_UNAVAILABLE',
    message: expect.stringMatching(/partition 0 of 'id.replies.a' cannot be read now/),
  });
});

describe('a reply topic that is recreated', () => {
  test('at once is read from its end of then, for what waits is sent again', async () => {
    const { stage } = await linked();
    for (const value of ['one', 'two', 'three']) stage.reply(value);
    await stage.clock.pass(SOON_MS);
    stage.kafka.deleteTopic(REPLIES);
    await stage.clock.pass(500);
    stage.kafka.createTopic(REPLIES, { partitions: 2 });
    stage.reply('of before');
    await stage.clock.pass(3_000);
    expect(stage.moved).toEqual([REPLIES]);
    stage.reply('to what was sent again');
    await stage.clock.pass(SOON_MS);
    expect(stage.received).toEqual(['one', 'two', 'three', 'to what was sent again']);
    expect(stage.moved).toEqual([REPLIES]);
  });

  test('with fewer partitions is read at one that it has, by the requests that are sent again', async () => {
    const { stage, link } = await linked({ partition: undefined }, lastPartitionOf(new LinkStage()));
    await stage.during(link.send(request()));
    stage.kafka.deleteTopic(REPLIES);
    stage.kafka.createTopic(REPLIES, { partitions: 1 });
    await stage.clock.pass(GONE_MS);
    expect(stage.moved).toEqual([REPLIES]);
    await stage.during(link.send(request()));
    stage.reply('here');
    await stage.clock.pass(SOON_MS);
    expect(stage.sent).toMatchObject([
      { headers: { kafka_replyPartition: '1' } },
      { headers: { kafka_replyPartition: '0' } },
    ]);
    expect(stage.received).toEqual(['here']);
    expect(stage.moved).toEqual([REPLIES]);
  });

  test('without the partition of the options is TOPIC_INVALID for what is sent, until it has that partition again', async () => {
    const { stage, link } = await linked({ partition: 1 });
    stage.kafka.deleteTopic(REPLIES);
    stage.kafka.createTopic(REPLIES, { partitions: 1 });
    await stage.clock.pass(GONE_MS);
    const message = `'${REPLIES}' has no partition 1: it has 1`;
    await expect(stage.during(link.send(request()))).rejects.toMatchObject({ code: 'TOPIC_INVALID', message });
    stage.kafka.deleteTopic(REPLIES);
    stage.kafka.createTopic(REPLIES, { partitions: 2 });
    const createdMs = stage.clock.nowMs;
    await sentAtLast(stage, link);
    expect(stage.clock.nowMs - createdMs).toBeLessThan(2_000);
    stage.reply('here', { partition: 1 });
    await stage.clock.pass(SOON_MS);
    expect(stage.received).toEqual(['here']);
  });

  test('after a while is TOPIC_INVALID meanwhile, which names it', async () => {
    const { stage, link } = await linked();
    stage.kafka.deleteTopic(REPLIES);
    await stage.clock.pass(GONE_MS);
    expect(stage.moved).toEqual([REPLIES]);
    const message = expect.stringMatching(/no topic 'id.replies.a'/);
    await expect(stage.during(link.send(request()))).rejects.toMatchObject({ code: 'TOPIC_INVALID', message });
    stage.kafka.createTopic(REPLIES, { partitions: 2 });
    await stage.during(link.send(request()));
    stage.reply('back');
    await stage.clock.pass(SOON_MS);
    expect(stage.received).toEqual(['back']);
  });
});

test('a partition that brokers do not know for a moment is still read where it was', async () => {
  const { stage } = await linked();
  stage.reply('before');
  await stage.clock.pass(SOON_MS);
  stage.kafka.refuses = (call) => (call === 'fetch' ? 'UNKNOWN_TOPIC_OR_PARTITION' : undefined);
  await stage.clock.pass(1_500);
  stage.kafka.refuses = () => undefined;
  await stage.clock.pass(10_000);
  stage.kafka.refuses = (call) => (call === 'fetch' ? 'UNKNOWN_TOPIC_OR_PARTITION' : undefined);
  await stage.clock.pass(1_500);
  stage.kafka.refuses = () => undefined;
  stage.reply('after');
  await stage.clock.pass(2 * SOON_MS);
  expect(stage.received).toEqual(['before', 'after']);
  expect(stage.moved).toEqual([]);
});

test('what is wrong with a reply topic is known until it can be read again', async () => {
  const { stage, link } = await linked();
  expect(link.trouble(REPLIES)).toBeUndefined();
  stage.kafka.refuses = (call) => (call === 'fetch' ? 'TOPIC_AUTHORIZATION_FAILED' : undefined);
  await stage.clock.pass(SOON_MS);
  expect(link.trouble(REPLIES)).toMatch(/partition 0 of 'id.replies.a' cannot be read now: .*AUTHORIZATION_FAILED/);
  expect(link.trouble('id.replies.b')).toBeUndefined();
  stage.kafka.refuses = () => undefined;
  await stage.clock.pass(2 * SOON_MS);
  expect(link.trouble(REPLIES)).toBeUndefined();
});

test('thousands of replies are handled in slices', async () => {
  const { stage } = await linked();
  const count = 2_000;
  let pieces = 0;
  const { clock } = stage;
  const nextTurn = clock.nextTurn.bind(clock);
  clock.nextTurn = () => {
    pieces += 1;
    return nextTurn();
  };
  const receive = stage.replies.push.bind(stage.replies);
  stage.replies.push = (...replies) => {
    clock.nowMs += 0.05; // each costs its time
    return receive(...replies);
  };
  const key = Buffer.from('c-1');
  stage.kafka.send(
    REPLIES,
    0,
    Array.from({ length: count }, (_, i) => ({ key, value: Buffer.from(`${i}`) })),
  );
  await clock.pass(SOON_MS);
  expect(stage.received).toEqual(Array.from({ length: count }, (_, i) => `${i}`));
  expect(pieces).toBeGreaterThanOrEqual(15);
});

test.each(['well', 'frozen'])(
  'close() is prompt while brokers are %s, and leaves no connection and no timer',
  async (how) => {
    const { stage, link } = await linked();
    const under = [link.send(request(keyOf(0))), link.send(request(keyOf(1)))];
    if (how === 'frozen') for (let node = 1; node <= NODES; node += 1) stage.kafka.freeze(node);
    const ends = Promise.allSettled(under);
    await stage.clock.pass(1_000);
    const last = expect(link.send(request())).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
    const beganMs = stage.clock.nowMs;
    await stage.during(link.close());
    expect(stage.clock.nowMs - beganMs).toBeLessThanOrEqual(50);
    await Promise.all([ends, last]);
    expect([stage.connections, stage.timers.size]).toEqual([0, 0]);
    stage.reply('too late');
    await stage.clock.pass(60_000);
    expect([stage.received, stage.connections, stage.timers.size]).toEqual([[], 0, 0]);
  },
);
