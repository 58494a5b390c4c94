import { beforeEach, describe, expect, it } from 'vitest';
import { KafkaLedgerEntries } from '../../../src/adapters/kafka/ledger-log.ts';
import { LoopStage } from '../../support/loop-stage.ts';

const LEDGER = 'ledger';
/** Where a record batch has its checksum. */
const CRC_AT = 17;

let stage: LoopStage;
let entries: KafkaLedgerEntries;

beforeEach(() => {
  stage = new LoopStage({ nodes: 3 });
  stage.kafka.cluster.createTopic(LEDGER, { partitions: 2, replicas: 3 });
  const { cluster, runtime } = stage;
  entries = new KafkaLedgerEntries({ cluster, runtime, topic: LEDGER });
});

const send = (count: number, bytes = 10) => stage.send(0, count, bytes, LEDGER);
const log = () => stage.kafka.cluster.partition(LEDGER, 0).log;

/** The offsets that were found, according to the content of the entries. */
async function found(offsets: readonly number[], partition = 0): Promise<readonly number[]> {
  const read = await stage.runtime.until(entries.read(partition, offsets));
  for (const [offset, record] of read) expect(record.offset).toBe(offset);
  return [...read.values()].map(({ value }) => Number(String(value))).sort((one, other) => one - other);
}

const outcome = (work: Promise<unknown>) =>
  stage.runtime.until(work.catch(({ code, message }) => `${code}: ${message}`));

