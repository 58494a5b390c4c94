import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LedgerReading } from '../../../src/adapters/kafka/ledger-reading.ts';
import { Mutex } from '../../../src/async/mutex.ts';
import { throttledLog } from '../../../src/async/throttle.ts';
import { Tail } from '../../../src/kafka/loops/tail.ts';
import { AT, CHECKED_FROM, crc32c } from '../../../src/kafka/records/format.ts';
import type { LedgerRecord, LogBounds } from '../../../src/ledger/ledger-ports.ts';
import type { LedgerPartition } from '../../../src/ledger/partition.ts';
import type { Unreadable } from '../../../src/ledger/read-position.ts';
import { batchOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage, range } from '../../support/loop-stage.ts';

const LEDGER = 'id.ledger';

let stage: LoopStage;
let tail: Tail;
let readings: LedgerReading[];
/** The lives of the copies. */
let lives: number[];
let start: () => void;
let lines: string[];

/** Of all copies: records what they receive; reads from the start of the log, unless a test overrides that. */
const sink = {
  knownEnd: vi.fn((_partition: number) => 0),
  begin: vi.fn((_partition: number, { low }: LogBounds) => low),
  neededFrom: vi.fn(async (_partition: number) => 0),
  deliver: vi.fn((_partition: number, _records: readonly LedgerRecord[], _from: number) => {}),
  doubt: vi.fn((_partition: number) => true),
  expire: vi.fn((_partition: number, _low: number, _high: number) => false),
  invalidate: vi.fn((partition: number, _cause: string) => restart(partition)),
  unreadable: vi.fn((_partition: number, _offset: number, _cause: string) => {}),
};

const offsets = (partition: number) =>
  sink.deliver.mock.calls.flatMap(([of, records]) => (of === partition ? records.map(({ offset }) => offset) : []));
const begun = (partition: number) =>
  sink.begin.mock.calls.filter(([of]) => of === partition).map(([, bounds]) => bounds);
const send = (partition: number, count: number) => stage.send(partition, count, 1, LEDGER);

function open(nodes = 1, partitions = 3, replicas = 1): void {
  stage = new LoopStage({ nodes });
  stage.kafka.cluster.createTopic(LEDGER, { partitions, replicas });
  const { cluster, runtime } = stage;
  lines = [];
  const log = (level: string, _fields: object, message: string) => level === 'warn' && lines.push(message);
  const maxBytes = 8_000_000;
  const limits = { maxWaitMs: 500, maxBytes, maxBytesPerPartition: 1_000_000 };
  tail = new Tail({ cluster, runtime, purpose: 'ledger', isolation: 'read_uncommitted', ...limits });
  const options = {
    cluster,
    runtime,
    tail,
    topic: LEDGER,
    log: throttledLog(runtime, log),
    expiring: new Mutex(),
  };
  readings = [];
  lives = range(0, partitions).map(() => 0);
  start = () => {
    readings = range(0, partitions).map((partition) => new LedgerReading(options, copyOf(partition)));
  };
}

function copyOf(partition: number): LedgerPartition {
  const copy = {
    partition,
    get life() {
      return lives[partition];
    },
    get knownEnd() {
      return sink.knownEnd(partition);
    },
    begin: (bounds: LogBounds) => sink.begin(partition, bounds),
    neededFrom: () => sink.neededFrom(partition),
    deliver: (records: readonly LedgerRecord[], from: number) => sink.deliver(partition, records, from),
    doubt: () => sink.doubt(partition),
    expire: (low: number, high: number) => sink.expire(partition, low, high),
    invalidate: (cause: string) => sink.invalidate(partition, cause),
    unreadable: ({ offset, why }: Unreadable) => sink.unreadable(partition, offset, why),
  };
  return copy as unknown as LedgerPartition;
}

/** As a copy that was found wrong. */
function restart(partition: number): void {
  lives[partition] = (lives[partition] ?? 0) + 1;
  readings[partition]?.restart();
}

async function expireAll(): Promise<void> {
  await Promise.all(readings.map((one) => one.expire()));
}

function stop(): void {
  for (const one of readings) one.stop();
}

beforeEach(() => open());

