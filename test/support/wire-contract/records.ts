import { describe, expect, it } from 'vitest';
import { encodeBatch } from '../../../src/kafka/records/encode.ts';
import { RUNTIME } from '../../../src/runtime.ts';
import { batchOf, CALL_MS, only, type WireStage } from './stage.ts';

/** In a batch: the position of its base offset, and the start of what a broker never changes without LogAppendTime. */
const CHECKED_FROM = 16;
const LENGTH_AT = 8;
const HEAD_BYTES = 12;
const MAX_TIMESTAMP_AT = 35;

/** Splits the records of an answer into whole batches. */
function batchesIn(records: Buffer): Buffer[] {
  const batches: Buffer[] = [];
  for (let at = 0; at + HEAD_BYTES <= records.length; ) {
    const end = at + HEAD_BYTES + records.readInt32BE(at + LENGTH_AT);
    if (end > records.length) break;
    batches.push(records.subarray(at, end));
    at = end;
  }
  return batches;
}

/** Between the clock of a broker on this machine and that of the test. */
const SKEW_MS = 1_000;

const offsetOf = (batch: Buffer | undefined) => Number(batch?.readBigInt64BE(0));
const bodyOf = (batch: Buffer | undefined) => batch?.toString('latin1', CHECKED_FROM);

