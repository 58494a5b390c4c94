import { decodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { recordsOf } from './fake-kafka/batches.ts';
import { idFor } from './home.ts';
import { config, type WorkerStage } from './worker-stage.ts';

const REPLIES = 'id.replies.test';

/** Requests to partition 0 of a stage, and the replies to them. */
export class StagedRequests {
  readonly #stage: WorkerStage;

  constructor(stage: WorkerStage) {
    this.#stage = stage;
    stage.kafka.cluster.createTopic(REPLIES, { partitions: 1, replicas: 3 });
  }

  /** Sends a request for each of these correlation IDs. */
  send(ids: readonly string[], count = 1): void {
    const requests = ids.map((id) => {
      const correlationId = Buffer.from(id);
      return { key: correlationId, value: encodeIdRequest({ count, correlationId, replyTopic: REPLIES }) };
    });
    this.#stage.kafka.cluster.send(config.topics.requests, 0, requests);
  }

  /** All replies to a correlation ID so far. */
  repliesTo(id: string): readonly IdReply[] {
    const partitions = this.#stage.kafka.cluster.topics.get(REPLIES)?.partitions ?? [];
    const records = partitions.flatMap(({ log }) => log.batches().flatMap(recordsOf));
    return records.filter(({ key }) => String(key) === id).map(({ value }) => decodeIdReply(value as Buffer));
  }
}

/** Correlation IDs that begin with `name`, whose home is partition 0. */
export function idsOf(name: string, count: number): readonly string[] {
  return Array.from({ length: count }, (_, i) => idFor(`${name}${i}`, 0, config.topics.requestPartitions));
}
