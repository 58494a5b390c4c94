import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import type { CommittedPosition } from '../codec/request-position.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Report } from '../kafka/loops/member-claims.ts';
import { type Assigned, memberSettings } from '../kafka/loops/member-options.ts';
import type { CopyProgress } from '../ledger/ledger-ports.ts';
import type { Log } from '../log.ts';
import { NO_REQUESTS, type RequestVitals } from '../metrics/vitals.ts';
import { processBatch } from '../pipeline/batch.ts';
import type { NumberDecisions } from '../pipeline/numbers.ts';
import type { PipelineDeps } from '../pipeline/part.ts';
import type { Allocator } from '../pipeline/ports.ts';
import type { QuotaUse } from '../pipeline/quotas.ts';
import type { WorkerContext } from './context.ts';
import type { IdentityHolder } from './identity-holder.ts';
import type { LedgerService } from './ledger-service.ts';
import { Reach, type SilentLeader, silenceText, UNREACHED_MS } from './reach.ts';
import { RequestGroup } from './request-group.ts';
import { requestPipeline } from './request-pipeline.ts';
import type { TopicsWatch } from './topics-watch.ts';

/** A copy that is not complete, and how far it is; undefined before it is opened. */
interface RestoringCopy {
  readonly partition: number;
  readonly progress: CopyProgress | undefined;
}

/** How often a marker is written for each served partition, so that its ledger never runs empty. */
const MARKER_INTERVAL_MS = 3_600_000;

/** How often a worker tries again what it could not do for a partition before. */
const RETRY_INTERVAL_MS = 5_000;
const COPIED_LOG_MS = 600_000;

/** The dependencies of serving requests, besides the context. */
export interface RequestParts {
  readonly ledger: LedgerService;
  readonly identity: IdentityHolder;
  readonly allocator: Allocator;
  readonly topics: Pick<TopicsWatch, 'added'>;
}

/**
 * Serves requests, from the assignment of a partition to its answers.
 *
 * When may a worker decide the first request of a partition that was assigned to it? The group's leader says who should
 * serve a partition, and no more than that. The worker before may not have noticed yet, and goes on for seconds. The
 * worker after may not know what was decided: without the ledger's entries it would decide each request a second time.
 * And where to begin is an offset that somebody committed, perhaps a tool that knows nothing of answers.
 *
 * Two workers that serve one partition do no harm: whose entry comes first in the ledger has decided, and both send its
 * reply. So nothing here waits for the worker before. What would do harm is a decision without knowledge. So an
 * assignment opens nothing. It only begins to gather four things, each of which is kept by one object, and a partition
 * is served while all four are there:
 *
 *   the gate is open           `Membership`: it pauses at once, and leaves the group when the gate stays closed
 *   this worker is a member    `RequestGroup`: one stay in the group, which ends with the membership
 *   the copy is complete       `LedgerService`: the partition's ledger is known up to its end
 *   the beginning is known     `RequestGroup`: a position that a worker has committed, or else what the ledger shows
 *
 * The way of a partition through them:
 *
 *  1. The gate opens, and the worker joins. It reports the copies that it has, so that the leader gives a partition to
 *     whoever can serve it at once. It keeps all of them until it has an answer.
 *  2. The assignment comes. Copies of the worker's own and standby partitions are kept from now on, and others go after
 *     a while. Nothing is decided on a new partition before a marker is in its ledger, which shows later restores a
 *     point at which a copy was complete.
 *  3. The group asks the coordinator for the committed offset. If a worker has put its mark on it, reading begins
 *     there. Otherwise reading begins where the ledger shows that everything before was answered, and the ledger is
 *     told first that what follows may be a replay.
 *  4. A `RequestPartition` follows the topic from there. It stays paused until the copy is complete, and `refresh` is
 *     called for each change of that. The other partitions do not wait for it.
 *  5. The first chunk begins with the last record that was answered. If it is not the same record any more, the topic
 *     has lost its tail, and a new session begins further back.
 *  6. The `RequestSession` cuts the chunk into parts, and the pipeline decides them. A moment after they are answered
 *     their position is committed.
 *
 * When a partition leaves, its session ends at once, and what was in progress settles behind it. When one stays through
 * a rebalance, its session does not even notice.
 */
