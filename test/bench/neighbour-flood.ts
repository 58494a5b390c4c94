import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
import { zstdCompressSync } from 'node:zlib';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { append } from '../../src/kafka/loops/leader-calls.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { Rng } from '../sim/rng.ts';
import { filledId } from '../support/filled-ledger.ts';
import { batchOf, CODEC, type HandmadeRecord } from '../support/record-bytes.ts';
import { CALL_FLOODS } from './neighbour-calls.ts';

/**
 * The floods of the neighbour bench that go over Kafka. A flood runs in a thread of its own, so that what it costs to
 * make one does not delay the sender whose requests are measured.
 */
export interface FloodTarget {
  readonly name: string;
  readonly brokers: readonly string[];
  readonly requestTopic: string;
  /** The neighbour's own reply topic. Its other topics begin with this name. */
  readonly replyTopic: string;
  /** Where the replies to the HTTP API go. */
  readonly apiReplyTopic: string;
  readonly apiPort: number;
  readonly opsPort: number;
  /** The neighbour's token for the HTTP API. */
  readonly token: string;
  /** Entries that each partition of the ledger had before, of requests by the neighbour. */
  readonly filled: number;
  /** What a random flood is drawn from. */
  readonly seed: number;
  /** How long it takes, roughly. */
  readonly seconds: number;
  /** The number of its first batch. The same number makes the same batch. */
  readonly firstBatch: number;
}

export const PARTITIONS = 4;
/** Topics, and partitions of one topic, to which one flood is answered. */
export const DESTINATIONS = 300;
/** As many records as brokers take in a batch, roughly; the broker decompresses and checks each. */
const JUNK_RECORDS = 100_000;
/** The most records of a batch that is not bulk. */
const MOST = 100;
/** Brokers take less than 1 MiB in a batch, without its compression. */
const HEADER_BYTES = 900_000;
/** About as many as a request takes in a batch. */
const REQUEST_BYTES = 200;

const APPEND = { purpose: 'publish', timeoutMs: 30_000, replicationTimeoutMs: 30_000 } as const;

interface Flood {
  /** From one batch to the next. One that takes longer delays the next. */
  readonly pauseMs: number;
  /** The nth batch, each for the next partition. */
  readonly make: (target: FloodTarget, nth: number) => Buffer;
}

const times = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));
const recordOf = (value: Buffer): HandmadeRecord => ({ key: null, value });
const junk = (records: number) => compressed(times(records, () => ({ key: null, value: null })));
const partitionOf = (nth: number) => nth % PARTITIONS;

function compressed(records: readonly HandmadeRecord[]): Buffer {
  const now = BigInt(Date.now());
  const fields = { attributes: CODEC.zstd, baseTime: now, maxTime: now, producerId: -1n };
  return batchOf(records, fields, zstdCompressSync);
}

/** Makes so many batches, one by default, and goes through them again and again. */
function again(make: Flood['make'], batches = 1): Flood['make'] {
  const made: Buffer[] = [];
  return (target, nth) => {
    const at = nth % batches;
    made[at] ??= make(target, nth);
    return made[at];
  };
}

function asking(count: number, replyTopic: string, name: string, encoding: 'RANGES' | 'IDS' = 'RANGES') {
  return recordOf(encodeIdRequest({ count, correlationId: Buffer.from(name), replyTopic, encoding }));
}

function madeUpSchema(id: number): HandmadeRecord {
  const value = Buffer.alloc(16);
  value.writeInt32BE(1_000 + id, 1);
  return recordOf(value);
}

const withHeader = (record: HandmadeRecord, name: string, value: Buffer): HandmadeRecord => {
  return { ...record, headers: [...(record.headers ?? []), [Buffer.from(name), value]] };
};

