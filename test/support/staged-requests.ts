import { gzipSync } from 'node:zlib';
import { decodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { encodeIdRequest, type IdRequest } from '../../src/codec/id-request.ts';
import { isDense } from '../../src/kafka/records/record.ts';
import { recordsOf } from './fake-kafka/batches.ts';
import { idFor } from './home.ts';
import { batchOf, CODEC } from './record-bytes.ts';
import { config, WorkerStage } from './worker-stage.ts';

const REPLIES = 'id.replies.test';
/** Longer than a worker takes until it serves. */
const START_MS = 10_000;

/** A stage with one worker, which serves all partitions. */
export async function servedRequests(): Promise<{ readonly stage: WorkerStage; readonly asked: StagedRequests }> {
  const stage = new WorkerStage();
  const asked = new StagedRequests(stage);
  stage.start();
  await stage.pass(START_MS);
  return { stage, asked };
}

/** Requests to partition 0 of a stage, and the replies to them. */
export class StagedRequests {
  readonly #stage: WorkerStage;

  constructor(stage: WorkerStage) {
    this.#stage = stage;
    stage.kafka.cluster.createTopic(REPLIES, { partitions: 1, replicas: 3 });
  }

  /** Sends a request of `count` IDs for each of these correlation IDs. */
  send(ids: readonly string[], count = 1, partition = 0): void {
    this.#send(ids.map((id) => requestOf(id, { count })), partition); // biome-ignore format: one call
  }

  /** Sends a request for a number of a sequence, whose home must be partition 0. */
  sendForNumber(id: string, sequence: string): void {
    this.#send([requestOf(id, { count: 1, sequence })], 0);
  }

  #send(records: readonly ReturnType<typeof requestOf>[], partition: number): void {
    this.#stage.kafka.cluster.send(config.topics.requests, partition, records);
  }

  /** Sends requests in one batch that is dense: they must compress well, and be more than `DENSE.records`. */
  sendDense(ids: readonly string[]): void {
    const records = ids.map((id) => ({ key: null, value: requestOf(id, { count: 1 }).value }));
    const now = BigInt(Math.floor(this.#stage.kafka.cluster.clock.wallMs()));
    const batch = batchOf(records, { attributes: CODEC.gzip, baseTime: now, maxTime: now, producerId: -1n }, gzipSync);
    if (!isDense(records.length, batch.length)) throw new RangeError(`${batch.length} bytes are not dense`);
    this.#stage.kafka.cluster.sendBatch(config.topics.requests, 0, batch);
  }

  /** All replies to a correlation ID so far. */
  repliesTo(id: string): readonly IdReply[] {
    const partitions = this.#stage.kafka.cluster.topics.get(REPLIES)?.partitions ?? [];
    const records = partitions.flatMap(({ log }) => log.batches().flatMap(recordsOf));
    return records.filter(({ key }) => String(key) === id).map(({ value }) => decodeIdReply(value as Buffer));
  }

  /** How many replies each of these correlation IDs got. */
  counts(ids: readonly string[]): number[] {
    return ids.map((id) => this.repliesTo(id).length);
  }

  /** The offset that the group has committed for partition 0. */
  get committed(): number | undefined {
    return this.#stage.kafka.cluster.groups.committed(config.groupId, config.topics.requests, 0);
  }
}

function requestOf(id: string, wanted: Pick<IdRequest, 'count' | 'sequence'>) {
  const correlationId = Buffer.from(id);
  return { key: correlationId, value: encodeIdRequest({ ...wanted, correlationId, replyTopic: REPLIES }) };
}

/** Correlation IDs that begin with `name`, whose home is partition 0. */
export function idsOf(name: string, count: number): readonly string[] {
  return Array.from({ length: count }, (_, i) => idFor(`${name}${i}`, 0, config.topics.requestPartitions));
}
