import { sleep } from './adapters/clock.ts';
import { briefKafkaClient } from './adapters/kafka/client.ts';
import { KafkaPublisher } from './adapters/kafka/publisher.ts';
import { ReplyProducers } from './adapters/kafka/reply-producers.ts';
import { ReplyTopics } from './adapters/kafka/reply-topics.ts';
import { RequestConsumer } from './adapters/kafka/request-consumer.ts';
import { openRegistry } from './adapters/registry/schema-registry.ts';
import { replyPolicyOf } from './codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES } from './codec/request-headers.ts';
import { wallMs } from './core/units.ts';
import { describeError, IdallocError } from './errors.ts';
import type { IdentityHolder } from './identity-holder.ts';
import type { LedgerSide } from './ledger-side.ts';
import { kafkaLogCreator } from './log.ts';
import { type PipelineDeps, processBatch } from './pipeline/batch.ts';
import type { Allocator } from './pipeline/ports.ts';
import type { Tools } from './tools.ts';

/** How often a marker is written where a partition is served, so that its ledger never runs empty. */
const MARKER_INTERVAL_MS = 3_600_000;

/** What serving requests takes beside the tools. */
type Parts = LedgerSide & { readonly identity: IdentityHolder; readonly allocator: Allocator };

/** Makes members of the request group that carry batches through the pipeline; the first one announces the worker. */
export function createMember(tools: Tools, parts: Parts, stack: AsyncDisposableStack) {
  const { config, kafka, metrics, log } = tools;
  const pipeline = pipelineDeps(tools, parts, stack);
  let announced = false;
  let held = new Set<number>();
  const mark = (partition: number): void => {
    parts.ledger.mark(partition).catch((error) => {
      const lasting = error instanceof IdallocError && !error.retryable;
      log[lasting ? 'error' : 'warn']({ partition, error: describeError(error) }, 'ledger partition was not marked');
    });
  };
  const markers = setInterval(() => held.forEach(mark), MARKER_INTERVAL_MS);
  stack.defer(() => clearInterval(markers));
  return (onCrash: (error: Error) => void) =>
    new RequestConsumer({
      kafka,
      topic: config.topics.requests,
      groupId: config.groupId,
      concurrency: parts.partitions,
      commitIntervalMs: config.commitIntervalMs,
      drainTimeoutMs: config.drainTimeoutMs,
      sleep,
      log,
      handler: async (partition, records, control) => {
        const startedMs = performance.now();
        try {
          await processBatch(pipeline, partition, records, control);
        } catch (error) {
          if (error instanceof IdallocError) metrics.addError(error.code);
          throw error;
        }
        metrics.observeBatch(performance.now() - startedMs);
      },
      onJoin: (partitions) => {
        for (const lost of held.difference(new Set(partitions))) metrics.setLag(lost, undefined);
        held = new Set(partitions);
        for (const partition of partitions) mark(partition);
        checkPartitions(tools, parts).catch(tools.fail);
        log.info({ partitions }, 'joined the request group');
        if (announced) return;
        announced = true;
        log.info({ ...parts.identity.describe() }, 'idalloc ready');
      },
      onLag: (partition, records) => metrics.setLag(partition, records),
      onCrash,
    });
}

/**
 * Partition counts are frozen: a request that moved to another partition would not be recognised. Rejects with
 * TOPIC_INVALID when one has changed. Brokers that do not answer now are asked again at the next join.
 */
async function checkPartitions({ admin, config, log }: Tools, ledger: LedgerSide): Promise<void> {
  const names = [config.topics.requests, config.topics.ledger];
  try {
    const { topics } = await admin.fetchTopicMetadata({ topics: names });
    const changed = topics.find(({ partitions }) => partitions.length !== ledger.partitions);
    if (changed === undefined) return ledger.log.learnLeaders(topics);
    const now = `topic '${changed.name}' has ${changed.partitions.length} partitions now, not ${ledger.partitions}`;
    throw new IdallocError('TOPIC_INVALID', `${now}: the partition counts of requests and ledger are frozen`);
  } catch (error) {
    if (error instanceof IdallocError) throw error;
    log.warn({ error: describeError(error) }, 'partition counts could not be compared');
  }
}

/** Clients of its own: what befalls a topic of somebody else must not reach the ledger. */
function createPublisher({ config, log }: Tools, stack: AsyncDisposableStack): KafkaPublisher {
  const kafka = briefKafkaClient(config.kafka, kafkaLogCreator(log));
  const monotonicMs = () => performance.now();
  const topics = new ReplyTopics(kafka, monotonicMs);
  const producers = new ReplyProducers(kafka);
  stack.defer(() => topics.close());
  stack.defer(() => producers.close());
  return new KafkaPublisher({ topics, producers, monotonicMs, sleep });
}

function pipelineDeps(tools: Tools, parts: Parts, stack: AsyncDisposableStack): PipelineDeps {
  const { config, metrics } = tools;
  const { topics, layout, datacenterId } = config;
  return {
    layout,
    datacenterId,
    maxCount: config.maxCount,
    index: parts.index,
    ledger: parts.ledger,
    allocator: parts.allocator,
    now: () => wallMs(Date.now()),
    names: { ...DEFAULT_HEADER_NAMES, ...config.headers },
    requestTopic: topics.requests,
    deadLetterTopic: topics.deadLetters,
    replyPolicy: replyPolicyOf(topics),
    schemas: openRegistry(config.registry),
    publisher: createPublisher(tools, stack),
    observe: {
      served: ({ ids, replayed }) => {
        metrics.addRequests(replayed ? 'replayed' : 'issued');
        metrics.addReplies(1);
        if (!replayed) metrics.addIds(ids);
      },
      failed: (code) => {
        metrics.addRequests('refused');
        metrics.addError(code);
      },
      deadLettered: () => metrics.addDeadLetters(1),
    },
  };
}
