import { KafkaPublisher } from '../adapters/kafka/publisher.ts';
import { ReplyTopics } from '../adapters/kafka/reply-topics.ts';
import { openRegistry } from '../adapters/registry/schema-registry.ts';
import type { Timer } from '../async/runtime.ts';
import { replyPolicyOf } from '../codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES } from '../codec/request-headers.ts';
import { customText } from '../core/find-layout.ts';
import type { Layout } from '../core/layout.ts';
import { wallMs } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Copy } from '../kafka/loops/copies.ts';
import type { Assigned } from '../kafka/loops/member-options.ts';
import { RateLimitedLog } from '../kafka/loops/rate-limited-log.ts';
import { partitionFor } from '../kafka/records/partitioner.ts';
import type { CopyProgress } from '../ledger/ports.ts';
import { LARGE_AT_ONCE, type PipelineDeps, processBatch } from '../pipeline/batch.ts';
import { JunkLimits } from '../pipeline/junk-limits.ts';
import type { Allocator } from '../pipeline/ports.ts';
import type { QuotaUse } from '../pipeline/quotas.ts';
import { RecordTurns } from '../pipeline/record-turns.ts';
import { Slots } from '../pipeline/slots.ts';
import type { WorkerContext } from './context.ts';
import type { IdentityHolder } from './identity-holder.ts';
import type { LedgerService } from './ledger-service.ts';
import type { GroupMember } from './membership.ts';
import { Reach, type SilentLeader, silenceText, UNREACHED_MS } from './reach.ts';
import { RequestGroup } from './request-group.ts';
import { requestQuotas } from './request-quotas.ts';

/** How often a marker is written for each served partition, so that its ledger never runs empty. */
const MARKER_INTERVAL_MS = 3_600_000;

/** The dependencies of serving requests, besides the context. */
export interface RequestParts {
  readonly ledger: LedgerService;
  readonly identity: IdentityHolder;
  readonly allocator: Allocator;
}

/** Serves requests: creates memberships of the request group that feed record batches to the pipeline. */
export class RequestService implements Disposable {
  readonly #context: WorkerContext;
  readonly #parts: RequestParts;
  readonly #pipeline: PipelineDeps;
  readonly #reach: Reach;
  /** Undefined before the first assignment. */
  #share: Assigned | undefined;
  #group: RequestGroup | undefined;
  /** Partitions whose copies were complete at the last check. */
  readonly #ready = new Set<number>();
  #announced = false;
  #markerTimer: Timer | undefined;

