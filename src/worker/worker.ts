import { certificateExpiries } from '../config/certificates.ts';
import type { Config } from '../config/config.ts';
import { certainLeadMs, clockReader } from '../core/clock-guard.ts';
import { type GateReason, mayBeRefusal, type UnreadyReason } from '../core/gate.ts';
import { tickStartMs } from '../core/layout.ts';
import type { ErrorCode, IdallocError } from '../errors.ts';
import type { ApiListener } from '../http/api-listener.ts';
import type { Status } from '../http/status.ts';
import { Cluster } from '../kafka/wire/cluster.ts';
import { seedsOf } from '../kafka/wire/settings.ts';
import { watchedDialer } from '../kafka/wire/watched-dialer.ts';
import { wireLog as createWireLog, type Log, withoutRepeats } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { NO_REQUESTS, type Vitals } from '../metrics/vitals.ts';
import { type Tracing, UNTRACED } from '../pipeline/trace.ts';
import { openApi, openLedgerRequests } from './api-service.ts';
import type { WorkerContext } from './context.ts';
import { type Outside, realEnvironment, stepTimer, timedEtcd } from './environment.ts';
import { EtcdWatch } from './etcd-watch.ts';
import { Gatekeeper } from './gatekeeper.ts';
import { GuardedClock } from './guarded-clock.ts';
import { IdentityHolder } from './identity-holder.ts';
import { KafkaRefusals } from './kafka-refusals.ts';
import { LedgerService } from './ledger-service.ts';
import { ledgerTail, startWitness } from './ledger-tail.ts';
import { type SilentLeader, silenceText } from './reach.ts';
import { ReadinessLog } from './readiness-log.ts';
import { RequestService } from './request-service.ts';
import { SecretWatch } from './secret-watch.ts';
import { counting, StatusBoard, type StatusSource, type Totals } from './status.ts';
import { TopicsWatch, waitForTopics } from './topics-watch.ts';
import { UnreadWatch } from './unread.ts';

export interface WorkerDeps {
  readonly log: Log;
  readonly metrics: Metrics;
  /** Default: none. */
  readonly tracing?: Tracing | undefined;
  readonly environment?: Outside;
}

/**
 * Kafka counts as unavailable when no broker has answered for this long; an idle worker gets a response twice a second.
 */
export const KAFKA_SILENCE_MS = 5_000;

/**
 * A worker, from start to stop. It starts in the constructor and waits for servers that are down; `unready` names them.
 *
 * Each part is pushed on a stack when it starts, so that a failed start and the stop both undo the parts in reverse.
 */
export class Worker implements AsyncDisposable {
  /** Rejects when the worker can't start or can't continue; pending otherwise. */
  readonly done: Promise<void>;
  readonly #context: WorkerContext;
  readonly #refusals: KafkaRefusals;
  readonly #identity: IdentityHolder;
  readonly #stack = new AsyncDisposableStack();
  readonly #stop = new AbortController();
  readonly #beganMs: number;
  readonly #starting: Promise<void>;
  readonly #board: StatusBoard;
  #ledger: LedgerService | undefined;
  #requests: RequestService | undefined;
  #topics: TopicsWatch | undefined;
  #etcdWatch: EtcdWatch | undefined;
  #unread: UnreadWatch | undefined;
  #stopped: Promise<void> | undefined;
  #api: ApiListener | undefined;
  /** Whether its end was announced. */
  #isLeaving = false;