export class RequestService implements AsyncDisposable {
  readonly #context: WorkerContext;
  readonly #parts: RequestParts;
  readonly #pipeline: PipelineDeps;
  readonly #numbers: NumberDecisions;
  readonly #reach: Reach;
  /** Undefined before the first assignment. */
  #share: Assigned | undefined;
  /** The last stay in the group. */
  #group: RequestGroup | undefined;
  #membership: Membership | undefined;
  /** Partitions whose copies were complete at the last check. */
  readonly #ready = new Set<number>();
  #announced = false;
  /** All copies that this worker was given were complete once. */
  #wasComplete = false;
  readonly #markers: readonly Disposable[];

  constructor(context: WorkerContext, parts: RequestParts) {
    this.#context = context;
    this.#parts = parts;
    const { ledger, identity, allocator } = parts;
    const { deps, numbers, sending } = requestPipeline(context, {
      ...{ ledger, allocator, quotaShare: () => this.#quotaShare },
      namespace: () => identity.namespaceUuid,
    });
    this.#pipeline = deps;
    this.#numbers = numbers;
    this.#reach = new Reach({
      ...context,
      topics: context.config.topics,
      partitions: ledger.partitions,
      replies: sending,
      onChange: () => this.#reachChanged(),
    });
    context.gate.onChange(() => this.#announce());
    ledger.onChange((partition) => this.#copyChanged(partition));
    const each = (act: (partition: number) => void) => () => {
      for (const partition of this.#share?.partitions ?? []) act(partition);
    };
    this.#markers = [
      every(context.runtime, MARKER_INTERVAL_MS, each(this.#mark)),
      every(context.runtime, RETRY_INTERVAL_MS, each(this.#retry)),
    ];
  }

  /** Joins the group as soon as the gate is open. */
  start(): void {
    const { config, gate, runtime, log } = this.#context;
    const membership = new Membership({
      createMember: () => this.#createGroup(),
      isOpen: () => gate.reason() === undefined,
      graceExpired: () => gate.graceExpired(config.gateGraceMs),
      runtime,
      log,
    });
    this.#membership = membership;
    gate.onChange(() => membership.gateChanged());
  }

  /** Partitions were added to the request topic. */
  grown(): void {
    this.#group?.grown();
  }

  /** Leaves the group. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#membership?.stop();
    for (const timer of this.#markers) timer[Symbol.dispose]();
    this.#reach[Symbol.dispose]();
  }

  /** Whether this worker has joined the group and has not been removed since. */
  get isMember(): boolean {
    return this.#membership?.joined ?? false;
  }

  /** The last assignment of this worker; undefined before the first. */
  get share(): Assigned | undefined {
    return this.#share;
  }

  get quotaUses(): readonly QuotaUse[] {
    return this.#pipeline.quotas?.uses() ?? [];
  }

  /** What is answered of a partition; undefined while this worker does not know. */
  answered(partition: number): CommittedPosition | undefined {
    return this.#group?.answered(partition);
  }

  get vitals(): RequestVitals {
    return this.#group?.vitals ?? NO_REQUESTS;
  }

  /** The brokers that have not answered for this long and on which partitions of this worker depend. */
  silentFor(atLeastMs: number): readonly SilentLeader[] {
    const own = this.#share?.partitions ?? [];
    return this.#reach.silentFor(atLeastMs).filter(({ partition }) => own.includes(partition));
  }

  /** How many sequences are stopped, as far as requests for their numbers have shown it. */
  get stoppedSequences(): number {
    return this.#numbers.stopped;
  }

  /** The partitions of this worker that wait for their ledger copies, with their progress. */
  get restoring(): readonly RestoringCopy[] {
    return this.#restoringOf(this.#share?.partitions ?? []);
  }

  /**
   * The standby copies that are restored since this worker started, for which a roll waits: the next worker may have
   * the last ones. None any more once all were complete. Those that the group gives later, because another worker is
   * gone, don't count: with them no worker would be ready for HTTP callers while all restore what that one had.
   */
  get awaited(): readonly RestoringCopy[] {
    return this.#wasComplete ? [] : this.#restoringOf(this.#share?.standbys ?? []);
  }

  #restoringOf(partitions: readonly number[]): RestoringCopy[] {
    return partitions
      .map((partition) => ({ partition, progress: this.#parts.ledger.progress(partition) }))
      .filter(({ progress }) => progress === undefined || progress.state === 'restoring');
  }

  /** A warm-up that is complete is followed by another assignment, which may bring more copies. */
  #noteComplete(): void {
    const isSettled = this.#share !== undefined && this.#share.warmups.length === 0;
    if (isSettled && this.restoring.length === 0 && this.awaited.length === 0) this.#wasComplete = true;
  }

  #createGroup(): RequestGroup {
    const { config, environment, fail } = this.#context;
    const instanceId = environment.instanceId();
    this.#group = new RequestGroup({
      context: this.#context,
      settings: memberSettings({
        topic: config.topics.requests,
        partitions: this.#parts.ledger.partitions,
        groupId: config.groupId,
        instanceId,
        zone: config.zone,
        sessionTimeoutMs: config.groupSessionMs,
        standbys: config.standbys,
        acceptableLag: config.acceptableLag,
      }),
      handler: (partition, records, control) => processBatch(this.#pipeline, partition, records, control),
      isReady: (partition) => this.#isReady(partition),
      report: () => this.#report(),
      added: () => this.#parts.topics.added.get('requests') ?? 0,
      onAssigned: (share) => this.#assigned(share),
      stateReplay: (partition, below) => this.#parts.ledger.ledger.stateReplay(partition, below),
      onTruncated: (partition) => {
        if (!this.#isAdded(partition)) this.#mark(partition);
      },
      onFenced: () => fail(fenced(instanceId)),
    });
    return this.#group;
  }

  /**
   * What is reported at a join. An unrecognised copy may belong to another log. None is dropped until the group has
   * answered, however long that takes: it may assign partitions by them.
   */
  #report(): Report {
    this.#parts.ledger.keepAll();
    const own = this.#parts.ledger.copies().filter(({ isRecognised }) => isRecognised);
    const copies = new Map(own.map(({ partition, end, logEnd }) => [partition, { end, logEnd }]));
    return { copies, unreached: this.#reach.unreached };
  }

  #assigned(share: Assigned): void {
    const { log } = this.#context;
    const { partitions, added, removed, standbys, warmups } = share;
    this.#share = share;
    this.#parts.ledger.keep([...partitions, ...standbys]);
    for (const partition of [...added, ...removed]) this.#numbers.forget(partition);
    for (const partition of added) this.#mark(partition);
    log.info({ partitions, added, standbys, warmups }, 'joined the request group');
    this.#noteComplete();
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
    if (isOwn && wasReady && !isReady) this.#group?.rejoin(`the copy of partition ${partition} is lost`);
    this.#noteComplete();
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
    const { log } = this.#context;
    const error = silenceText(this.silentFor(UNREACHED_MS));
    if (error === '')
      log.info({ partitions: unreached }, 'brokers answer again: their partitions return after a while');
    else log.warn({ partitions: unreached, error }, "partitions can't be served from here: handing them over");
    this.#group?.rejoin(`brokers of partitions ${unreached} are not reached`);
  }

  /** Rejoins with complete warm-ups: the group leader then assigns those partitions to this worker. */
  #rejoinWhenWarm(): void {
    const isWarm = (partition: number) => this.#isReady(partition) && this.#reach.isReached(partition);
    const warm = this.#share?.warmups.filter(isWarm) ?? [];
    if (warm.length > 0) this.#group?.rejoin(`the copies of partitions ${warm} are complete`);
  }

  /** This worker's share of the quotas: its partitions out of all, at least one. */
  get #quotaShare(): number {
    return Math.max(1, this.#share?.partitions.length ?? 0) / this.#parts.ledger.partitions;
  }

  /** Requests of an added partition are only forwarded, which needs no ledger. */
  #isAdded(partition: number): boolean {
    return partition >= this.#parts.ledger.partitions;
  }

  #isReady(partition: number): boolean {
    return this.#isAdded(partition) || this.#parts.ledger.isReady(partition);
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

  /** Writes a marker, then the losses of sequences; on failure they stay due. */
  readonly #mark = (partition: number): void => {
    const marked = this.#parts.ledger.ledger.mark(partition).then(() => {
      this.#announce(); // a worker may be ready only now
      return this.#numbers.stateLosses(this.#pipeline, partition);
    });
    marked.catch((error) => this.#complain(partition, error));
  };