  constructor(context: WorkerContext, parts: RequestParts) {
    this.#context = context;
    this.#parts = parts;
    const topics = new ReplyTopics(context.cluster, context.runtime);
    const publisher = createPublisher(context, topics, 'publish');
    // A reply of a megabyte must not hold up those of small requests on their connection.
    const largePublisher = createPublisher(context, topics, 'publish large');
    this.#pipeline = {
      ...pipelineDeps(context, parts, { publisher, largePublisher }),
      // Requests wait for a right that was revoked, so its topic is not missing.
      replyTopics: { exists: async (topic) => context.refusals.isRevoked(topic) || (await topics.exists(topic)) },
      quotas: requestQuotas(context, this.#quotaShare),
    };
    this.#reach = new Reach({
      ...context,
      topics: context.config.topics,
      partitions: parts.ledger.partitions,
      replies: () => [...publisher.sending(), ...largePublisher.sending()],
      onChange: () => this.#reachChanged(),
    });
    context.gate.onChange(() => this.#announce());
    parts.ledger.onChange((partition) => this.#copyChanged(partition));
    this.#scheduleMarkers();
  }

  [Symbol.dispose](): void {
    this.#markerTimer?.cancel();
    this.#reach[Symbol.dispose]();
  }

  createMember(): GroupMember {
    const { config, cluster, runtime, metrics, log, wireLog, environment, fail } = this.#context;
    const instanceId = environment.instanceId();
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
      handler: (partition, records, control) => processBatch(this.#pipeline, partition, records, control),
      onError: (error) => {
        if (error instanceof IdallocError) metrics.addError(error.code);
      },
      onAnswered: (milliseconds) => metrics.observeBatch(milliseconds),
      isReady: (partition) => this.#isReady(partition),
      copies: () => this.#copies(),
      unreached: () => this.#reach.unreached,
      standbys: config.standbys,
      acceptableLag: config.acceptableLag,
      onAssigned: (share) => this.#assigned(share),
      onLag: (partition, records) => metrics.setLag(partition, records),
      onTruncated: (partition) => this.#mark(partition),
      onFenced: () => fail(fenced(instanceId)),
    });
    return this.#group;
  }

  /** The last assignment of this worker; undefined before the first. */
  get share(): Assigned | undefined {
    return this.#share;
  }

  get quotaUses(): readonly QuotaUse[] {
    return this.#pipeline.quotas?.uses() ?? [];
  }

  get oldestUnread(): RequestGroup['oldestUnread'] {
    return this.#group?.oldestUnread ?? [];
  }

  /** The brokers that have not answered for this long and on which partitions of this worker depend. */
  silentFor(atLeastMs: number): readonly SilentLeader[] {
    const own = this.#share?.partitions ?? [];
    return this.#reach.silentFor(atLeastMs).filter(({ partition }) => own.includes(partition));
  }

  get largeWaiting(): RequestGroup['largeWaiting'] {
    return this.#group?.largeWaiting ?? [];
  }

  /** The partitions of this worker that wait for their ledger copies, with their progress. */
  get restoring(): readonly { readonly partition: number; readonly progress: CopyProgress | undefined }[] {
    return (this.#share?.partitions ?? [])
      .map((partition) => ({ partition, progress: this.#parts.ledger.progress(partition) }))
      .filter(({ progress }) => progress === undefined || progress.state === 'restoring');
  }

  /**
   * The copies reported at a join; an unrecognised copy may belong to another log. None is dropped until the group has
   * answered, however long that takes: it may assign partitions by them.
   */
  #copies(): ReadonlyMap<number, Copy> {
    this.#parts.ledger.keepAll();
    const own = this.#parts.ledger.copies().filter(({ isRecognised }) => isRecognised);
    return new Map(own.map(({ partition, end, logEnd }) => [partition, { end, logEnd }]));
  }

  #assigned(share: Assigned): void {
    const { log } = this.#context;
    const { partitions, added, standbys, warmups } = share;
    this.#share = share;
    this.#parts.ledger.keep([...partitions, ...standbys]);
    for (const partition of added) this.#mark(partition);
    log.info({ partitions, added, standbys, warmups }, 'joined the request group');
    this.#rejoinWhenWarm();
    this.#announce();
  }

  /**
   * A partition waits while its copy is restored; the others continue. When this worker loses a copy that it needs,
   * another member may have one.
   */
  #copyChanged(partition: number): void {
    const isOwn = this.#share?.partitions.includes(partition) === true;
    const isReady = this.#isReady(partition);
    const wasReady = this.#ready.has(partition);
    if (isReady) this.#ready.add(partition);
    else this.#ready.delete(partition);
    this.#group?.refresh(partition);
    if (isOwn && isReady) this.#mark(partition);
    if (!isOwn && isReady && !wasReady) this.#restate(partition);
    if (isOwn && wasReady && !isReady) this.#group?.rejoin(`the copy of partition ${partition} is lost`);
    this.#rejoinWhenWarm();
    this.#announce();
  }

  /** Rejoins without the partitions that it does not reach, so that a worker that reaches them gets them. */
  #reachChanged(): void {
    const unreached = this.#share?.partitions.filter((partition) => !this.#reach.isReached(partition)) ?? [];
    if (unreached.length === 0) {
      this.#rejoinWhenWarm();
      return;
    }
    const error = silenceText(this.silentFor(UNREACHED_MS));
    this.#context.log.warn({ partitions: unreached, error }, "partitions can't be served from here: handing them over");
    this.#group?.rejoin(`brokers of partitions ${unreached} are not reached`);
  }

  /** Rejoins with complete warm-ups: the group leader then assigns those partitions to this worker. */
  #rejoinWhenWarm(): void {
    const isWarm = (partition: number) => this.#isReady(partition) && this.#reach.isReached(partition);
    const warm = this.#share?.warmups.filter(isWarm) ?? [];
    if (warm.length > 0) this.#group?.rejoin(`the copies of partitions ${warm} are complete`);
  }

  /** This worker's share of the quotas: its partitions out of all, at least one. */
  readonly #quotaShare = (): number => Math.max(1, this.#share?.partitions.length ?? 0) / this.#parts.ledger.partitions;

  #isReady(partition: number): boolean {
    return this.#parts.ledger.isReady(partition);
  }

  /** Logs readiness once, when requests of all partitions are served. */
  #announce(): void {
    const { ledger, identity } = this.#parts;
    if (this.#announced || this.#share === undefined || ledger.stopped.length > 0) return;
    if (this.restoring.length > 0) return;
    if (this.#context.gate.reason() !== undefined) return;
    this.#announced = true;
    this.#context.log.info({ ...identity.describe() }, 'idalloc ready');
  }

  #scheduleMarkers(): void {
    this.#markerTimer = this.#context.runtime.schedule(MARKER_INTERVAL_MS, () => {
      for (const partition of this.#share?.partitions ?? []) this.#mark(partition);
      this.#scheduleMarkers();
    });
  }

  /** A standby writes what its sequences are, if the log no longer has it; the owner may have lost it. */
  #restate(partition: number): void {
    this.#parts.ledger.ledger.restate(partition).catch((error) => this.#complain(partition, 'sequences', error));
  }

  /** Writes a marker; on failure it stays due. */
  #mark(partition: number): void {
    // A worker may be ready only now.
    const marked = this.#parts.ledger.ledger.mark(partition).then(() => this.#announce());
    marked.catch((error) => this.#complain(partition, 'a marker', error));
  }

  #complain(partition: number, what: string, error: unknown): void {
    if (error instanceof IdallocError && error.code === 'INDEX_RESTORING') return;
    const isLasting = error instanceof IdallocError && !error.retryable;
    const fields = { partition, error: describeError(error) };
    this.#context.log[isLasting ? 'error' : 'warn'](fields, `could not write ${what} to the ledger partition`);
  }
}

