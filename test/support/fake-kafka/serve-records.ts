import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type {
  FetchedPartition,
  FetchRequest,
  FetchResponse,
  ListOffsetsRequest,
  ProduceRequest,
  ProduceResponse,
  RECORD_APIS,
} from '../../../src/kafka/wire/record-apis.ts';
import { hasKeylessRecord, hasOlderRecord, isSound } from './batches.ts';
import type { Broker } from './broker.ts';
import type { Handlers } from './calls.ts';
import type { SessionFetch } from './fetch-sessions.ts';
import type { Reply } from './group-member.ts';
import type { Partition } from './partition.ts';
import { partitionIn } from './view.ts';

const NONE = { baseOffset: -1, appendedAtMs: -1, logStartOffset: -1 } as const;
const NO_BATCHES = Buffer.alloc(0);

/** The calls with which a broker stores and returns records. */
export function recordHandlers(broker: Broker): Pick<Handlers, keyof typeof RECORD_APIS> {
  return {
    produce: (request, reply) => produce(broker, request, reply),
    fetch: (request, reply) => {
      const session = broker.fetchSessions.begin(request);
      if (typeof session === 'string') reply.refuse(session);
      else new Fetch(broker, request, session, reply).look();
    },
    listOffsets: (request, reply) => {
      const throttleMs = broker.cluster.throttleMs;
      reply.give({ throttleMs, partitions: request.partitions.map((one) => listOffset(broker, request, one)) });
    },
  };
}

type AnswerProduce = (fields: Partial<ProduceResponse>) => void;

/** The port only allows -1; the fake also implements weaker acks. */
function produce(broker: Broker, request: ProduceRequest, reply: Reply<ProduceResponse>): void {
  const answer: AnswerProduce = (fields) => reply.give({ ...NONE, throttleMs: broker.cluster.throttleMs, ...fields });
  const partition = partitionIn(broker.view, request.topic, request.partition)?.partition;
  const errorCode = refusalOf(broker, request);
  if (errorCode !== undefined || partition === undefined)
    answer({ errorCode: errorCode ?? 'UNKNOWN_TOPIC_OR_PARTITION' });
  else if (partition.leadership.leader === broker.node) append(broker, partition, request, answer);
  else appendInVain(broker, partition, request, answer);
}

function refusalOf(
  broker: Broker,
  { topic, partition: number, batch, acks }: ProduceRequest,
): KafkaErrorCode | undefined {
  const found = partitionIn(broker.view, topic, number);
  if (found === undefined) return 'UNKNOWN_TOPIC_OR_PARTITION';
  if (broker.cluster.isDenied(topic)) return 'TOPIC_AUTHORIZATION_FAILED';
  if (found.believed.leader !== broker.node) return 'NOT_LEADER_FOR_PARTITION';
  if (!isSound(batch)) return 'CORRUPT_MESSAGE';
  const { isCompacted, maxBatchBytes, minInSync, oldestMs, stampsTime } = found.partition.settings;
  if (batch.length > maxBatchBytes) return 'MESSAGE_TOO_LARGE';
  if (isCompacted && hasKeylessRecord(batch)) return 'INVALID_RECORD';
  if (!stampsTime && hasOlderRecord(batch, broker.clock.wallMs() - oldestMs)) return 'INVALID_TIMESTAMP';
  const { leader, inSync } = found.partition.leadership;
  return acks === -1 && leader === broker.node && inSync.length < minInSync ? 'NOT_ENOUGH_REPLICAS' : undefined;
}

function append(broker: Broker, partition: Partition, request: ProduceRequest, answer: AnswerProduce): void {
  const waits = isForAll(request);
  const { start, end: baseOffset } = partition.log;
  const nowMs = broker.clock.wallMs();
  const done = { baseOffset, appendedAtMs: partition.settings.stampsTime ? nowMs : -1, logStartOffset: start };
  let isOpen = true;
  const end = (fields: Partial<ProduceResponse>): void => {
    if (isOpen) answer(fields);
    isOpen = false;
    timer?.cancel();
  };
  const late = (): void => end({ errorCode: 'REQUEST_TIMED_OUT' });
  const timer = waits ? broker.clock.schedule(request.timeoutMs, late) : undefined;
  partition.append(request.batch, nowMs, (errorCode) =>
    broker.deliver(() => end(errorCode === undefined ? done : { errorCode })),
  );
  if (!waits) end(done);
}

/** A deposed leader that does not know it: what it stores is truncated later, and no replica ever has it. */
function appendInVain(broker: Broker, partition: Partition, request: ProduceRequest, answer: AnswerProduce): void {
  if (!isForAll(request)) {
    const appendedAtMs = partition.settings.stampsTime ? broker.clock.wallMs() : -1;
    answer({
      baseOffset: partition.highWatermarkOf(broker.node),
      appendedAtMs,
      logStartOffset: partition.log.start,
    });
    return;
  }
  const end = (errorCode: KafkaErrorCode): void => {
    timer.cancel();
    unwatch();
    answer({ errorCode });
  };
  const timer = broker.clock.schedule(request.timeoutMs, () => end('REQUEST_TIMED_OUT'));
  const unwatch = broker.watchView(() => end('NOT_LEADER_FOR_PARTITION'));
}

function isForAll(request: ProduceRequest): boolean {
  const acks: number = request.acks;
  return acks === -1;
}

/** A fetch that waits, if needed, until one of its partitions has records. */
class Fetch {
  readonly #broker: Broker;
  readonly #request: FetchRequest;
  readonly #session: SessionFetch;
  readonly #reply: Reply<FetchResponse>;
  #unwatch: (() => void) | undefined;
  #isOver = false;