describe('reading entries by their offsets', () => {
  it('returns the requested ones, wherever they are in their batches', async () => {
    send(10);
    send(10);
    expect(await found([3, 9, 10, 19])).toEqual([3, 9, 10, 19]);
  });

  it('returns them with their headers', async () => {
    stage.kafka.cluster.send(LEDGER, 0, [{ key: null, value: Buffer.from('v'), headers: { about: 'it' } }]);
    const read = await stage.runtime.until(entries.read(0, [0]));
    expect(read.get(0)?.headers).toEqual({ about: Buffer.from('it') });
  });

  it('fetches many neighbours at once, and the following ones not at all', async () => {
    send(500);
    const part = (from: number) => Array.from({ length: 50 }, (_, i) => from + i);
    for (const from of [0, 50, 100]) expect(await found(part(from))).toEqual(part(from));
    expect(stage.asked(0, LEDGER)).toEqual([0]);
  });

  it('fetches four places that lie apart side by side', async () => {
    for (let batch = 0; batch < 1_000; batch += 1) send(10);
    const apart = Array.from({ length: 10 }, (_, i) => 1_000 * i + 5);
    await found([apart[9] as number]); // so that the leader is known
    entries.forget(0);
    const beganMs = stage.runtime.monotonicMs();
    expect(await found(apart)).toEqual(apart);
    expect(stage.fetches.slice(1).filter(({ atMs }) => atMs === beganMs)).toHaveLength(4);
  });

  it.each([1, 2, 15, 16, 80, 100, 101, 500])(
    'fetches %i that are strewn over the log with a megabyte at most, besides a batch for each',
    async (count) => {
      for (let batch = 0; batch < 1_000; batch += 1) send(50, 100);
      const batchBytes = log().read(0, 50, 1, true).length;
      let bytes = 0;
      stage.distort = (answer) => {
        for (const { records } of answer.partitions) bytes += records.length;
        return answer;
      };
      const strewn = Array.from({ length: count }, (_, i) => Math.floor((50_000 / count) * (i + 0.5)));
      expect(await found(strewn)).toEqual(strewn);
      expect(stage.fetches.length).toBeLessThanOrEqual(count);
      expect(bytes).toBeLessThanOrEqual(1_048_576 + stage.fetches.length * batchBytes);
    },
  );

  it('fetches a batch once for all its entries, where these lie apart for their number', async () => {
    for (let batch = 0; batch < 200; batch += 1) send(50, 100);
    const strewn = Array.from({ length: 500 }, (_, i) => 20 * i);
    expect(await found(strewn)).toEqual(strewn);
    expect(stage.fetches.length).toBeLessThanOrEqual(200 + 8);
  });

  it('fetches nothing more once one place has failed', async () => {
    for (let batch = 0; batch < 1_000; batch += 1) send(10);
    let answers = 0;
    stage.distort = (answer) => {
      answers += 1;
      const { records } = answer.partitions[0] ?? { records: Buffer.alloc(0) };
      if (answers === 1) records.writeUInt8(records.readUInt8(CRC_AT) ^ 1, CRC_AT);
      return answer;
    };
    const apart = Array.from({ length: 17 }, (_, i) => 600 * i);
    expect(await outcome(entries.read(0, apart))).toMatch(/^LEDGER_UNREADABLE: /);
    await stage.runtime.until(stage.runtime.sleep(10_000));
    expect(stage.fetches).toHaveLength(4);
  });

  it('continues where the last chunk ends', async () => {
    for (let batch = 0; batch < 30; batch += 1) send(10, 10_000);
    expect(await found([0, 150, 299])).toEqual([0, 150, 299]);
    expect(stage.asked(0, LEDGER).length).toBeGreaterThan(1);
  });

  it('leaves out entries deleted by retention, and returns the rest', async () => {
    send(10);
    send(10);
    log().trim(10);
    expect(await found([2, 5, 12])).toEqual([12]);
  });

  it('does not return entries for long after retention deleted them', async () => {
    send(10);
    expect(await found([2])).toEqual([2]);
    log().trim(10);
    await stage.runtime.until(stage.runtime.sleep(1_000));
    expect(await found([2])).toEqual([]);
  });

  it('finds what was appended after an earlier read', async () => {
    send(1);
    await found([0]);
    send(1);
    expect(await found([1])).toEqual([1]);
  });

  it('returns the current log after `forget`', async () => {
    send(20);
    await found(Array.from({ length: 20 }, (_, i) => i));
    entries.forget(0);
    await found([0]);
    expect(stage.asked(0, LEDGER)).toEqual([0, 0]);
  });

  it('does not keep a chunk that was being read when `forget` was called', async () => {
    send(20);
    const reading = entries.read(0, [0]);
    entries.forget(0);
    await stage.runtime.until(reading);
    await found([0]);
    expect(stage.asked(0, LEDGER)).toEqual([0, 0]);
  });

  it('continues with the next leader when the old one is frozen', async () => {
    send(5);
    await found([0]);
    entries.forget(0);
    stage.kafka.cluster.freeze(1);
    stage.runtime.schedule(1_000, () => stage.kafka.cluster.moveLeader(LEDGER, 0, 2));
    expect(await found([4])).toEqual([4]);
  });

  it('fails with LEDGER_UNANSWERED, naming the offset, when no broker answers in 5 s', async () => {
    send(5);
    for (const node of stage.kafka.cluster.brokers.keys()) stage.kafka.cluster.freeze(node);
    const beganMs = stage.runtime.monotonicMs();
    expect(await outcome(entries.read(0, [4]))).toMatch(/^LEDGER_UNANSWERED: .*offset 4 of ledger partition 0/);
    expect(stage.runtime.monotonicMs() - beganMs).toBeLessThanOrEqual(6_000);
  });

  it('waits for an offset at the end of the log', async () => {
    send(5);
    stage.runtime.schedule(1_000, () => send(5));
    expect(await found([7])).toEqual([7]);
  });

  it('fails with LEDGER_TRUNCATED for an offset after the end, when the leader still reports that after 5 s', async () => {
    send(5);
    expect(await outcome(entries.read(0, [7]))).toMatch(/^LEDGER_TRUNCATED: .*offset 7/);
  });

  it('fails with LEDGER_UNANSWERED for the next offset to be appended', async () => {
    send(5);
    expect(await outcome(entries.read(0, [5]))).toMatch(/^LEDGER_UNANSWERED: .*offset 5/);
  });

  it('fails with LEDGER_UNREADABLE for an entry that is damaged', async () => {
    send(5);
    stage.distort = (answer) => {
      for (const { records } of answer.partitions)
        records.writeUInt8(records.readUInt8(records.length - 1) ^ 1, records.length - 1);
      return answer;
    };
    expect(await outcome(entries.read(0, [0]))).toMatch(/^LEDGER_UNREADABLE: /);
  });
});