afterEach(async () => {
  stop();
  await stage.close(tail);
  await stage.pass(60_000);
  expect(stage.runtime.pending, 'timers left behind').toBe(0);
  vi.resetAllMocks();
  sink.knownEnd.mockReturnValue(0);
  sink.begin.mockImplementation((_, { low }) => low);
  sink.expire.mockReturnValue(false);
  sink.doubt.mockReturnValue(true);
  sink.neededFrom.mockResolvedValue(0);
  sink.invalidate.mockImplementation((partition) => restart(partition));
});

describe('the reader of the ledger', () => {
  it('requests the bounds of every partition, then reads from where the sink says', async () => {
    for (const partition of range(0, 3)) send(partition, 10 * (partition + 1));
    stage.kafka.cluster.partition(LEDGER, 1).trim(5);
    sink.begin.mockImplementation((partition, { high }) => high - partition);
    start();
    await stage.until(() => offsets(2).length === 2);
    expect(range(0, 3).map(begun)).toEqual([[{ low: 0, high: 10 }], [{ low: 5, high: 20 }], [{ low: 0, high: 30 }]]);
    send(0, 1);
    await stage.until(() => offsets(0).length === 1);
    expect(range(0, 3).map(offsets)).toEqual([[10], [19], [28, 29]]);
  });

  it('does not accept a log that ends below its known end until its leader has reported that for 6 s', async () => {
    send(0, 10);
    sink.knownEnd.mockReturnValue(12);
    start();
    await stage.pass(5_900);
    expect(begun(0)).toEqual([]);
    await stage.until(() => begun(0).length === 1);
    expect(begun(0)).toEqual([{ low: 0, high: 10 }]);
  });

  it('starts reading a log that turns out to reach its known end', async () => {
    send(0, 10);
    sink.knownEnd.mockReturnValue(12);
    start();
    await stage.pass(500);
    send(0, 2);
    await stage.until(() => begun(0).length === 1);
    expect(begun(0)).toEqual([{ low: 0, high: 12 }]);
  });

  it('skips the entries that the sink does not need', async () => {
    sink.neededFrom.mockResolvedValue(13);
    for (const _ of range(0, 4)) send(0, 5);
    start();
    await stage.until(() => offsets(0).at(-1) === 19);
    expect(sink.deliver.mock.calls[0]?.[2]).toBe(13);
    expect(offsets(0)).toEqual(range(13, 20));
  });

  it('continues after skipped entries, however many they are', async () => {
    sink.neededFrom.mockResolvedValue(1_000);
    send(0, 5);
    start();
    await stage.until(() => sink.neededFrom.mock.calls.length > 0);
    sink.neededFrom.mockResolvedValue(0);
    send(0, 5);
    await stage.until(() => offsets(0).length === 5);
    expect(offsets(0)).toEqual(range(5, 10));
  });

  it('trusts a log that has lost only entries that the sink does not need', async () => {
    send(0, 10);
    start();
    await stage.until(() => offsets(0).length === 10);
    sink.neededFrom.mockResolvedValue(18);
    const { cluster } = stage.kafka;
    cluster.freeze(1);
    send(0, 10);
    cluster.partition(LEDGER, 0).trim(15);
    cluster.thaw(1);
    send(0, 1);
    await stage.until(() => offsets(0).at(-1) === 20);
    expect(offsets(0).slice(10)).toEqual([18, 19, 20]);
    expect(sink.invalidate).not.toHaveBeenCalled();
  });

  it('passes key, value, headers, offset and time of an entry to the sink', async () => {
    const [key, headers] = [Buffer.from('key'), { about: Buffer.from('it') }];
    stage.kafka.cluster.send(LEDGER, 0, [{ key, value: Buffer.from('value'), headers: { about: 'it' } }]);
    const sentMs = Math.floor(stage.runtime.wallMs());
    start();
    await stage.until(() => offsets(0).length === 1);
    expect(sink.deliver.mock.calls).toEqual([
      [0, [{ offset: 0, key, value: Buffer.from('value'), headers, appendedAtMs: sentMs }], 0],
    ]);
  });

  it('yields to the event loop within a long chunk', async () => {
    send(0, 2_500);
    const order: string[] = [];
    sink.deliver.mockImplementation((_, records) => {
      order.push(`${records.length}`);
      if (order.length === 1) setImmediate(() => order.push('other work'));
    });
    start();
    await stage.until(() => order.length === 4);
    expect(order).toEqual(['1000', 'other work', '1000', '500']);
  });

  it('starts what it can while a broker is silent, warns once in 10 s, and starts the rest later', async () => {
    open(2, 2);
    stage.kafka.cluster.freeze(2);
    for (const partition of [0, 1]) send(partition, 3);
    start();
    await stage.until(() => offsets(0).length === 3);
    expect(stage.runtime.monotonicMs()).toBeLessThan(4_000);
    await stage.pass(25_000);
    expect([begun(1), lines.length]).toEqual([[], 3]);
    stage.kafka.cluster.thaw(2);
    await stage.until(() => offsets(1).length === 3);
  });
});