  /** A log that was copied to other offsets may have been adopted; etcd may answer again. */
  readonly #retry = (partition: number): void => {
    const { ledger } = this.#parts;
    if (ledger.ledger.ends.copied(partition) !== undefined) this.#mark(partition);
    else if (ledger.isReady(partition) && this.#context.gate.reason() === undefined)
      this.#numbers.stateLosses(this.#pipeline, partition).catch((error) => this.#complain(partition, error));
  };

  #complain(partition: number, error: unknown): void {
    if (error instanceof IdallocError && error.code === 'INDEX_RESTORING') return;
    const code = error instanceof IdallocError ? error.code : undefined;
    // An index that fails while it is in use is made anew, and restored: its own lines are warnings, too.
    const isLasting = error instanceof IdallocError && !error.retryable && code !== 'INDEX_UNUSABLE';
    const fields = { partition, error: describeError(error) };
    // A log that was copied is looked at again and again.
    const everyMs = code === 'LEDGER_COPIED' ? COPIED_LOG_MS : undefined;
    const repetition = { about: `${partition} ${code}`, everyMs };
    const what = 'could not write what is due to the ledger partition';
    this.#context.lines(isLasting ? 'error' : 'warn', fields, what, repetition);
  }
}

function fenced(instanceId: string): IdallocError {
  const message = `another process joined the request group as instance ${instanceId}: give each worker its own INDEX_DIR, and its own INSTANCE_ID if that is set`;
  return new IdallocError('INSTANCE_FENCED', message);
}