  /**
   * `done` rejects with TOPIC_INVALID, LEDGER_WEAK, LEDGER_RETENTION, INDEX_LOCKED, INDEX_UNUSABLE; CONFIG_INVALID when
   * the brokers reject the login or the API's port can't be bound.
   */
  constructor(
    config: Config,
    { log, metrics: given, tracing = UNTRACED, environment: outside = realEnvironment(config, log) }: WorkerDeps,
  ) {
    const totals: Totals = { ids: 0, numbers: 0, requests: 0 };
    const metrics = counting(given, totals);
    const failed = Promise.withResolvers<void>();
    failed.promise.catch(() => undefined); // may reject before anything awaits `done`
    const { runtime, dialer } = outside;
    const etcd = timedEtcd(outside.etcd, runtime, metrics);
    const environment = { ...outside, etcd };
    const readClock = clockReader(runtime.wallMs, runtime.monotonicMs);
    const gate = new Gatekeeper({ now: () => readClock().mono, log });
    const clock = new GuardedClock(readClock);
    const lines = withoutRepeats(log, runtime);
    const wireLog = createWireLog(log, runtime);
    this.#refusals = new KafkaRefusals({ ...config, runtime, lines });
    const watched = watchedDialer(dialer, this.#refusals);
    const cluster = new Cluster({ dialer: watched, seeds: seedsOf(config.kafka.brokers), runtime, log: wireLog });
    const fail = failed.reject;
    this.#beganMs = runtime.monotonicMs();
    this.done = failed.promise;
    const refusals = this.#refusals;
    this.#context = {
      ...{ config, log, lines, wireLog, metrics, tracing, runtime, cluster, clock, gate, environment, refusals, fail },
      timeStep: stepTimer(runtime, metrics),
    };
    this.#identity = new IdentityHolder({ config, log, runtime, etcd, clock, gate, metrics, fail });
    this.#board = new StatusBoard(this.#context, this.#statusSource(), totals);
    metrics.setGate('STARTING');
    gate.onChange((reason) => metrics.setGate(reason ?? 'open'));
    this.#starting = this.#start().catch(failed.reject);
  }

  /** Why ledger partitions, and with them their requests, are stopped. */
  get stoppedPartitions(): readonly IdallocError[] {
    return this.#ledger?.stopped ?? [];
  }