/** New correlation IDs whose home is the partition. */
function atHome(count: number, name: string, partition: number): readonly string[] {
  const found: string[] = [];
  for (let k = 0; found.length < count; k += 1) {
    const id = `${name}-${k}`;
    if (partitionFor(Buffer.from(id), PARTITIONS, () => 0) === partition) found.push(id);
  }
  return found;
}

/** A record in its home partition for each of so many new correlation IDs. */
function news(count: number, nth: number, make: (id: string, k: number) => HandmadeRecord): readonly HandmadeRecord[] {
  return atHome(count, `n${nth}`, partitionOf(nth)).map(make);
}

/** Places that lie apart: each is as far behind the last one as the golden ratio says, so none is near another. */
const placeOf = (filled: number, k: number) => Math.floor(((k * 0.618_033_988_75) % 1) * filled);

/** A request that is known since the ledger was filled; every second one says something else than it did. */
function known({ filled, replyTopic }: FloodTarget, nth: number, k: number): HandmadeRecord {
  return asking(1 + (k % 2), replyTopic, filledId(partitionOf(nth), placeOf(filled, nth * MOST + k)));
}

export const KAFKA_FLOODS: Readonly<Record<string, Flood>> = {
  /** 500 requests for 100,000 IDs each, in a few KB, to each partition every two seconds. */
  large: {
    pauseMs: 500,
    make: ({ replyTopic }, nth) => compressed(times(500, (k) => asking(100_000, replyTopic, `large-${nth}-${k}`))),
  },
  /** The same request for 100,000 listed IDs, 500 times in a batch, within a quota. */
  replays: {
    pauseMs: 100,
    make: again(({ replyTopic }) => compressed(times(500, () => asking(100_000, replyTopic, 'replayed', 'IDS')))),
  },
  /** 5,000 made-up schema IDs in a batch. */
  schemas: { pauseMs: 250, make: (_, nth) => compressed(times(5_000, (k) => madeUpSchema(nth * 5_000 + k))) },
  /** 100,000 records that are not requests, in a batch of a few KB. */
  junk: { pauseMs: 500, make: again(() => junk(JUNK_RECORDS)) },
  /** The same in batches of a size that usual producers send as well. */
  'small-junk': { pauseMs: 250, make: again(() => junk(5_000)) },
  /** 1,000 requests in a batch, each for a reply topic of its own that does not exist. */
  missing: {
    pauseMs: 250,
    make: ({ replyTopic }, nth) =>
      compressed(times(1_000, (k) => asking(1, `${replyTopic}-${nth}-${k}`, `m-${nth}-${k}`))),
  },
  /** 400 known requests a second whose decisions lie all over the ledger: half get their batch again, half CONFLICT. */
  apart: { pauseMs: 250, make: (target, nth) => compressed(times(MOST, (k) => known(target, nth, k))) },
  /** 2,000 requests a second, in turn to 300 partitions of one topic and to 300 topics. */
  wide: {
    pauseMs: 50,
    make: ({ replyTopic }, nth) =>
      compressed(
        news(MOST, nth, (id, k) => {
          const place = (nth * MOST + k) % DESTINATIONS;
          return nth % 8 < PARTITIONS
            ? withHeader(asking(1, `${replyTopic}-wide`, id), 'kafka_replyPartition', Buffer.from(String(place)))
            : asking(1, `${replyTopic}-many-${place}`, id);
        }),
      ),
  },
  /** 1,000 requests a second to a topic whose `max.message.bytes` is so small that it takes no record. */
  refusing: {
    pauseMs: 100,
    make: ({ replyTopic }, nth) => compressed(news(MOST, nth, (id) => asking(1, `${replyTopic}-refusing`, id))),
  },
  /** A request in the wrong partition with 900 KB of a header, which zstd makes 172 bytes of, 20 times a second. */
  headers: {
    pauseMs: 50,
    make: ({ replyTopic }, nth) => {
      const record = news(1, nth + 1, (id) => asking(1, replyTopic, id));
      return compressed(record.map((one) => withHeader(one, 'pad', Buffer.alloc(HEADER_BYTES))));
    },
  },
  /** 10,000 requests a second above a quota of 100, in batches that are just not bulk. */
  'over-quota': {
    pauseMs: 10,
    make: again(
      ({ replyTopic }, nth) => compressed(news(MOST, nth, (id) => asking(1, replyTopic, id))),
      32 * PARTITIONS,
    ),
  },
  /** 20 requests a second for 100,000 listed IDs, whose replies every worker reads. */
  'api-topic': {
    pauseMs: 1_000,
    make: again(
      ({ apiReplyTopic }, nth) => compressed(news(20, nth, (id) => asking(100_000, apiReplyTopic, id, 'IDS'))),
      PARTITIONS,
    ),
  },
  /** Batches whose prices are drawn: records, IDs, bytes, look-ups and destinations. */
  mix: { pauseMs: 100, make: mixed() },
};

