import { randomUUID } from 'node:crypto';
import type { Admin, Kafka, Producer } from 'kafkajs';
import { readClock, sleep } from './adapters/clock.ts';
import { SqliteIndex } from './adapters/index/sqlite-index.ts';
import { kafkaClient } from './adapters/kafka/client.ts';
import { KafkaLedgerLog } from './adapters/kafka/ledger-log.ts';
import { LedgerReader } from './adapters/kafka/ledger-reader.ts';
import { createPartitioner } from './adapters/kafka/partitioner.ts';
import { KafkaPublisher } from './adapters/kafka/publisher.ts';
import { RequestConsumer } from './adapters/kafka/request-consumer.ts';
import { checkTopics, type TopicsReport } from './adapters/kafka/topics.ts';
import { ReignAllocator } from './allocator.ts';
import { DEFAULT_HEADER_NAMES } from './codec/request-headers.ts';
import type { Config } from './config.ts';
import type { GateReason } from './core/gate.ts';
import { wallMs } from './core/units.ts';
import { describeError, IdallocError } from './errors.ts';
import { Gatekeeper } from './gatekeeper.ts';
import { GuardedClock } from './guarded-clock.ts';
import { IdentityHolder } from './identity-holder.ts';
import { kafkaLogCreator, type Log } from './log.ts';
import { Membership } from './membership.ts';
import type { Metrics } from './metrics.ts';
import { type PipelineDeps, processBatch } from './pipeline/batch.ts';
import { Follower } from './pipeline/follower.ts';
import { Ledger } from './pipeline/ledger.ts';

/** A worker at work; disposing it finishes what is in hand, leaves the group and gives the identity back. */
export interface Worker extends AsyncDisposable {
  /** Rejects when the worker can't go on; pending otherwise. */
  readonly done: Promise<void>;
  health(): { readonly gate: 'open' | GateReason };
}

/** How often a marker is written where a partition is served, so that its ledger never runs empty. */
const MARKER_INTERVAL_MS = 3_600_000;

interface Tools {
  readonly config: Config;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly kafka: Kafka;
  readonly admin: Admin;
  readonly producer: Producer;
  readonly clock: GuardedClock;
  readonly gate: Gatekeeper;
  /** Ends the worker: for faults that no waiting mends. */
  readonly fail: (error: unknown) => void;
}

/**
 * Wires a worker and starts it. Resolves once it has what it needs from Kafka; etcd may still be out of reach, and the
 * gate tells so. Rejects with TOPIC_INVALID, LEDGER_WEAK, LEDGER_RETENTION, INDEX_LOCKED, KAFKA_UNAVAILABLE.
 *
 * Each part is put on the stack when it starts, so that a start that fails half-way, and the stop, undo it in reverse.
 */
