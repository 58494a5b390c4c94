import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
import { zstdCompressSync } from 'node:zlib';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { append } from '../../src/kafka/loops/leader-calls.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { batchOf, CODEC, type HandmadeRecord } from '../support/record-bytes.ts';

/**
 * The floods of the neighbour bench. Each runs in a thread of its own, so that what it costs to make one does not delay
 * the sender whose requests are measured.
 */
export interface FloodTarget {
  readonly name: string;
  readonly brokers: readonly string[];
  readonly requestTopic: string;
  /** The neighbour's own reply topic. */
  readonly replyTopic: string;
  readonly apiPort: number;
}

export const PARTITIONS = 4;
/** As many records as brokers take in a batch, roughly; the broker decompresses and checks each. */
const JUNK_RECORDS = 100_000;

const APPEND = { purpose: 'publish', timeoutMs: 30_000, replicationTimeoutMs: 30_000 } as const;

interface Flood {
  readonly pauseMs: number;
  /** The nth batch, each in the next partition. */
  readonly make: (target: FloodTarget, nth: number) => Buffer;
}

const times = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));
const recordOf = (value: Buffer): HandmadeRecord => ({ key: null, value });
const junk = (records: number) => compressed(times(records, () => ({ key: null, value: null })));

function compressed(records: readonly HandmadeRecord[]): Buffer {
  const now = BigInt(Date.now());
  const fields = { attributes: CODEC.zstd, baseTime: now, maxTime: now, producerId: -1n };
  return batchOf(records, fields, zstdCompressSync);
}

/** Makes the batch once, since it is the same each time. */
function always(make: (target: FloodTarget) => Buffer): Flood['make'] {
  let batch: Buffer | undefined;
  return (target) => {
    batch ??= make(target);
    return batch;
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

export const FLOODS: Readonly<Record<string, Flood>> = {
  /** 500 requests for 100,000 IDs each, in a few KB, to each partition every two seconds. */
  large: {
    pauseMs: 500,
    make: ({ replyTopic }, nth) => compressed(times(500, (k) => asking(100_000, replyTopic, `large-${nth}-${k}`))),
  },
  /** The same request for 100,000 listed IDs, 500 times in a batch, within a quota. */
  replays: {
    pauseMs: 100,
    make: always(({ replyTopic }) => compressed(times(500, () => asking(100_000, replyTopic, 'replayed', 'IDS')))),
  },
  /** 5,000 made-up schema IDs in a batch. */
  schemas: { pauseMs: 250, make: (_, nth) => compressed(times(5_000, (k) => madeUpSchema(nth * 5_000 + k))) },
  /** 100,000 records that are not requests, in a batch of a few KB. */
  junk: { pauseMs: 500, make: always(() => junk(JUNK_RECORDS)) },
  /** The same in batches of a size that usual producers send as well. */
  'small-junk': { pauseMs: 250, make: always(() => junk(5_000)) },
  /** 1,000 requests in a batch, each for a reply topic of its own that does not exist. */
  missing: {
    pauseMs: 250,
    make: ({ replyTopic }, nth) =>
      compressed(times(1_000, (k) => asking(1, `${replyTopic}-${nth}-${k}`, `m-${nth}-${k}`))),
  },
};

async function sendBatches({ make, pauseMs }: Flood, target: FloodTarget, ended: AbortSignal): Promise<void> {
  const dialer = kafkaDialer({ clientId: 'neighbour', tls: false });
  const cluster = new Cluster({ dialer, seeds: seedsOf(target.brokers), runtime: RUNTIME });
  const topic = target.requestTopic;
  for (let nth = 0; !ended.aborted; nth += 1) {
    await append(cluster, RUNTIME, { ...APPEND, topic, partition: nth % PARTITIONS, batch: make(target, nth) });
    if (nth === PARTITIONS) parentPort?.postMessage('flooding');
    await sleep(pauseMs);
  }
  await cluster.close();
}

/** 350 connections that ask for 100,000 IDs and do not read them. */
async function slowReaders({ apiPort }: FloodTarget, ended: AbortSignal): Promise<void> {
  const input = 'POST /api/v1/ids?count=100000 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';
  const sockets = times(350, () => {
    const socket = connect({ host: '127.0.0.1', port: apiPort });
    socket.on('error', () => undefined).pause();
    socket.write(input);
    return socket;
  });
  parentPort?.postMessage('flooding');
  while (!ended.aborted) await sleep(100);
  for (const socket of sockets) socket.destroy();
}

/** Says when it has begun, and floods until a message comes. */
async function run(target: FloodTarget): Promise<void> {
  const end = new AbortController();
  parentPort?.once('message', () => end.abort());
  const flood = FLOODS[target.name];
  await (flood === undefined ? slowReaders(target, end.signal) : sendBatches(flood, target, end.signal));
  parentPort?.close();
}

if (!isMainThread) await run(workerData as FloodTarget);