export function recordsContract(at: () => WireStage): void {
  describe('records', () => {
    it('a batch is returned byte for byte, except for the fields before its checksummed part', async () => {
      const topic = await at().topic();
      const sent = [batchOf(['a', 'b', 'c']), batchOf(['d'])];
      const offsets = [];
      for (const batch of sent) offsets.push((await at().produce(topic, 0, batch)).baseOffset);
      expect(offsets).toEqual([0, 3]);
      const { records, highWatermark, logStartOffset, aborted } = await at().fetch(topic, 0, 0);
      expect(batchesIn(records).map(bodyOf)).toEqual(sent.map(bodyOf));
      expect(batchesIn(records).map(offsetOf)).toEqual([0, 3]);
      expect([highWatermark, logStartOffset, aborted]).toEqual([4, 0, []]);
    });

    it('pipelined batches on one connection are appended in order', async () => {
      const topic = await at().topic();
      const answers = await Promise.all(['a', 'b', 'c', 'd'].map((value) => at().produce(topic, 0, batchOf([value]))));
      expect(answers.map(({ baseOffset }) => baseOffset)).toEqual([0, 1, 2, 3]);
    });

    it('pipelined batches for several partitions each get an answer', async () => {
      const [topic, other] = [await at().topic(3), await at().topic()];
      await at().produce(topic, 1, batchOf(['a', 'b']));
      const places = [0, 1, 2, 1].map((partition) => [topic, partition] as const);
      const answers = await Promise.all(
        [...places, [other, 0] as const].map((to) => at().produce(...to, batchOf(['c']))),
      );
      expect(answers.map(({ baseOffset }) => baseOffset)).toEqual([0, 2, 0, 3, 0]);
    });

    it('a batch that its topic rejects fails alone', async () => {
      const [topic, small] = [await at().topic(), await at().topic(1, { 'max.message.bytes': '200' })];
      const batch = batchOf(['x'.repeat(300)]);
      const answers = await Promise.all([topic, small].map((to) => at().produce(to, 0, batch)));
      expect(answers.map(({ errorCode }) => errorCode)).toEqual([undefined, 'MESSAGE_TOO_LARGE']);
    });

    it("with LogAppendTime, the answer and the batch have the time of the broker, else the sender's alone", async () => {
      const [byBroker, bySender] = [
        await at().topic(1, { 'message.timestamp.type': 'LogAppendTime' }),
        await at().topic(1, { 'message.timestamp.type': 'CreateTime' }),
      ];
      const before = Date.now();
      const { appendedAtMs } = await at().produce(byBroker, 0, batchOf(['a'], before - 100_000));
      expect(appendedAtMs).toBeGreaterThanOrEqual(before - SKEW_MS);
      expect(appendedAtMs).toBeLessThanOrEqual(Date.now() + SKEW_MS);
      const stamped = only(batchesIn((await at().fetch(byBroker, 0, 0)).records));
      expect(Number(stamped.readBigInt64BE(MAX_TIMESTAMP_AT))).toBe(appendedAtMs);
      expect((await at().produce(bySender, 0, batchOf(['a']))).appendedAtMs).toBe(-1);
    });

    it('a topic refuses a batch with a record that is too old, and accepts it at the present time', async () => {
      const limit = { 'message.timestamp.before.max.ms': '600000' };
      const topic = await at().topic(1, { ...limit, 'message.timestamp.type': 'CreateTime' });
      const byBroker = await at().topic(1, { ...limit, 'message.timestamp.type': 'LogAppendTime' });
      const nowMs = RUNTIME.wallMs();
      const record = (ageMs: number) => ({ key: null, value: Buffer.from('a'), timestampMs: nowMs - ageMs });
      const sent = [
        await at().produce(topic, 0, encodeBatch([record(0), record(1_200_000)], nowMs)),
        await at().produce(topic, 0, encodeBatch([record(0), record(60_000)], nowMs)),
        await at().produce(byBroker, 0, encodeBatch([record(1_200_000)], nowMs)),
      ];
      expect(sent.map(({ errorCode }) => errorCode)).toEqual(['INVALID_TIMESTAMP', undefined, undefined]);
      expect((await at().fetch(topic, 0, 0)).highWatermark).toBe(2);
    });

    it('a fetch at the end waits, and answers as soon as something is appended', async () => {
      const topic = await at().topic();
      await at().produce(topic, 0, batchOf(['before']));
      // A broker that waited for as long as it may would answer after the call's deadline, and the call would fail.
      const waiting = at().fetch(topic, 0, 1, { maxWaitMs: 2 * CALL_MS });
      await at().fetch(topic, 0, 0, { purpose: 'another' }); // by now the first fetch has reached the broker as well
      await at().produce(topic, 0, batchOf(['after']));
      expect(offsetOf(only(batchesIn((await waiting).records)))).toBe(1);
    });

    it('a fetch at the end without new records returns none, not before its wait is over', async () => {
      const topic = await at().topic();
      const startMs = RUNTIME.monotonicMs();
      const { records, errorCode, highWatermark } = await at().fetch(topic, 0, 0, { maxWaitMs: 300 });
      expect([records.length, errorCode, highWatermark]).toEqual([0, undefined, 0]);
      expect(RUNTIME.monotonicMs() - startMs).toBeGreaterThan(290);
    });

    it('a fetch from the middle of a batch starts with that batch', async () => {
      const topic = await at().topic();
      await at().produce(topic, 0, batchOf(['a', 'b', 'c']));
      await at().produce(topic, 0, batchOf(['d']));
      const { records } = await at().fetch(topic, 0, 2);
      expect(batchesIn(records).map(offsetOf)).toEqual([0, 3]);
    });

    it('a batch larger than the limit is returned whole, and no whole batch after it', async () => {
      const topic = await at().topic();
      const large = 'x'.repeat(10_000);
      for (const value of [large, large]) await at().produce(topic, 0, batchOf([value]));
      const { records } = await at().fetch(topic, 0, 0, { maxBytes: 1_000 });
      expect(batchesIn(records).map(offsetOf)).toEqual([0]);
    });

    it('a fetch after the end is out of range', async () => {
      const topic = await at().topic();
      const { errorCode, records } = await at().fetch(topic, 0, 1);
      expect([errorCode, records.length]).toEqual(['OFFSET_OUT_OF_RANGE', 0]);
    });

    it('a fault of one partition of a fetch does not affect others', async () => {
      const topic = await at().topic();
      await at().produce(topic, 0, batchOf(['a']));
      const missing = at().name('missing');
      const from = (name: string, partition: number, offset: number) => ({
        topic: name,
        partition,
        offset,
        maxBytes: 1_000,
      });
      const answer = await at().onLeader(topic, 0, (link) =>
        link.call('fetch', {
          maxWaitMs: 500,
          maxBytes: 1_000_000,
          isolation: 'read_committed',
          partitions: [from(missing, 0, 0), from(topic, 0, 0), from(topic, 7, 0)],
        }),
      );
      const found = new Map(answer.partitions.map((of) => [`${of.topic} ${of.partition}`, of]));
      expect(found.get(`${missing} 0`)?.errorCode).toBe('UNKNOWN_TOPIC_OR_PARTITION');
      expect(found.get(`${topic} 7`)?.errorCode).toBe('UNKNOWN_TOPIC_OR_PARTITION');
      expect(found.get(`${topic} 0`)?.errorCode).toBeUndefined();
      expect(batchesIn(found.get(`${topic} 0`)?.records ?? Buffer.alloc(0))).toHaveLength(1);
    });

    it('a batch for a missing partition is rejected', async () => {
      const topic = await at().topic();
      const request = { topic, partition: 3, batch: batchOf(['a']), acks: -1, timeoutMs: CALL_MS } as const;
      const { errorCode } = await at().onLeader(topic, 0, (link) => link.call('produce', request));
      expect(errorCode).toBe('UNKNOWN_TOPIC_OR_PARTITION');
    });

    it('a batch that is too large for its topic is rejected, and none of it is appended', async () => {
      const topic = await at().topic(1, { 'max.message.bytes': '1000' });
      expect((await at().produce(topic, 0, batchOf(['x'.repeat(2_000)]))).errorCode).toBe('MESSAGE_TOO_LARGE');
      expect((await at().produce(topic, 0, batchOf(['small']))).baseOffset).toBe(0);
    });

    it('offsets are found at the start, at the end and by time', async () => {
      const topic = await at().topic(2, { 'message.timestamp.type': 'CreateTime' });
      const [first, second, third] = [1_700_000_001_000, 1_700_000_002_000, 1_700_000_003_000];
      for (const timeMs of [first, second, third]) await at().produce(topic, 0, batchOf(['a', 'b'], timeMs));
      const offsetAt = async (partition: number, timestampMs: number) => {
        const partitions = [{ topic, partition, timestampMs }];
        const answer = await at().onLeader(topic, partition, (link) =>
          link.call('listOffsets', { isolation: 'read_committed', partitions }),
        );
        return only(answer.partitions).offset;
      };
      expect([await offsetAt(0, -2), await offsetAt(0, -1)]).toEqual([0, 6]);
      expect([await offsetAt(0, first), await offsetAt(0, first + 1), await offsetAt(0, third)]).toEqual([0, 2, 4]);
      expect(await offsetAt(0, third + 1)).toBe(-1);
      expect([await offsetAt(1, -2), await offsetAt(1, -1), await offsetAt(1, first)]).toEqual([0, 0, -1]);
    });

    it('a fault of one partition of a list of offsets does not affect others', async () => {
      const topic = await at().topic();
      const partitions = [0, 5].map((partition) => ({ topic, partition, timestampMs: -1 }));
      const answer = await at().onLeader(topic, 0, (link) =>
        link.call('listOffsets', { isolation: 'read_uncommitted', partitions }),
      );
      const faults = new Map(answer.partitions.map(({ partition, errorCode }) => [partition, errorCode]));
      expect([faults.get(0), faults.get(5)]).toEqual([undefined, 'UNKNOWN_TOPIC_OR_PARTITION']);
    });
  });
}
