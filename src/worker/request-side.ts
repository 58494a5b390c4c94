import { KafkaPublisher } from '../adapters/kafka/publisher.ts';
import { ReplyTopics } from '../adapters/kafka/reply-topics.ts';
import { openRegistry } from '../adapters/registry/schema-registry.ts';
import { parseQuotas } from '../codec/quota.ts';
import { replyPolicyOf } from '../codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES } from '../codec/request-headers.ts';
import { renewed } from '../core/renewed.ts';
import type { Timer } from '../core/runtime.ts';
import { wallMs } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Copy } from '../kafka/loops/copies.ts';
import type { Assigned } from '../kafka/loops/member-options.ts';
import { SparingLog } from '../kafka/loops/sparing-log.ts';
import { partitionFor } from '../kafka/records/partitioner.ts';
import { faultOf } from '../kafka/wire/fault.ts';
import { LARGE_AT_ONCE, type PipelineDeps, processBatch } from '../pipeline/batch.ts';
import type { CopyProgress } from '../pipeline/followed-state.ts';
import type { Allocator } from '../pipeline/ports.ts';
import { Quotas } from '../pipeline/quotas.ts';
import { Slots } from '../pipeline/slots.ts';
import type { IdentityHolder } from './identity-holder.ts';
import type { LedgerSide } from './ledger-side.ts';
import type { GroupMember } from './membership.ts';
import { RequestGroup } from './request-group.ts';
import type { Tools } from './tools.ts';

/** How often a marker is written where a partition is served, so that its ledger never runs empty. */
const MARKER_INTERVAL_MS = 3_600_000;

/** What serving requests takes beside the tools. */
export interface RequestParts {
  readonly ledger: LedgerSide;
  readonly identity: IdentityHolder;
  readonly allocator: Allocator;
}

/** Serves requests: makes stays in the request group that carry batches through the pipeline. */
export class RequestSide implements Disposable {
  readonly #tools: Tools;
  readonly #parts: RequestParts;
  readonly #pipeline: PipelineDeps;
  /** Undefined before the first assignment. */
  #share: Assigned | undefined;
  #group: RequestGroup | undefined;
  /** Partitions whose copies were complete at the last look. */
  readonly #ready = new Set<number>();
  #announced = false;
  #markerTimer: Timer | undefined;