function fenced(instanceId: string): IdallocError {
  const message = `another process joined the request group as instance ${instanceId}: give each worker its own INDEX_DIR, and its own INSTANCE_ID if that is set`;
  return new IdallocError('INSTANCE_FENCED', message);
}

function customLayoutOf(layout: Layout): PipelineDeps['customLayout'] {
  const text = customText(layout);
  return text === undefined ? undefined : { fingerprint: layout.fingerprint, text };
}

function createPublisher(
  { cluster, runtime, refusals, config }: WorkerContext,
  topics: ReplyTopics,
  lane: 'publish' | 'publish large',
): KafkaPublisher {
  const requestTopic = config.topics.requests;
  const isRevoked = (topic: string) => refusals.isRevoked(topic);
  return new KafkaPublisher({ cluster, runtime, topics, lane, requestTopic, isRevoked });
}

function pipelineDeps(
  context: WorkerContext,
  parts: RequestParts,
  publishers: Pick<PipelineDeps, 'publisher' | 'largePublisher'>,
): Omit<PipelineDeps, 'replyTopics'> {
  const { config, metrics, runtime, log } = context;
  const { topics, layout, datacenterId } = config;
  const letters = new RateLimitedLog(runtime, (level, fields, message) => log[level](fields, message));
  return {
    layout,
    datacenterId,
    maxCount: config.maxCount,
    index: parts.ledger.index,
    ledger: parts.ledger.ledger,
    allocator: parts.allocator,
    now: () => wallMs(runtime.wallMs()),
    runtime,
    names: { ...DEFAULT_HEADER_NAMES, ...config.headers },
    homeOf: (homeKey) => partitionFor(homeKey, parts.ledger.partitions, () => 0),
    renewAfterMs: config.renewAfterMs,
    clockMarginMs: config.clockMarginMs,
    requestTopic: topics.requests,
    deadLetterTopic: topics.deadLetters,
    replyPolicy: replyPolicyOf(topics),
    largeSlots: new Slots(LARGE_AT_ONCE),
    turns: new RecordTurns(runtime),
    junk: new JunkLimits(config.junkRate, runtime),
    schemas: openRegistry(config.registry, config.topics.requests),
    customLayout: customLayoutOf(layout),
    ...publishers,
    observe: {
      served: ({ issued, replayed, ids, numbers }) => {
        metrics.addRequests('issued', issued);
        metrics.addRequests('replayed', replayed);
        metrics.addIds(ids);
        metrics.addNumbers(numbers);
      },
      replied: (replies) => metrics.addReplies(replies),
      failed: (code) => {
        metrics.addRequests('refused');
        metrics.addError(code);
      },
      deadLettered: (code, records) => {
        metrics.addDeadLetters(code, records);
        letters.count({ code }, `requests became dead letters: ${code}`, records);
      },
      forwarded: (count) => metrics.addForwarded(count),
      deferred: (count) => metrics.addDeferred(count),
    },
    timeStep: context.timeStep,
  };
}