  /** Why no requests are served, or not those of every partition; undefined while they are. */
  get unready(): UnreadyReason | undefined {
    if (this.#isLeaving) return 'STOPPING';
    const reason = this.#context.gate.reason();
    if (mayBeRefusal(reason) && this.#refusals.detail !== undefined) return 'KAFKA_REFUSED';
    if (reason !== undefined) return reason;
    const [stopped] = this.stoppedPartitions;
    if (stopped !== undefined) return stopped.code === 'LEDGER_COPIED' ? 'LEDGER_COPIED' : 'LEDGER_UNREADABLE';
    const { kafkaSilenceMs: silentMs, isMember } = this.vitals();
    if (silentMs > KAFKA_SILENCE_MS) return 'KAFKA_UNAVAILABLE';
    if (this.#silent.length > 0) return 'KAFKA_UNAVAILABLE';
    if (!isMember) return 'GROUP_JOINING';
    return this.#requests?.restoring.length === 0 ? undefined : 'INDEX_RESTORING';
  }

  /** Why a roll must not go on to the next worker: as `unready`, or the copies of this one are not complete yet. */
  get incomplete(): UnreadyReason | undefined {
    return this.unready ?? (this.#awaitedCopies === undefined ? undefined : 'STANDBY_RESTORING');
  }

  /** Details on `incomplete`, for operators. */
  get incompleteDetail(): string | undefined {
    return this.unready === undefined ? this.#awaitedCopies : this.unreadyDetail;
  }

  get #awaitedCopies(): string | undefined {
    return placesOf(this.#requests?.awaited ?? []);
  }

  /** Why no IDs are allocated over HTTP, which needs no partition; undefined while they are. */
  get closed(): GateReason | undefined {
    return this.#isLeaving ? 'STOPPING' : this.#context.gate.reason();
  }

  /** Details on `unready`, for operators. */
  get unreadyDetail(): string | undefined {
    return this.detailOf(this.unready);
  }

  /** Details on a reason that the worker has now, for operators. */
  detailOf(reason: UnreadyReason | undefined): string | undefined {
    switch (reason) {
      case 'KAFKA_REFUSED':
        return this.#refusals.detail;
      case 'LEDGER_UNREADABLE':
      case 'LEDGER_COPIED':
        return this.stoppedPartitions.map(({ message }) => message).join('; ');
      case 'INDEX_RESTORING':
        return placesOf(this.#requests?.restoring ?? []);
      case 'KAFKA_UNAVAILABLE':
        return this.#kafkaSilence ?? this.#context.gate.detail();
      case 'RESERVATION_EXHAUSTED':
        return this.#kafkaSilence ?? this.#identity.detail('RESERVATION_EXHAUSTED') ?? this.#context.gate.detail();
      case 'NO_IDENTITY':
      case 'LEASE_SUSPENDED':
        return this.#identity.detail('LEASE_SUSPENDED') ?? this.#context.gate.detail();
      default:
        return this.#context.gate.detail();
    }
  }

  /** Brokers that do not answer and on which partitions of this worker depend. */
  get #silent(): readonly SilentLeader[] {
    return this.#requests?.silentFor(KAFKA_SILENCE_MS) ?? [];
  }

  /** Which brokers are silent, for operators; undefined if those that matter answer. */
  get #kafkaSilence(): string | undefined {
    if (this.#silent.length > 0) return silenceText(this.#silent);
    const { kafkaSilenceMs: silentMs } = this.vitals();
    if (silentMs <= KAFKA_SILENCE_MS) return undefined;
    return `no broker has answered for ${Math.floor(silentMs / 1_000)} s: check the brokers, and the network to them`;
  }

  /** What needs an operator although all partitions of this worker are served; undefined for nothing. */
  get warning(): { readonly code: ErrorCode; readonly detail: string } | undefined {
    const [topics, detail] = [this.#topics?.warning, this.#etcdWatch?.detail];
    if (detail === undefined) return topics;
    if (topics === undefined) return { code: 'ETCD_REFUSED', detail };
    return { code: topics.code, detail: `${topics.detail}; ${detail}` };
  }

  /** The worker's state for the metrics, whatever the gate says. */
  vitals(): Vitals {
    const { cluster, clock, config, runtime, environment } = this.#context;
    const unread = this.#unread;
    return {
      isMember: this.#requests?.isMember === true,
      kafkaSilenceMs: runtime.monotonicMs() - (cluster.lastResponseMs ?? this.#beganMs),
      silent: this.#silent,
      stoppedPartitions: this.stoppedPartitions.length,
      headsFailingMs: this.#ledger?.headsFailingMs ?? 0,
      addedPartitions: this.#topics?.added ?? new Map(),
      topicFaults: this.#topics?.faults ?? [],
      ...(this.#requests?.vitals ?? NO_REQUESTS),
      stoppedSequences: this.#requests?.stoppedSequences ?? 0,
      kafkaRefused: this.#refusals.resources,
      etcd: this.#etcdWatch?.vitals ?? { databases: [], alarms: new Set() },
      copies: this.#copies(),
      brokerLeads: clock.driftByBroker().map(([broker, drift]) => ({ broker, milliseconds: certainLeadMs(drift) })),
      configured: {
        reservationMs: config.timing.reserveMs,
        clockMarginMs: config.clockMarginMs,
        etcdQuotaBytes: config.etcd.quotaBytes,
        standbys: config.standbys === 'all' ? 1 : config.standbys,
        poolWorkerIds: config.pool.last - config.pool.first + 1,
        layoutEndMs: tickStartMs(config.layout, config.layout.endTicks),
      },
      // Getters, because readiness probes read the vitals too, and only the metrics need these.
      get groupUnread() {
        return unread?.oldest ?? [];
      },
      get certificates() {
        return certificateExpiries(config);
      },
      get indexDisk() {
        return environment.indexDisk();
      },
    };
  }

  /** What the status page shows. Never waits for a server. */
  get status(): Status {
    return this.#board.status;
  }

  #statusSource(): StatusSource {
    return {
      readiness: () => ({ reason: this.unready, detail: this.unreadyDetail, warning: this.warning?.detail }),
      vitals: () => this.vitals(),
      identity: () => ({ ...this.#identity.describe(), margins: this.#identity.margins() }),
      owned: () => this.#owned,
      since: (partition) => this.#ledger?.index.since(partition),
      quotas: () => this.#requests?.quotaUses ?? [],
    };
  }

  /** The partitions that this worker answers; none once it has left the group. */
  get #owned(): readonly number[] {
    return this.#requests?.isMember === true ? (this.#requests.share?.partitions ?? []) : [];
  }

  #copies(): Vitals['copies'] {
    const [ledger, owned] = [this.#ledger, this.#owned];
    if (ledger === undefined) return [];
    return ledger.copies().map(({ partition, state, low, end, logEnd }) => {
      const isServing = state === 'following' && owned.includes(partition);
      return { partition, state: isServing ? 'serving' : state, low, end, logEnd };
    });
  }

  /**
   * The worker will be disposed of soon: it is not ready from now on, but serves as before, and each HTTP response ends
   * its connection.
   */
  announceEnd(): void {
    this.#isLeaving = true;
    this.#api?.announceEnd();
  }

  /** Completes the work in progress, leaves the group and releases the identity. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #end(): Promise<void> {
    this.#context.gate.close('process', 'STOPPING');
    this.#stop.abort();
    await this.#starting;
    await this.#stack.disposeAsync();
  }

  async #start(): Promise<void> {
    const { config, log, lines, runtime, cluster, gate, clock, environment, fail } = this.#context;
    const stack = this.#stack;
    const identity = this.#identity;
    stack.use(new SecretWatch(config.secretFiles, runtime, log));
    const release = () => identity[Symbol.asyncDispose]();
    stack.defer(release);
    const { quotaBytes } = config.etcd;
    this.#etcdWatch = stack.use(new EtcdWatch({ etcd: environment.etcd, runtime, log, quotaBytes }));
    const allocator = environment.createAllocator({
      layout: config.layout,
      datacenterId: config.datacenterId,
      readClock: () => clock.read(),
      authority: (now) => identity.authority(now),
      random: runtime.random,
      sleep: runtime.sleep,
    });
    const asked = stack.use(openLedgerRequests(this.#context));
    const api = await openApi({ ...this.#context, allocator, ledger: asked });
    this.#api = api;
    if (this.#isLeaving) api?.announceEnd();
    const closeApi = async () => api?.stop();
    if (api !== undefined) gate.onChange((reason) => api.gateChanged(reason));
    stack.defer(closeApi);
    stack.defer(() => cluster.close());
    const { etcd } = environment;
    const { signal: stop } = this.#stop;
    const { clusterId } = await waitForTopics({ cluster, etcd, config, gate, runtime, lines, stop });

    const tail = stack.adopt(ledgerTail(cluster, runtime, this.#context.wireLog, config.zone), (one) => one.close());
    const answered = (partition: number) => this.#requests?.answered(partition);
    const owned = () => this.#requests?.share?.partitions ?? [];
    const ledger = stack.use(new LedgerService(this.#context, { clusterId, tail, answered, owned }));
    this.#ledger = ledger;
    const onAdded = () => this.#requests?.grown();
    const topics = stack.use(new TopicsWatch({ cluster, config, runtime, log, onAdded, fail }));
    this.#topics = topics;
    const { requests: topic, requestPartitions } = config.topics;
    const partitions = () => requestPartitions + (topics.added.get('requests') ?? 0);
    this.#unread = new UnreadWatch({ cluster, runtime, log, groupId: config.groupId, topic, partitions });
    const witness = startWitness({ config, cluster, runtime, tail });
    stack.defer(release);
    stack.defer(closeApi); // requests in progress are answered before the identity is released
    identity.start({ clusterId, witness, sampleBrokerClocks: () => ledger.log.sampleBrokerClocks() });
    const requests = stack.use(new RequestService(this.#context, { ledger, identity, allocator, topics }));
    this.#requests = requests;
    const readiness = () => ({ reason: this.unready, detail: this.unreadyDetail });
    stack.use(new ReadinessLog({ runtime, log, readiness }));
    await ledger.recognised(stop); // so that the first join reports the copies of this worker
    requests.start();
    gate.clear('process');
  }
}

/** How far copies are, for operators; undefined for none. */
function placesOf(copies: RequestService['restoring']): string | undefined {
  if (copies.length === 0) return undefined;
  const places = copies.map(({ partition, progress }) => {
    const place = progress === undefined ? 'not started' : `at ${progress.end} of ${progress.logEnd}`;
    return `ledger partition ${partition}: ${place}`;
  });
  return places.join('; ');
}