  constructor(tools: Tools, parts: RequestParts) {
    this.#tools = tools;
    this.#parts = parts;
    this.#pipeline = { ...pipelineDeps(tools, parts), quotas: this.#quotas() };
    tools.gate.onChange(() => this.#announce());
    parts.ledger.onChange((partition) => this.#copyChanged(partition));
    this.#scheduleMarkers();
  }

  [Symbol.dispose](): void {
    this.#markerTimer?.cancel();
  }

  createMember(): GroupMember {
    const { config, cluster, runtime, metrics, log, wireLog, surroundings, fail } = this.#tools;
    const instanceId = surroundings.instanceId();
    this.#group = new RequestGroup({
      cluster,
      runtime,
      log,
      wireLog,
      topic: config.topics.requests,
      partitions: this.#parts.ledger.partitions,
      groupId: config.groupId,
      instanceId,
      sessionTimeoutMs: config.groupSessionMs,
      commitIntervalMs: config.commitIntervalMs,
      drainTimeoutMs: config.drainTimeoutMs,
      handler: async (partition, records, control) => {
        const startedMs = runtime.monotonicMs();
        try {
          await processBatch(this.#pipeline, partition, records, control);
        } catch (error) {
          if (error instanceof IdallocError) metrics.addError(error.code);
          throw error;
        }
        metrics.observeBatch(runtime.monotonicMs() - startedMs);
      },
      isReady: (partition) => this.#isReady(partition),
      copies: () => this.#copies(),
      standbys: config.standbys,
      acceptableLag: config.acceptableLag,
      onAssigned: (share) => this.#assigned(share),
      onLag: (partition, records) => metrics.setLag(partition, records),
      onCutOff: (partition) => this.#mark(partition),
      onFenced: () => fail(fenced(instanceId)),
    });
    return this.#group;
  }

  /** What the group gave to this worker last; undefined before that. */
  get share(): Assigned | undefined {
    return this.#share;
  }

  get oldestUnread(): RequestGroup['oldestUnread'] {
    return this.#group?.oldestUnread ?? [];
  }

  /** The partitions of this worker that wait for their copies of the ledger, each with how far it is. */
  get restoring(): readonly { readonly partition: number; readonly progress: CopyProgress }[] {
    return (this.#share?.partitions ?? [])
      .map((partition) => ({ partition, progress: this.#parts.ledger.progress(partition) }))
      .filter(({ progress: { state } }) => state === 'restoring' || state === 'absent');
  }

  /**
   * What the group is told at a join. A copy that is not recognised as one of this log yet may be another one's. None is
   * dropped until the group has answered, however long that takes: it may give this worker what it has a copy of.
   */
  #copies(): ReadonlyMap<number, Copy> {
    this.#parts.ledger.keepAll();
    const own = this.#parts.ledger.copies().filter(({ isRecognised }) => isRecognised);
    return new Map(own.map(({ partition, end, logEnd }) => [partition, { end, logEnd }]));
  }

  #assigned(share: Assigned): void {
    const { log, fail } = this.#tools;
    const { partitions, added, standbys, warmups } = share;
    this.#share = share;
    this.#parts.ledger.keep([...partitions, ...standbys]);
    for (const partition of added) this.#mark(partition);
    this.#checkPartitions().catch(fail);
    log.info({ partitions, added, standbys, warmups }, 'joined the request group');
    this.#tellWarm();
    this.#announce();
  }

  /**
   * A partition waits while its copy is restored; the others go on. When the copy is lost that this worker needs, another
   * member may have one.
   */
  #copyChanged(partition: number): void {
    const isOwn = this.#share?.partitions.includes(partition) === true;
    const isReady = this.#isReady(partition);
    const wasReady = this.#ready.has(partition);
    if (isReady) this.#ready.add(partition);
    else this.#ready.delete(partition);
    this.#group?.refresh(partition);
    if (isOwn && isReady) this.#mark(partition);
    if (isOwn && wasReady && !isReady) this.#group?.rejoin(`the copy of partition ${partition} is lost`);
    this.#tellWarm();
    this.#announce();
  }

  /** The leader of the group assigns by the members' copies: it gives this worker what it has become ready for. */
  #tellWarm(): void {
    const warm = this.#share?.warmups.filter((partition) => this.#isReady(partition)) ?? [];
    if (warm.length > 0) this.#group?.rejoin(`the copies of partitions ${warm} are complete`);
  }

  #quotas(): Quotas | undefined {
    const { config, runtime, metrics, wireLog } = this.#tools;
    const { quotas } = config;
    if (quotas === undefined) return undefined;
    const refusals = new SparingLog(runtime, wireLog);
    return new Quotas({
      quotas: renewed(
        () => [quotas()],
        ([text = '']) => parseQuotas(text),
        runtime.monotonicMs,
      ),
      monotonicMs: runtime.monotonicMs,
      share: () => Math.max(1, this.#share?.partitions.length ?? 0) / this.#parts.ledger.partitions,
      onExceeded: (prefix) => {
        metrics.addQuotaExceeded(prefix);
        refusals.count({ prefix }, `requests were refused by the quota of ${prefix}`);
      },
    });
  }

  #isReady(partition: number): boolean {
    return this.#parts.ledger.isReady(partition);
  }