export async function startWorker(config: Config, deps: { log: Log; metrics: Metrics }): Promise<Worker> {
  await using stack = new AsyncDisposableStack();
  const { log, metrics } = deps;
  const failed = Promise.withResolvers<void>();
  failed.promise.catch(() => undefined); // whoever watches `done` learns of it, also when it comes before that
  let membership: Membership | undefined;
  const gate = new Gatekeeper({
    now: () => readClock().mono,
    log,
    onChange: (reason) => {
      metrics.setGate(reason ?? 'open');
      membership?.gateChanged();
    },
  });
  metrics.setGate('STARTING');
  const kafka = kafkaClient(config.kafka, kafkaLogCreator(log));
  const admin = await connected(stack, kafka.admin());
  const report = await checkedTopics(admin, config, log);
  const producer = await connected(stack, kafka.producer({ createPartitioner, allowAutoTopicCreation: false }));
  const clock = new GuardedClock(readClock);
  const fail = (error: unknown) => failed.reject(error);
  const tools = { config, log, metrics, kafka, admin, producer, clock, gate, fail };

  const ledger = await startLedger(tools, report, stack);
  const identity = stack.use(new IdentityHolder({ config, log, clock, gate, metrics, fail }));
  membership = new Membership({
    createMember: createMember(tools, { ...ledger, identity }, stack),
    isOpen: () => gate.reason() === undefined,
    graceOver: () => gate.graceOver(config.gateGraceMs),
    log,
  });
  const joined = membership;
  stack.defer(() => joined.stop());
  stack.defer(() => gate.close('process', 'STOPPING'));
  gate.clear('process');

  const owned = stack.move();
  return {
    done: failed.promise,
    health: () => ({ gate: gate.reason() ?? 'open' }),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function connected<T extends Admin | Producer>(stack: AsyncDisposableStack, client: T): Promise<T> {
  stack.defer(() => client.disconnect());
  try {
    await client.connect();
    return client;
  } catch (error) {
    throw new IdallocError('KAFKA_UNAVAILABLE', 'the brokers can not be reached: check KAFKA_BROKERS', {
      cause: error,
    });
  }
}

/** The topics as they are, when a worker may start on them; else the first fault's code with all their messages. */
async function checkedTopics(admin: Admin, config: Config, log: Log): Promise<TopicsReport> {
  const report = await checkTopics(admin, config.topics);
  for (const { code, message } of report.warnings) log.warn({ code }, message);
  const [first] = report.faults;
  if (first === undefined) return report;
  throw new IdallocError(first.code, report.faults.map(({ message }) => message).join('; '));
}

interface LedgerSide {
  readonly index: SqliteIndex;
  readonly ledger: Ledger;
  readonly log: KafkaLedgerLog;
  readonly partitions: number;
}

/** The index, and the reader that follows all ledger partitions from now on. */
async function startLedger(tools: Tools, report: TopicsReport, stack: AsyncDisposableStack): Promise<LedgerSide> {
  const { config, kafka, admin, producer, clock, gate, log } = tools;
  const { clusterId, partitions } = report;
  const topic = config.topics.ledger;
  const index = stack.use(new SqliteIndex(config.indexDir, { clusterId, ledgerTopic: topic, partitions }));
  const showRestore = () => {
    if (follower.caughtUp()) gate.clear('index');
    else gate.close('index', 'INDEX_RESTORING');
  };
  const follower = new Follower({
    index,
    partitions,
    setTimer: (run, delayMs) => {
      const timer = setTimeout(run, delayMs);
      return { cancel: () => clearTimeout(timer) };
    },
    onRestart: (partition, cause) => {
      log.warn({ partition, cause }, 'ledger partition is restored from the log');
      reader.restart(partition);
    },
    onChange: showRestore,
  });
  const reader = new LedgerReader({
    kafka,
    admin,
    topic,
    partitions,
    groupId: `${config.groupId}.ledger.${randomUUID()}`,
    sink: follower,
    log,
    onCrash: tools.fail,
  });
  stack.defer(() => reader.stop());
  showRestore();
  await reader.start();
  const ledgerLog = new KafkaLedgerLog({
    producer,
    admin,
    topic,
    requestTopic: config.topics.requests,
    readClock: () => clock.read().reading,
    onDriftSample: (sample) => clock.recordDrift(sample),
  });
  return { index, ledger: new Ledger(ledgerLog, index, follower), log: ledgerLog, partitions };
}

function createMember(tools: Tools, parts: LedgerSide & { identity: IdentityHolder }, stack: AsyncDisposableStack) {
  const { config, kafka, metrics, log } = tools;
  const pipeline = pipelineDeps(tools, parts);
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
        parts.log.refreshLeaders().catch((error) => log.debug({ err: error }, 'ledger leaders not refreshed'));
        log.info({ partitions }, 'joined the request group');
        if (announced) return;
        announced = true;
        log.info({ ...parts.identity.describe() }, 'idalloc ready');
      },
      onLag: (partition, records) => metrics.setLag(partition, records),
      onCrash,
    });
}

function pipelineDeps(tools: Tools, parts: LedgerSide & { identity: IdentityHolder }): PipelineDeps {
  const { config, admin, producer, clock, metrics } = tools;
  const { topics, layout, datacenterId } = config;
  return {
    layout,
    datacenterId,
    maxCount: config.maxCount,
    index: parts.index,
    ledger: parts.ledger,
    allocator: new ReignAllocator({
      layout,
      datacenterId,
      readClock: () => clock.read(),
      authority: (now) => parts.identity.authority(now),
      random: Math.random,
      sleep,
    }),
    now: () => wallMs(Date.now()),
    names: { ...DEFAULT_HEADER_NAMES, ...config.headers },
    requestTopic: topics.requests,
    deadLetterTopic: topics.deadLetters,
    replyPolicy: {
      prefix: topics.replyPrefix,
      requestTopic: topics.requests,
      ownTopics: [topics.requests, topics.ledger, topics.deadLetters, topics.witness],
    },
    publisher: new KafkaPublisher(producer, admin, () => performance.now()),
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