describe('a restarted partition', () => {
  it('stops immediately, even within a chunk, and starts again with new bounds', async () => {
    send(1, 3_000);
    sink.deliver.mockImplementationOnce(() => restart(1));
    sink.begin.mockImplementation((_, { high }) => (begun(1).length <= 1 ? 0 : high - 1));
    start();
    await stage.until(() => begun(1).length === 2);
    expect(offsets(1)).toEqual(range(0, 1_000));
    await stage.until(() => offsets(1).length === 1_001);
    await stage.pass(2_000);
    expect(offsets(1).slice(1_000)).toEqual([2_999]);
  });

  it('starts again after half a second at the earliest, once for all restarts', async () => {
    start();
    await stage.until(() => begun(2).length === 1);
    const beganMs = stage.runtime.monotonicMs();
    for (let asked = 0; asked < 5; asked += 1) restart(2);
    send(2, 1);
    await stage.until(() => begun(2).length === 2);
    expect(offsets(2), 'nothing is read meanwhile').toEqual([]);
    expect(stage.runtime.monotonicMs() - beganMs).toBeGreaterThanOrEqual(500);
    await stage.pass(2_000);
    expect(range(0, 3).map((partition) => begun(partition).length)).toEqual([1, 1, 2]);
  });

  /** The offsets that a copy gets which has read three entries when the broker crashes, and no more follow. */
  async function readAround(isInUse: boolean): Promise<readonly number[]> {
    send(0, 3);
    start();
    await stage.until(() => offsets(0).length === 3);
    sink.begin.mockImplementation((_, { high }) => high - 1);
    sink.doubt.mockImplementation((partition) => {
      if (isInUse) lives[partition] = (lives[partition] ?? 0) + 1;
      return isInUse;
    });
    stage.kafka.cluster.crash(1);
    await stage.pass(50);
    stage.kafka.cluster.restart(1);
    await stage.pass(10_000);
    expect(sink.doubt).toHaveBeenCalledWith(0);
    return offsets(0);
  }

  it('starts again when reading was interrupted, since the log may be another one by then', async () => {
    expect(await readAround(true)).toEqual([0, 1, 2, 2]);
  });

  it('continues when reading was interrupted while its copy is not in use', async () => {
    expect(await readAround(false)).toEqual([0, 1, 2]);
  });

  it('starts with bounds requested after the last restart, even during a start', async () => {
    send(0, 5);
    sink.begin.mockImplementation((_, { high }) => high);
    let answers = 0;
    stage.kafka.network.script = (call, way) => {
      // All six bounds have been requested, and the first answer is on its way.
      if (call === 'listOffsets' && way === 'back' && answers++ === 0) restart(1);
      return undefined;
    };
    start();
    await stage.until(() => begun(0).length === 1 && begun(1).length === 1);
    send(0, 1);
    await stage.until(() => offsets(0).length === 1);
    expect([offsets(0), begun(1).length]).toEqual([[5], 1]);
  });

  it('is retried when the index fails to start', async () => {
    send(0, 1);
    sink.begin.mockImplementationOnce(() => {
      throw new Error('the disk is full');
    });
    start();
    await stage.until(() => offsets(0).length === 1);
    expect([begun(0).length, lines.length]).toEqual([2, 1]);
  });

  it.each([
    ['trimmed beyond the reading position', () => stage.kafka.cluster.partition(LEDGER, 0).trim(8), 2, [8, 9]],
    ['truncated below it', () => stage.kafka.cluster.truncate(LEDGER, 0, 1), 9, range(0, 5)],
  ])('is restarted when its log was %s', async (_what, change, from, after) => {
    for (const count of [5, 5]) send(0, count);
    change();
    sink.begin.mockImplementation((_, { low }) => (begun(0).length <= 1 ? from : low));
    start();
    send(0, 0);
    await stage.until(() => sink.invalidate.mock.calls.length === 1);
    const { end } = stage.kafka.cluster.partition(LEDGER, 0).log;
    if (end === 0) send(0, 5);
    await stage.until(() => offsets(0).length === after.length);
    expect(offsets(0)).toEqual(after);
    expect(sink.invalidate.mock.calls[0]).toEqual([0, expect.stringContaining(`offset ${from} was expected`)]);
  });
});