  /** Once, when requests of all partitions are served: a partition that stopped may be read again later. */
  #announce(): void {
    const { ledger, identity } = this.#parts;
    if (this.#announced || this.#share === undefined || ledger.stopped.length > 0) return;
    if (this.restoring.length > 0) return;
    if (this.#tools.gate.reason() !== undefined) return;
    this.#announced = true;
    this.#tools.log.info({ ...identity.describe() }, 'idalloc ready');
  }

  #scheduleMarkers(): void {
    this.#markerTimer = this.#tools.runtime.schedule(MARKER_INTERVAL_MS, () => {
      for (const partition of this.#share?.partitions ?? []) this.#mark(partition);
      this.#scheduleMarkers();
    });
  }

  /** A marker that is due stays so until it can be written. */
  #mark(partition: number): void {
    const { log } = this.#tools;
    const { ledger } = this.#parts.ledger;
    ledger.mark(partition).catch((error) => {
      if (error instanceof IdallocError && error.code === 'INDEX_RESTORING') return;
      const lasting = error instanceof IdallocError && !error.retryable;
      log[lasting ? 'error' : 'warn']({ partition, error: describeError(error) }, 'ledger partition was not marked');
    });
  }

  /**
   * Partition counts are frozen: a request that moved to another partition would not be recognised. Rejects with
   * TOPIC_INVALID when one has changed. Brokers that do not answer now are asked again at the next join.
   */
  async #checkPartitions(): Promise<void> {
    const { cluster, config, log } = this.#tools;
    const { partitions } = this.#parts.ledger;
    try {
      const { topics } = await cluster.metadata([config.topics.requests, config.topics.ledger]);
      const changed = topics.find((topic) => topic.fault === undefined && topic.partitions.length !== partitions);
      if (changed === undefined) return;
      const now = `topic '${changed.name}' has ${changed.partitions.length} partitions now, not ${partitions}`;
      throw new IdallocError('TOPIC_INVALID', `${now}: the partition counts of requests and ledger are frozen`);
    } catch (error) {
      if (faultOf(error) === undefined) throw error;
      log.warn({ error: describeError(error) }, 'partition counts could not be compared');
    }
  }
}

function fenced(instanceId: string): IdallocError {
  const message = `another process joined the request group as instance ${instanceId}: give each worker an INDEX_DIR of its own`;
  return new IdallocError('INSTANCE_FENCED', message);
}

function pipelineDeps(tools: Tools, parts: RequestParts): PipelineDeps {
  const { config, metrics, cluster, runtime, log, refusals } = tools;
  const { topics, layout, datacenterId } = config;
  const letters = new SparingLog(runtime, (level, fields, message) => log[level](fields, message));
  return {
    layout,
    datacenterId,
    maxCount: config.maxCount,
    index: parts.ledger.index,
    ledger: parts.ledger.ledger,
    allocator: parts.allocator,
    now: () => wallMs(runtime.wallMs()),
    names: { ...DEFAULT_HEADER_NAMES, ...config.headers },
    homeOf: (correlationId) => partitionFor(correlationId, parts.ledger.partitions, () => 0),
    renewAfterMs: config.renewAfterMs,
    clockMarginMs: config.clockMarginMs,
    requestTopic: topics.requests,
    deadLetterTopic: topics.deadLetters,
    replyPolicy: replyPolicyOf(topics),
    largeSlots: new Slots(LARGE_AT_ONCE),
    schemas: openRegistry(config.registry),
    publisher: new KafkaPublisher({
      cluster,
      runtime,
      topics: new ReplyTopics(cluster, runtime),
      isRevoked: (topic) => refusals.isRevoked(topic),
    }),
    observe: {
      served: ({ issued, replayed, ids }) => {
        metrics.addRequests('issued', issued);
        metrics.addRequests('replayed', replayed);
        metrics.addIds(ids);
      },
      replied: (replies) => metrics.addReplies(replies),
      failed: (code) => {
        metrics.addRequests('refused');
        metrics.addError(code);
      },
      deadLettered: (code) => {
        metrics.addDeadLetters(1);
        letters.count({ code }, `requests became dead letters: ${code}`);
      },
      forwarded: (count) => metrics.addForwarded(count),
    },
  };
}