/** One stay in the request group. */
export type GroupMember = Pick<RequestGroup, 'joined' | 'start' | 'stop' | 'pause' | 'resume'>;

export interface MembershipOptions {
  /** Makes a member that has not joined yet. */
  readonly createMember: () => GroupMember;
  readonly isOpen: () => boolean;
  /** Whether the gate has been closed for longer than the grace time. */
  readonly graceExpired: () => boolean;
  readonly runtime: Runtime;
  readonly log: Log;
}

/** How often a closed gate is checked. */
const CHECK_MS = 500;

/**
 * Keeps the worker in the request group while it can serve.
 *
 *   out     -> in       the gate is open
 *   in      -> in       closed: paused immediately; open again: resumed in the same turn
 *   in      -> leaving  closed for longer than the grace time; leaving completes even if the gate opens meanwhile
 *   leaving -> out      left
 */
export class Membership {
  readonly #options: MembershipOptions;
  #member: GroupMember | undefined;
  #leaving: Promise<void> | undefined;
  readonly #watching: Disposable;
  #stopped = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#watching = every(options.runtime, CHECK_MS, () => this.gateChanged());
  }

  get joined(): boolean {
    return this.#member?.joined ?? false;
  }

  /** Acts on the current state of the gate; pauses and resumes in this turn. */
  gateChanged(): void {
    if (this.#stopped) return;
    const { isOpen, graceExpired, createMember } = this.#options;
    const open = isOpen();
    if (open) this.#member?.resume();
    else this.#member?.pause();
    if (this.#leaving !== undefined) return;
    if (this.#member === undefined && open) {
      this.#member = createMember();
      this.#member.start();
    } else if (this.#member !== undefined && !open && graceExpired()) {
      this.#leave(this.#member);
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watching[Symbol.dispose]();
    if (this.#member !== undefined) this.#leave(this.#member);
    await this.#leaving;
  }

  #leave(member: GroupMember): void {
    this.#member = undefined;
    const { log } = this.#options;
    this.#leaving = member
      .stop()
      .then(() => log.info('left the request group'))
      .catch((error) => log.warn({ error: describeError(error) }, 'could not leave the request group'))
      .finally(() => {
        this.#leaving = undefined;
        this.gateChanged();
      });
  }
}
