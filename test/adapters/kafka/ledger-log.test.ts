import { beforeEach, describe, expect, it } from 'vitest';
import { KafkaLedgerLog } from '../../../src/adapters/kafka/ledger-log.ts';
import { decodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import type { CommittedPosition } from '../../../src/codec/request-position.ts';
import type { DriftSample } from '../../../src/core/clock-guard.ts';
import { monoMs, wallMs } from '../../../src/core/units.ts';
import { recordsOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage } from '../../support/loop-stage.ts';

const STAMPED = { 'message.timestamp.type': 'LogAppendTime' };
const ENTRIES = [{ key: Buffer.from('k'), value: Buffer.from('v') }];

let stage: LoopStage;
let log: KafkaLedgerLog;
let answered: CommittedPosition | undefined;
let samples: DriftSample[];

/** Brokers that lead the ledger's partitions in turn; the clock of broker n is n seconds ahead. */
function open(nodes: number, { partitions = nodes, replicas = 1, configs = STAMPED as Record<string, string> } = {}) {
  stage = new LoopStage({ nodes });
  samples = [];
  for (const [node, broker] of stage.kafka.cluster.brokers) broker.clockErrorMs = 1_000 * node;
  for (const name of ['ledger', 'requests']) stage.kafka.cluster.createTopic(name, { partitions, replicas, configs });
  const { cluster, runtime } = stage;
  log = new KafkaLedgerLog({
    cluster,
    runtime,
    topic: 'ledger',
    requestTopic: 'requests',
    readClock: () => ({ wall: wallMs(runtime.wallMs()), mono: monoMs(runtime.monotonicMs()) }),
    onDriftSample: (sample) => samples.push(sample),
    answered: () => answered,
  });
}

const entries = (partition: number) => {
  const { log: stored } = stage.kafka.cluster.partition('ledger', partition);
  return stored.batches().flatMap(recordsOf);
};

/** The result or the code of the error, and how long that took. */
async function outcome<T>(work: Promise<T>): Promise<[T | string, number]> {
  const beganMs = stage.runtime.monotonicMs();
  const ended = await stage.runtime.until(
    work.catch((error: { code?: string; message: string }) => error.code ?? error.message),
  );
  return [ended, stage.runtime.monotonicMs() - beganMs];
}

beforeEach(() => open(3));

describe('an append', () => {
  it("is one batch, and returns its offset and the broker's time", async () => {
    const [first] = await outcome(log.append(1, [...ENTRIES, ...ENTRIES]));
    const [second] = await outcome(log.append(1, ENTRIES));
    expect([first, second]).toMatchObject([{ baseOffset: 0 }, { baseOffset: 2 }]);
    expect(entries(1).map(({ offset, key, value }) => [offset, String(key), String(value)])).toEqual([
      [0, 'k', 'v'],
      [1, 'k', 'v'],
      [2, 'k', 'v'],
    ]);
    const [{ broker, sent, received, appended } = { broker: '', sent: 0, received: 0, appended: 0 }] = samples;
    expect([broker, samples.length, received > sent]).toEqual(['2', 2, true]);
    expect(appended - 2_000).toBeGreaterThanOrEqual(sent);
    expect(appended - 2_000).toBeLessThanOrEqual(received);
  });

  it('keeps the headers of its entries, and adds to the first one what is answered', async () => {
    answered = { next: 7, small: 9 };
    const stated = ENTRIES.map((one) => ({ ...one, headers: { 'idalloc-statement': Buffer.from('{"edition":1}') } }));
    await outcome(log.append(1, [...stated, ...stated, ...ENTRIES]));
    answered = undefined;
    const said = entries(1).map(({ headers }) =>
      Object.entries(headers ?? {}).map(([name, value]) => `${name} ${value}`),
    );
    const statement = 'idalloc-statement {"edition":1}';
    expect(said).toEqual([[statement, 'idalloc-answered 7 {"small":9,"debtors":[]}'], [statement], []]);
  });

  it('follows a leader that has moved, without waiting for the session to try again', async () => {
    open(3, { partitions: 1, replicas: 3 });
    await outcome(log.append(0, ENTRIES));
    stage.kafka.cluster.moveLeader('ledger', 0, 2);
    const [, tookMs] = await outcome(log.append(0, ENTRIES));
    expect([samples.map(({ broker }) => broker), entries(0).length]).toEqual([['1', '2'], 2]);
    expect(tookMs).toBeLessThan(1_000);
  });

  it('to a frozen broker ends after 5 s, and is sent once', async () => {
    await outcome(log.append(0, ENTRIES));
    stage.kafka.cluster.freeze(1);
    expect(await outcome(log.append(0, ENTRIES))).toEqual(['APPEND_UNANSWERED', 5_000]);
    expect(stage.produces.length).toBe(2);
  });

  it('succeeds within 15 s of a leader freezing, when it is retried', async () => {
    open(3, { partitions: 1, replicas: 3 });
    await outcome(log.append(0, ENTRIES));
    stage.kafka.cluster.freeze(1);
    const frozenMs = stage.runtime.monotonicMs();
    for (let ended: unknown = ''; typeof ended === 'string'; ) {
      [ended] = await outcome(log.append(0, ENTRIES));
      if (typeof ended === 'string') await outcome(log.endOffset(0));
    }
    expect(stage.runtime.monotonicMs() - frozenMs).toBeLessThan(15_000);
  });

  it('reports that no broker can be reached', async () => {
    for (const node of [1, 2, 3]) stage.kafka.cluster.crash(node);
    const [code, tookMs] = await outcome(log.append(0, ENTRIES));
    expect(code).toBe('APPEND_UNANSWERED');
    expect(tookMs).toBeLessThanOrEqual(5_000);
  });

  it("fails if the topic does not use the brokers' timestamps", async () => {
    open(1, { configs: {} });
    expect((await outcome(log.append(0, ENTRIES)))[0]).toBe('LEDGER_WEAK');
    expect(samples).toEqual([]);
  });
});

describe('the ends of partitions', () => {
  it('are those of the ledger and of the request topic', async () => {
    await outcome(log.append(2, ENTRIES));
    stage.kafka.cluster.send('requests', 2, Array(4).fill({ key: null, value: null }));
    expect(await outcome(log.endOffset(2))).toEqual([1, expect.any(Number)]);
    expect((await outcome(log.requestEnd(2, 0)))[0]).toBe(4);
  });

  it('of the request topic are requested again for 10 s while they are not above the known end', async () => {
    const send = () => stage.kafka.cluster.send('requests', 0, Array(4).fill({ key: null, value: null }));
    send();
    stage.runtime.schedule(3_000, send);
    const [end, tookMs] = await outcome(log.requestEnd(0, 5));
    expect([end, Number(tookMs) >= 3_000]).toEqual([8, true]);
    const [same, waitedMs] = await outcome(log.requestEnd(0, 9));
    expect([same, Number(waitedMs) >= 10_000]).toEqual([8, true]);
  });

  it('are requested from the current leader, and time out after 5 s', async () => {
    open(3, { partitions: 1, replicas: 3 });
    await outcome(log.endOffset(0));
    stage.kafka.cluster.moveLeader('ledger', 0, 2);
    expect((await outcome(log.endOffset(0)))[0]).toBe(0);
    stage.kafka.cluster.freeze(2);
    stage.runtime.schedule(1_000, () => stage.kafka.cluster.moveLeader('ledger', 0, 3));
    expect(await outcome(log.endOffset(0))).toEqual([0, expect.any(Number)]);
    stage.kafka.cluster.freeze(3);
    stage.kafka.cluster.freeze(1);
    const [code, tookMs] = await outcome(log.endOffset(0));
    expect(code).toBe('KAFKA_UNAVAILABLE');
    expect(tookMs).toBeLessThanOrEqual(5_000);
  });
});

describe('asking the brokers for the time', () => {
  it('asks each leader once, with an empty marker', async () => {
    open(3, { partitions: 5 });
    const [asked] = await outcome(log.sampleBrokerClocks());
    await stage.pass(100);
    const read = asked as readonly DriftSample[];
    expect(read.length).toBeGreaterThanOrEqual(2);
    for (const { broker, appended, sent } of read) {
      expect(Math.abs(appended - sent - 1_000 * Number(broker))).toBeLessThan(50);
    }
    const written = [0, 1, 2, 3, 4].flatMap(entries);
    expect(written.map(({ key, value }) => [key, decodeLedgerEntry(value as Buffer)])).toEqual(
      Array(3).fill([null, { kind: 'marker', end: 0, through: -1 }]),
    );
    expect(samples).toEqual([]);
  });

  it('asks at most five leaders, and skips partitions without a leader', async () => {
    open(7);
    stage.kafka.cluster.crash(1);
    stage.kafka.cluster.fence(1);
    await outcome(log.sampleBrokerClocks());
    await stage.pass(100);
    const asked = stage.produces.map(({ request }) => request.partition);
    expect([asked.length, asked.includes(0)]).toEqual([5, false]);
  });

  it('asks each of more leaders in its turn', async () => {
    open(7);
    const asked = () => new Set(stage.produces.map(({ request }) => request.partition)).size;
    await outcome(log.sampleBrokerClocks());
    await stage.pass(100);
    expect(asked()).toBe(5);
    await outcome(log.sampleBrokerClocks());
    await stage.pass(100);
    expect(asked()).toBe(7);
  });

  it('does not wait for a silent broker when most have answered, nor long when one has', async () => {
    const answered = async () => {
      const [answer, tookMs] = await outcome(log.sampleBrokerClocks());
      await stage.pass(10_000);
      return [(answer as readonly DriftSample[]).length, tookMs];
    };
    stage.kafka.cluster.freeze(3);
    const [most, soonMs] = await answered();
    expect(most).toBe(2);
    expect(soonMs).toBeLessThan(100);
    open(3);
    for (const node of [2, 3]) stage.kafka.cluster.freeze(node);
    const [one, laterMs = 0] = await answered();
    expect(one).toBe(1);
    expect(laterMs).toBeGreaterThan(1_500);
    expect(laterMs).toBeLessThan(6_000);
  });

  it('rejects when no leader answers, and when there is none', async () => {
    await outcome(log.sampleBrokerClocks());
    stage.kafka.cluster.refuses = (call) => (call === 'produce' ? 'UNKNOWN' : undefined);
    expect((await outcome(log.sampleBrokerClocks()))[0]).toBe('APPEND_UNANSWERED');
    for (const node of [1, 2, 3]) stage.kafka.cluster.crash(node);
    expect((await outcome(log.sampleBrokerClocks()))[0]).toBe('KAFKA_UNAVAILABLE');
  });
});
