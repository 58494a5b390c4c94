import { describe, expect, it } from 'vitest';
import { FetchSession } from '../../../src/kafka/loops/fetch-session.ts';
import { keyOf } from '../../../src/kafka/loops/followed-partition.ts';
import type { TopicPartition } from '../../../src/kafka/wire/api.ts';
import type { FetchPosition, FetchRequest, FetchResponse } from '../../../src/kafka/wire/record-apis.ts';
import { batchOf, CALL_MS, faultFrom, type WireStage } from './stage.ts';

const LIMITS = { maxWaitMs: 20, maxBytes: 1_000_000, isolation: 'read_uncommitted' } as const;
const MAX_BYTES = 100_000;
/** More brokers than a contract runs on. */
const PER_LEADER = 3;

export function sessionsContract(at: () => WireStage): void {
  /** So many partitions of a new topic, all with the same leader. */
  async function ledByOne(count: number): Promise<TopicPartition[]> {
    const topic = await at().topic(count * PER_LEADER);
    const all = Array.from({ length: count * PER_LEADER }, (_, partition) => ({ topic, partition }));
    const leaders = await Promise.all(all.map(({ partition }) => at().cluster.leader(topic, partition, CALL_MS)));
    return all.filter((_, i) => leaders[i] === leaders[0]).slice(0, count);
  }

  const fetch = (places: readonly TopicPartition[], request: Pick<FetchRequest, 'partitions' | 'session'>) => {
    const { topic, partition } = places[0] as TopicPartition;
    const use = { ...LIMITS, ...request };
    return at().onLeader<FetchResponse>(topic, partition, (link) => link.call('fetch', use), 'requests');
  };
  const from = (place: TopicPartition | undefined, offset = 0): FetchPosition => {
    return { ...(place as TopicPartition), offset, maxBytes: MAX_BYTES };
  };
  const send = (place: TopicPartition | undefined) => {
    const { topic, partition } = place as TopicPartition;
    return at().produce(topic, partition, batchOf(['a']));
  };

  /** A session that has fetched some partitions at their ends. `shown`: which of them a response has. */
  async function begun(count: number) {
    const places = await ledByOne(count);
    const first = { partitions: places.map((place) => from(place)), session: { id: 0, epoch: 0, forgotten: [] } };
    const response = await fetch(places, first);
    const shown = ({ partitions }: FetchResponse) =>
      places.flatMap((place, i) => (partitions.some((one) => keyOf(one) === keyOf(place)) ? [i] : []));
    const next = async (epoch: number, partitions: FetchPosition[] = [], forgotten: TopicPartition[] = []) =>
      await fetch(places, { partitions, session: { id: response.sessionId, epoch, forgotten } });
    return { places, response, shown, next };
  }

  describe('fetch sessions', () => {
    it('begin with all partitions, and afterwards a response has only what is news', async () => {
      const { places, response, shown, next } = await begun(3);
      expect([response.sessionId > 0, shown(response)]).toEqual([true, [0, 1, 2]]);
      expect(shown(await next(1))).toEqual([]);
      await send(places[1]);
      const news = await next(2);
      expect(news.sessionId).toBe(response.sessionId);
      expect(news.partitions).toMatchObject([{ ...places[1], highWatermark: 1, logStartOffset: 0 }]);
      expect(shown(await next(3)), 'as long as it is not taken').toEqual([1]);
      expect(shown(await next(4, [from(places[1], 1)]))).toEqual([]);
      const missing = { topic: at().name('missing'), partition: 0 };
      const refused = [{ ...missing, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION' }];
      expect((await next(5, [from(missing)])).partitions).toMatchObject(refused);
      expect((await next(6)).partitions, 'as long as it is in the session').toMatchObject(refused);
    });

    it('take partitions in, and forget them', async () => {
      const { places, shown, next } = await begun(2);
      for (const place of places) await send(place);
      expect(shown(await next(1, [], places.slice(0, 1)))).toEqual([1]);
      expect(shown(await next(2, [from(places[0])]))).toEqual([0, 1]);
    });

    it('are refused with another number than the next one, and once they are over', async () => {
      const { places, next } = await begun(1);
      expect(await faultFrom(next(2))).toBe('INVALID_FETCH_SESSION_EPOCH');
      expect((await next(0, [from(places[0])])).sessionId).toBeGreaterThan(0);
      expect(await faultFrom(next(1))).toBe('FETCH_SESSION_ID_NOT_FOUND');
    });

    it('are used by a reader of many partitions, which misses nothing', async () => {
      const places = await ledByOne(8);
      const session = new FetchSession();
      const named: number[] = [];
      const offsets = places.map(() => 0);
      const look = async () => {
        const wanted = places.map((place, i) => ({ ...place, key: keyOf(place), fetchFrom: offsets[i] ?? 0 }));
        const { partitions } = await session.fetch(
          wanted,
          { ...LIMITS, maxBytesPerPartition: MAX_BYTES },
          (request) => {
            named.push(request.partitions.length);
            return fetch(places, request);
          },
        );
        for (const [i, read] of partitions.entries()) if (read?.records.length) offsets[i] = read.highWatermark;
        return partitions.map((read) => read?.highWatermark);
      };
      expect(await look()).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
      for (const i of [2, 5, 2]) {
        await send(places[i]);
        await look();
      }
      expect(await look()).toEqual([0, 0, 2, 0, 0, 1, 0, 0]);
      expect(offsets).toEqual([0, 0, 2, 0, 0, 1, 0, 0]);
      expect(named).toEqual([8, 0, 1, 1, 1]);
    });
  });
}
