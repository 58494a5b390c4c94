import type { Admin, Producer, ProducerRecord } from 'kafkajs';
import { describe, expect, it } from 'vitest';
import { KafkaLedgerLog } from '../../../src/adapters/kafka/ledger-log.ts';
import { decodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import type { DriftSample } from '../../../src/core/clock-guard.ts';
import { monoMs, wallMs } from '../../../src/core/units.ts';

const NOW_MS = 1_780_416_300_000;

/** A ledger whose partitions have these leaders; those of `silent` answer no append. */
function world(leaders: readonly number[], silent: readonly number[] = []) {
  const sends: ProducerRecord[] = [];
  const told: DriftSample[] = [];
  const admin = {
    fetchTopicMetadata: async () => ({
      topics: [{ name: 'ledger', partitions: leaders.map((leader, partitionId) => ({ partitionId, leader })) }],
    }),
  } as unknown as Admin;
  const producer = {
    send: async (record: ProducerRecord) => {
      sends.push(record);
      const partition = record.messages[0]?.partition ?? 0;
      const leader = leaders[partition] ?? -1;
      if (silent.includes(leader)) throw new Error('no answer');
      return [{ topicName: 'ledger', partition, errorCode: 0, baseOffset: '7', logAppendTime: `${NOW_MS - leader}` }];
    },
  } as unknown as Producer;
  const log = new KafkaLedgerLog({
    producer,
    admin,
    topic: 'ledger',
    requestTopic: 'requests',
    readClock: () => ({ wall: wallMs(NOW_MS), mono: monoMs(0) }),
    onDriftSample: (sample) => told.push(sample),
  });
  return { log, sends, told };
}

describe('asking the brokers for the time', () => {
  it('asks each leader once, with an entry that tells nothing of the log', async () => {
    const { log, sends, told } = world([1, 2, 1, 3, 2]);
    const samples = await log.askClocks();
    expect(samples.map(({ broker, appended }) => [broker, NOW_MS - appended])).toEqual([
      ['1', 1],
      ['2', 2],
      ['3', 3],
    ]);
    const values = sends.flatMap(({ messages }) => messages.map(({ key, value }) => [key, value]));
    for (const [key, value] of values) {
      expect([key, decodeLedgerEntry(value as Buffer)]).toEqual([null, { kind: 'marker', end: 0, through: -1 }]);
    }
    expect(told).toEqual([]);
  });

  it('asks five leaders at most, and none for a partition that has no leader', async () => {
    const { log, sends } = world([-1, 1, 2, 3, 4, 5, 6, 7]);
    expect(await log.askClocks()).toHaveLength(5);
    expect(sends.some(({ messages }) => messages[0]?.partition === 0)).toBe(false);
  });

  it('goes by those that answer, and rejects when none does', async () => {
    expect(await world([1, 2, 3], [1, 3]).log.askClocks()).toHaveLength(1);
    await expect(world([1, 2], [1, 2]).log.askClocks()).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await expect(world([-1]).log.askClocks()).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  });
});