  constructor(broker: Broker, request: FetchRequest, session: SessionFetch, reply: Reply<FetchResponse>) {
    this.#broker = broker;
    this.#request = request;
    this.#session = session;
    this.#reply = reply;
  }

  look(): void {
    if (this.#isOver) return;
    const partitions = this.#read();
    const isDue = partitions.some(({ errorCode, records, nearer }) => {
      return errorCode !== undefined || records.length > 0 || nearer !== undefined;
    });
    if (isDue || this.#request.maxWaitMs <= 0) this.#end(partitions);
    else if (this.#unwatch === undefined) this.#wait();
  }

  #wait(): void {
    const look = (): void => this.#broker.deliver(() => this.look());
    const ends = [this.#broker.watchView(look)];
    for (const { topic, partition } of this.#session.positions) {
      const found = partitionIn(this.#broker.view, topic, partition);
      if (found !== undefined) ends.push(found.partition.watch(look));
    }
    const holdMs = Math.max(this.#request.maxWaitMs, this.#broker.cluster.holdMs);
    const timer = this.#broker.clock.schedule(holdMs, () => {
      if (!this.#isOver) this.#end(this.#read());
    });
    this.#unwatch = () => {
      timer.cancel();
      for (const end of ends) end();
    };
  }

  #end(partitions: readonly FetchedPartition[]): void {
    this.#isOver = true;
    this.#unwatch?.();
    const response = this.#session.respond(partitions);
    if (typeof response === 'string') this.#reply.refuse(response);
    else this.#reply.give({ throttleMs: this.#broker.cluster.throttleMs, ...response });
  }

  /** The first partition with records returns at least one batch, whatever the limits. */
  #read(): FetchedPartition[] {
    let left = this.#request.maxBytes;
    return this.#session.positions.map(({ topic, partition: number, offset, maxBytes }) => {
      const place = { topic, partition: number };
      const refuse = (errorCode: string): FetchedPartition => {
        const none = { highWatermark: -1, lastStableOffset: -1, logStartOffset: -1 };
        return { ...place, errorCode, ...none, aborted: [], records: NO_BATCHES };
      };
      const found = partitionIn(this.#broker.view, topic, number);
      if (found === undefined) return refuse('UNKNOWN_TOPIC_OR_PARTITION');
      if (this.#broker.cluster.isDenied(topic)) return refuse('TOPIC_AUTHORIZATION_FAILED');
      const { node, cluster } = this.#broker;
      const isLeader = found.believed.leader === node;
      const follows = !isLeader && cluster.racks.size > 0 && found.partition.settings.replicas.includes(node);
      if (!isLeader && !follows) return refuse('NOT_LEADER_FOR_PARTITION');
      const { log } = found.partition;
      const highWatermark = follows ? found.partition.followedTo(node) : found.partition.highWatermarkOf(node);
      const end = found.partition.leadership.leader === node ? log.end : highWatermark;
      if (offset < log.start || offset > end) return refuse('OFFSET_OUT_OF_RANGE');
      const lastStableOffset = Math.min(highWatermark, log.stableEnd);
      const nearer = isLeader ? this.#nearer(found.partition) : undefined;
      if (nearer !== undefined) {
        const bounds = { highWatermark, lastStableOffset, logStartOffset: log.start };
        return { ...place, ...bounds, aborted: [], records: NO_BATCHES, nearer };
      }
      const isCommitted = this.#request.isolation === 'read_committed';
      const below = isCommitted ? lastStableOffset : highWatermark;
      const isFirst = left === this.#request.maxBytes;
      const limit = Math.min(maxBytes, left, this.#broker.cluster.fetchBytes());
      const records = limit > 0 || isFirst ? log.read(offset, below, limit, isFirst) : NO_BATCHES;
      left -= records.length;
      const aborted = isCommitted
        ? log.aborted(offset, below).map(({ producerId, firstOffset }) => ({ producerId, firstOffset }))
        : [];
      return { ...place, highWatermark, lastStableOffset, logStartOffset: log.start, aborted, records };
    });
  }

  /** A live replica in the rack of the reader, unless the leader is there itself. */
  #nearer({ leadership, settings }: Partition): number | undefined {
    const { rack } = this.#request;
    const { racks, liveNodes } = this.#broker.cluster;
    if (rack === undefined || racks.get(leadership.leader) === rack) return undefined;
    return settings.replicas.find((node) => racks.get(node) === rack && liveNodes.includes(node));
  }
}

function listOffset(
  broker: Broker,
  { isolation }: ListOffsetsRequest,
  { topic, partition: number, timestampMs }: ListOffsetsRequest['partitions'][number],
) {
  const place = { topic, partition: number };
  const found = partitionIn(broker.view, topic, number);
  if (found === undefined) return { ...place, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', offset: -1 };
  if (broker.cluster.isDenied(topic)) return { ...place, errorCode: 'TOPIC_AUTHORIZATION_FAILED', offset: -1 };
  if (found.believed.leader !== broker.node) return { ...place, errorCode: 'NOT_LEADER_FOR_PARTITION', offset: -1 };
  const { log } = found.partition;
  const highWatermark = found.partition.highWatermarkOf(broker.node);
  const end = isolation === 'read_committed' ? Math.min(highWatermark, log.stableEnd) : highWatermark;
  if (timestampMs === -1) return { ...place, offset: end };
  if (timestampMs === -2) return { ...place, offset: log.start };
  const offset = log.offsetAt(timestampMs);
  return { ...place, offset: offset === undefined || offset >= end ? -1 : offset };
}