describe('unreadable records', () => {
  it('stop their partition, with topic and reason; earlier records are delivered', async () => {
    send(0, 2);
    const damaged = batchOf([{ key: null, value: Buffer.from('x') }], { timestampMs: 0 });
    damaged.fill(0xff, AT.records);
    damaged.writeUInt32BE(crc32c(damaged.subarray(CHECKED_FROM)), AT.crc);
    stage.kafka.cluster.sendBatch(LEDGER, 0, damaged);
    for (const partition of [0, 1]) send(partition, 2);
    start();
    await stage.until(() => sink.unreadable.mock.calls.length === 1 && offsets(1).length === 2);
    send(0, 1);
    await stage.pass(5_000);
    expect(offsets(0)).toEqual([0, 1]);
    expect(sink.unreadable.mock.calls).toEqual([[0, 2, expect.stringMatching(/'id\.ledger'.*damaged.*retention/)]]);
  });
});

describe('expiry', () => {
  it('passes the bounds of each log to its copy until it has removed all expired entries, one copy after the other', async () => {
    for (const partition of range(0, 3)) send(partition, 20);
    start();
    await stage.until(() => offsets(2).length === 20);
    for (const partition of range(0, 3)) stage.kafka.cluster.partition(LEDGER, partition).trim(partition + 1);
    let steps = 3;
    sink.expire.mockImplementation((partition) => partition === 0 && --steps > 0);
    await stage.runtime.until(expireAll());
    expect(sink.expire.mock.calls).toEqual([
      [0, 1, 20],
      [0, 1, 20],
      [0, 1, 20],
      [1, 2, 20],
      [2, 3, 20],
    ]);
  });

  it('ignores bounds that are older than those of the last start', async () => {
    start();
    await stage.until(() => begun(2).length === 1);
    let isBusy = true;
    sink.expire.mockImplementation((partition) => partition === 0 && isBusy);
    const expired = expireAll();
    await stage.until(() => sink.expire.mock.calls.length > 0); // the others wait for their turn with bounds of before
    restart(2);
    await stage.until(() => begun(2).length === 2);
    isBusy = false;
    await stage.runtime.until(expired);
    expect(new Set(sink.expire.mock.calls.map(([partition]) => partition))).toEqual(new Set([0, 1]));
  });

  it('survives a failing store, and ends with the reading', async () => {
    start();
    await stage.until(() => begun(2).length === 1);
    sink.expire.mockImplementation(() => {
      throw new Error('the disk is full');
    });
    for (const _ of range(0, 2)) await stage.runtime.until(expireAll());
    expect([sink.expire.mock.calls.length, lines]).toEqual([6, ['removing expired entries from the index failed']]);
    sink.expire.mockReturnValue(true);
    const expired = expireAll();
    await stage.until(() => sink.expire.mock.calls.length > 10);
    stop();
    await stage.runtime.until(expired);
  });
});

describe('stop', () => {
  it('makes no more calls to the sink, even in the middle of a chunk or a start', async () => {
    send(0, 3_000);
    sink.deliver.mockImplementationOnce(() => stop());
    start();
    await stage.pass(1_000);
    const { length } = stage.fetches;
    await stage.pass(60_000);
    expect([sink.deliver.mock.calls.length, stage.fetches.length]).toEqual([1, length]);
    open(1, 1);
    stage.kafka.cluster.freeze(1);
    start();
    await stage.pass(1_000);
    stop();
    stage.kafka.cluster.thaw(1);
    const before = sink.begin.mock.calls.length;
    await stage.pass(10_000);
    expect(sink.begin.mock.calls.length).toBe(before);
  });
});