/** Each batch has prices of its own. The same seed draws the same batches. */
function mixed(): Flood['make'] {
  let rng: Rng | undefined;
  return (target, nth) => {
    rng ??= new Rng(target.seed);
    const draw = rng;
    const records = draw.pick([1, 8, MOST, MOST + 1, 500, 2_000]);
    const count = draw.pick([1, 1, 1, 100, 100_000]);
    const encoding = draw.pick(['RANGES', 'IDS'] as const);
    const [isKnown, isJunk] = [draw.chance(0.25), draw.chance(0.1)];
    const topic = draw.pick(['', '', '-wide', '-many', '-refusing', '-missing']);
    const pad = Math.floor(draw.pick([0, 0, 10_000, HEADER_BYTES - records * REQUEST_BYTES]) / records);
    const made = news(records, nth, (id, k) => {
      if (isJunk) return recordOf(Buffer.alloc(draw.below(40)));
      if (isKnown) return known(target, nth, k);
      const to = `${target.replyTopic}${topic}`;
      return asking(count, topic === '-many' ? `${to}-${draw.below(DESTINATIONS)}` : to, id, encoding);
    });
    return compressed(pad === 0 ? made : made.map((record) => withHeader(record, 'pad', Buffer.alloc(pad))));
  };
}

/**
 * Batches are made before the flood begins: otherwise what they take, and the garbage that they leave, would be
 * measured as what the flood costs.
 */
async function sendBatches({ make, pauseMs }: Flood, target: FloodTarget, ended: AbortSignal): Promise<void> {
  const dialer = kafkaDialer({ clientId: 'neighbour', tls: false });
  const cluster = new Cluster({ dialer, seeds: seedsOf(target.brokers), runtime: RUNTIME });
  const topic = target.requestTopic;
  const first = target.firstBatch;
  const made = times(Math.ceil((target.seconds * 1_000) / pauseMs), (i) => make(target, first + i));
  let dueMs = performance.now();
  for (let nth = first; !ended.aborted; nth += 1) {
    const batch = made[nth - first] ?? make(target, nth);
    await append(cluster, RUNTIME, { ...APPEND, topic, partition: partitionOf(nth), batch });
    if (nth === first + PARTITIONS) parentPort?.postMessage('flooding');
    dueMs = Math.max(performance.now(), dueMs + pauseMs);
    await sleep(dueMs - performance.now());
  }
  await cluster.close();
}

/** Says when it has begun, and floods until a message comes. */
async function run(target: FloodTarget): Promise<void> {
  const end = new AbortController();
  parentPort?.once('message', () => end.abort());
  const overKafka = KAFKA_FLOODS[target.name];
  if (overKafka === undefined) {
    await CALL_FLOODS[target.name]?.(target, end.signal, () => parentPort?.postMessage('flooding'));
  } else {
    await sendBatches(overKafka, target, end.signal);
  }
  parentPort?.close();
}

if (!isMainThread) await run(workerData as FloodTarget);
