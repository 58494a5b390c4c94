import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { FetchSession, type WantedPartition } from '../../../src/kafka/loops/fetch-session.ts';
import { keyOf } from '../../../src/kafka/loops/followed-partition.ts';
import { KafkaError, kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type {
  FetchedPartition,
  FetchPosition,
  FetchRequest,
  FetchResponse,
} from '../../../src/kafka/wire/record-apis.ts';
import { FetchSessions } from '../../support/fake-kafka/fetch-sessions.ts';

const LIMITS = { maxWaitMs: 100, maxBytes: 1_000, maxBytesPerPartition: 100, isolation: 'read_committed' } as const;

const want = (partition: number, fetchFrom = 0): WantedPartition => {
  return { key: keyOf({ topic: 't', partition }), topic: 't', partition, fetchFrom };
};

function stateOf(partition: number, more: Partial<FetchedPartition> = {}): FetchedPartition {
  const bounds = { highWatermark: 10 + partition, lastStableOffset: 10 + partition, logStartOffset: 0 };
  return { topic: 't', partition, ...bounds, aborted: [], records: Buffer.alloc(0), ...more };
}

const SESSION = 7;
const records = Buffer.from('records');

let session: FetchSession;
let sent: FetchRequest[];

beforeEach(() => {
  session = new FetchSession();
  sent = [];
});

/** A fetch that gets this response: the state that it returns of each wanted partition. */
async function fetch(wanted: readonly WantedPartition[], response: Partial<FetchResponse> | KafkaError) {
  const { partitions } = await session.fetch(wanted, LIMITS, async (request) => {
    sent.push(request);
    if (response instanceof KafkaError) throw response;
    return { throttleMs: 0, sessionId: SESSION, partitions: [], ...response };
  });
  return partitions;
}

const all = { partitions: [stateOf(0), stateOf(1), stateOf(2)] };
const three = [want(0), want(1), want(2)];

/** What the last request names, forgets, and to which fetch of which session it belongs. */
function last() {
  const { partitions, session: { id, epoch, forgotten } = {} } = sent.at(-1) as FetchRequest;
  return {
    names: partitions.map(({ partition, offset }) => [partition, offset]),
    forgets: forgotten?.map(({ partition }) => partition),
    of: [id, epoch],
  };
}

const ALL_NAMED = [
  [0, 0],
  [1, 0],
  [2, 0],
];

describe('a fetch session', () => {
  it('begins with everything, and then names only new partitions, other offsets and what is no longer wanted', async () => {
    await fetch(three, all);
    expect(last()).toEqual({ names: ALL_NAMED, forgets: [], of: [0, 0] });
    await fetch(three, {});
    expect(last()).toEqual({ names: [], forgets: [], of: [SESSION, 1] });
    await fetch([want(2), want(0, 5), want(3)], { partitions: [stateOf(3)] });
    expect(last()).toEqual({
      names: [
        [0, 5],
        [3, 0],
      ],
      forgets: [1],
      of: [SESSION, 2],
    });
    await fetch([want(2), want(0, 5), want(3), want(1)], { partitions: [stateOf(1)] });
    expect(last()).toEqual({ names: [[1, 0]], forgets: [], of: [SESSION, 3] });
  });

  it('names a partition again when its limit has changed', async () => {
    await fetch(three, all);
    const send = async (request: FetchRequest) => {
      sent.push(request);
      return { throttleMs: 0, sessionId: SESSION, partitions: [] };
    };
    await session.fetch(three, { ...LIMITS, maxBytesPerPartition: 50 }, send);
    expect(sent.at(-1)?.partitions.map(({ maxBytes }) => maxBytes)).toEqual([50, 50, 50]);
  });

  it('returns the last bounds of a partition that the response leaves out, without its records', async () => {
    const busy = stateOf(1, { records, aborted: [{ producerId: 1n, firstOffset: 0 }] });
    expect(await fetch(three, { partitions: [busy, stateOf(0), stateOf(2)] })).toEqual([stateOf(0), busy, stateOf(2)]);
    const moved = stateOf(2, { highWatermark: 99 });
    expect(await fetch([...three].reverse(), { partitions: [moved] })).toEqual([moved, stateOf(1), stateOf(0)]);
    expect(await fetch(three, {})).toEqual([stateOf(0), stateOf(1), moved]);
  });

  it('says which partition the broker filled first, in whatever order they are wanted', async () => {
    await fetch(three, all);
    const [empty, large, small] = [stateOf(0, { highWatermark: 11 }), stateOf(2, { records }), stateOf(1, { records })];
    const response = { throttleMs: 0, sessionId: SESSION, partitions: [empty, large, small] };
    expect((await session.fetch(three, LIMITS, async () => response)).first).toBe(large);
    expect((await session.fetch(three, LIMITS, async () => ({ ...response, partitions: [] }))).first).toBeUndefined();
  });

  it('that the broker does not know is begun again at once, with everything', async () => {
    for (const errorCode of ['FETCH_SESSION_ID_NOT_FOUND', 'INVALID_FETCH_SESSION_EPOCH']) {
      session = new FetchSession();
      await fetch(three, all);
      const responses = [new KafkaError(errorCode, 'over'), { throttleMs: 0, sessionId: 8, ...all }];
      const { partitions } = await session.fetch([want(0, 3), want(1)], LIMITS, async (request) => {
        sent.push(request);
        const response = responses.shift() as FetchResponse | KafkaError;
        if (response instanceof KafkaError) throw response;
        return response;
      });
      expect(partitions).toEqual([stateOf(0), stateOf(1)]);
      const names = [
        [0, 3],
        [1, 0],
      ];
      expect([last(), responses.length]).toEqual([{ names, forgets: [], of: [SESSION, 0] }, 0]);
    }
  });

  it('rejects with the error of a fetch, and begins again with the next one; the broker ends the old one', async () => {
    await fetch(three, all);
    const lost = new KafkaError('CONNECTION_LOST', 'lost');
    await expect(fetch(three, lost)).rejects.toBe(lost);
    expect(sent).toHaveLength(2);
    await fetch(three, { sessionId: 8, ...all });
    expect(last()).toEqual({ names: ALL_NAMED, forgets: [], of: [SESSION, 0] });
    await fetch(three, { sessionId: 8 });
    expect(last()).toEqual({ names: [], forgets: [], of: [8, 1] });
  });

  it('is not asked for a second time in one fetch', async () => {
    await fetch(three, all);
    const over = new KafkaError('FETCH_SESSION_ID_NOT_FOUND', 'over');
    expect(await fetch(three, over).catch(kafkaErrorCode)).toBe('FETCH_SESSION_ID_NOT_FOUND');
    expect(sent).toHaveLength(3);
  });

  it('is done without while the broker refuses one', async () => {
    for (let fetches = 0; fetches < 3; fetches += 1) {
      expect(await fetch(three, { sessionId: 0, ...all })).toEqual(all.partitions);
      expect(last()).toEqual({ names: ALL_NAMED, forgets: [], of: [0, 0] });
    }
  });
});

describe('a fetch that names everything follows', () => {
  /** The states that a response leads to, after one with everything; the next fetch must name everything. */
  async function ends(wanted: readonly WantedPartition[], response: Partial<FetchResponse>) {
    await fetch(three, all);
    const states = await fetch(wanted, response);
    await fetch(three, all);
    expect(last()).toMatchObject({ names: ALL_NAMED, forgets: [] });
    return states.map((state) => state?.errorCode);
  }

  it('a response without a partition that is new in the session, which has an error', async () => {
    expect(await ends([...three, want(3)], {})).toEqual([undefined, undefined, undefined, 'MALFORMED_RESPONSE']);
  });

  it('a response without a partition that had an error in the one before, and has one again', async () => {
    await fetch(three, all);
    const refused = stateOf(1, { errorCode: 'NOT_LEADER_FOR_PARTITION', highWatermark: -1 });
    await fetch(three, { partitions: [refused] });
    expect((await fetch(three, {})).map((state) => state?.errorCode)).toEqual([
      undefined,
      'MALFORMED_RESPONSE',
      undefined,
    ]);
    await fetch(three, all);
    expect(last()).toMatchObject({ names: ALL_NAMED });
  });

  it('a full response without a partition', async () => {
    expect((await fetch(three, { partitions: [stateOf(0), stateOf(2)] })).map((state) => state?.errorCode)).toEqual([
      undefined,
      'MALFORMED_RESPONSE',
      undefined,
    ]);
    await fetch(three, all);
    expect(last()).toMatchObject({ names: ALL_NAMED });
  });

  it('a response with a partition that is not in the session', async () => {
    expect(await ends([want(0), want(1)], { partitions: [stateOf(2, { records })] })).toEqual([undefined, undefined]);
  });

  it('a response of no session, or of another one', async () => {
    expect(await ends(three, { sessionId: 0 })).toEqual([undefined, undefined, undefined]);
    expect(await ends(three, { sessionId: 8 })).toEqual([undefined, undefined, undefined]);
  });
});

describe('a broker that throttles', () => {
  it('has read nothing, so that nothing is known of any partition, and none has an error', async () => {
    expect(await fetch(three, { throttleMs: 50, sessionId: 0 })).toEqual([undefined, undefined, undefined]);
    await fetch(three, all);
    expect(last()).toEqual({ names: ALL_NAMED, forgets: [], of: [0, 0] });
    expect(await fetch([...three, want(3)], { throttleMs: 50 })).toEqual(new Array(4).fill(undefined));
    expect(await fetch([...three, want(3)], { partitions: [stateOf(3)] })).toEqual([...all.partitions, stateOf(3)]);
    expect(last()).toEqual({ names: [], forgets: [], of: [SESSION, 2] });
  });
});

describe('whatever happens to logs, positions and sessions', () => {
  /** The logs of a broker, each a start and an end; of an even partition some records wait behind a limit. */
  class Logs {
    readonly sessions: FetchSessions;
    readonly bounds = Array.from({ length: PARTITIONS }, () => ({ start: 0, end: 0, isIll: false }));
    #ids = 0;

    constructor(most: number) {
      this.sessions = new FetchSessions(
        () => ++this.#ids,
        () => most,
      );
    }

    read({ partition, offset }: Pick<FetchPosition, 'partition' | 'offset'>): FetchedPartition {
      const { start, end, isIll } = this.bounds[partition] ?? { start: 0, end: 0, isIll: true };
      const bounds = { highWatermark: end, lastStableOffset: end, logStartOffset: start };
      if (isIll) return stateOf(partition, { ...bounds, errorCode: 'NOT_LEADER_FOR_PARTITION', highWatermark: -1 });
      if (offset < start || offset > end) return stateOf(partition, { ...bounds, errorCode: 'OFFSET_OUT_OF_RANGE' });
      return stateOf(partition, { ...bounds, records: Buffer.from(Array.from({ length: end - offset }, () => 1)) });
    }

    fetch(request: FetchRequest): FetchResponse {
      const begun = this.sessions.begin(request);
      const response = typeof begun === 'string' ? begun : begun.respond(begun.positions.map((one) => this.read(one)));
      if (typeof response === 'string') throw new KafkaError(response, 'refused');
      return { throttleMs: 0, ...response };
    }
  }

  const PARTITIONS = 4;
  const partition = fc.nat(PARTITIONS - 1);
  const step = fc.oneof(
    fc.record({ does: fc.constant('append' as const), partition }),
    fc.record({ does: fc.constant('trim' as const), partition }),
    fc.record({ does: fc.constant('fall ill or recover' as const), partition }),
    fc.record({ does: fc.constant('seek' as const), partition, to: fc.nat(5) }),
    fc.record({ does: fc.constant('want or leave' as const), partition }),
    fc.record({ does: fc.constantFrom('lose the request', 'lose the response', 'forget sessions' as const) }),
    fc.record({ does: fc.constant('fetch' as const) }),
  );

  it('each fetch returns what one that names everything would', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.constantFrom(0, 1, 5), async (steps, most) => {
        const [logs, reader] = [new Logs(most), new FetchSession()];
        const positions = new Map([0, 1, 2].map((one) => [one, 0]));
        const look = async (send: (request: FetchRequest) => FetchResponse) => {
          const wanted = [...positions].map(([one, offset]) => want(one, offset));
          const { partitions } = await reader.fetch(wanted, LIMITS, async (request) => send(request));
          expect(partitions).toEqual([...positions].map(([one, offset]) => logs.read({ partition: one, offset })));
        };
        const lost = () => {
          throw new KafkaError('CONNECTION_LOST', 'lost');
        };
        for (const one of steps) {
          if (one.does === 'append') (logs.bounds[one.partition] as { end: number }).end += 1;
          else if (one.does === 'trim') {
            const bounds = logs.bounds[one.partition] as { start: number; end: number };
            bounds.start = Math.min(bounds.start + 1, bounds.end);
          } else if (one.does === 'fall ill or recover') {
            const bounds = logs.bounds[one.partition] as { isIll: boolean };
            bounds.isIll = !bounds.isIll;
          } else if (one.does === 'seek') {
            if (positions.has(one.partition)) positions.set(one.partition, one.to);
          } else if (one.does === 'want or leave') {
            if (!positions.delete(one.partition)) positions.set(one.partition, 0);
          } else if (one.does === 'forget sessions') logs.sessions.clear();
          else if (positions.size > 0) {
            if (one.does === 'lose the request') await expect(look(lost)).rejects.toThrow();
            else if (one.does === 'fetch') await look((request) => logs.fetch(request));
            else {
              const answered = (request: FetchRequest) => {
                logs.fetch(request);
                return lost();
              };
              await expect(look(answered)).rejects.toThrow();
            }
          }
        }
      }),
      { numRuns: 500 },
    );
  });
});
