import { clockReader } from '../adapters/clock.ts';
import { certificateExpiries } from '../config/certificates.ts';
import type { Config } from '../config/config.ts';
import { mayBeRefusal, type UnreadyReason } from '../core/gate.ts';
import type { IdallocError } from '../errors.ts';
import { Cluster } from '../kafka/wire/cluster.ts';
import { seedsOf } from '../kafka/wire/settings.ts';
import { watchedDialer } from '../kafka/wire/watched-dialer.ts';
import { wireLog as createWireLog, type Log } from '../log.ts';
import type { Metrics, Vitals } from '../metrics.ts';
import { openApi } from './api-side.ts';
import { Gatekeeper } from './gatekeeper.ts';
import { GuardedClock } from './guarded-clock.ts';
import { IdentityHolder } from './identity-holder.ts';
import { KafkaRefusals } from './kafka-refusals.ts';
import { LedgerSide } from './ledger-side.ts';
import { ledgerTail } from './ledger-tail.ts';
import { Membership } from './membership.ts';
import { RequestSide } from './request-side.ts';
import { SecretWatch } from './secret-watch.ts';
import { realSurroundings, type Surroundings } from './surroundings.ts';
import type { Tools } from './tools.ts';
import { waitForTopics } from './topics-check.ts';
import { startWitness } from './witness-side.ts';

export interface WorkerDeps {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly surroundings?: Surroundings;
}

/** Kafka counts as away when no broker has answered anything for so long; an idle worker has an answer twice a second. */
export const KAFKA_SILENCE_MS = 5_000;

/**
 * A worker, from start to stop. It starts by itself and waits for whatever is away; `unready` says for what.
 *
 * Each part is put on the stack when it starts, so that a start that fails half-way, and the stop, undo it in reverse.
 */
export class Worker implements AsyncDisposable {
  /** Rejects when the worker can't start or can't go on; pending otherwise. */
  readonly done: Promise<void>;
  readonly #tools: Tools;
  readonly #refusals: KafkaRefusals;
  readonly #identity: IdentityHolder;
  readonly #stack = new AsyncDisposableStack();
  readonly #stop = new AbortController();
  readonly #beganMs: number;
  readonly #starting: Promise<void>;
  #ledger: LedgerSide | undefined;
  #requests: RequestSide | undefined;
  #membership: Membership | undefined;
  #stopped: Promise<void> | undefined;

  /**
   * `done` rejects with TOPIC_INVALID, LEDGER_WEAK, LEDGER_RETENTION, INDEX_LOCKED, INDEX_UNUSABLE; CONFIG_INVALID when the
   * brokers refuse the login or the API's port can't be taken.
   */
  constructor(config: Config, { log, metrics, surroundings = realSurroundings(config, log) }: WorkerDeps) {
    const failed = Promise.withResolvers<void>();
    failed.promise.catch(() => undefined); // whoever watches `done` learns of it, also when it comes before that
    const { runtime, dialer, etcd } = surroundings;
    const readClock = clockReader(runtime.wallMs, runtime.monotonicMs);
    const gate = new Gatekeeper({ now: () => readClock().mono, log });
    const clock = new GuardedClock(readClock);
    const wireLog = createWireLog(log, runtime.monotonicMs);
    this.#refusals = new KafkaRefusals({ ...config, runtime, log });
    const watched = watchedDialer(dialer, this.#refusals);
    const cluster = new Cluster({ dialer: watched, seeds: seedsOf(config.kafka.brokers), runtime, log: wireLog });
    const fail = failed.reject;
    this.#beganMs = runtime.monotonicMs();
    this.done = failed.promise;
    const refusals = this.#refusals;
    this.#tools = { config, log, wireLog, metrics, runtime, cluster, clock, gate, surroundings, refusals, fail };
    this.#identity = new IdentityHolder({ config, log, runtime, etcd, clock, gate, metrics, fail });
    metrics.setGate('STARTING');
    gate.onChange((reason) => metrics.setGate(reason ?? 'open'));
    this.#starting = this.#start().catch(failed.reject);
  }

  /** Why ledger partitions stand still, with their requests. */
  get stoppedPartitions(): readonly IdallocError[] {
    return this.#ledger?.stopped ?? [];
  }

  /** Why no requests are served, or not those of every partition; undefined while they are. */
  get unready(): UnreadyReason | undefined {
    const reason = this.#tools.gate.reason();
    if (mayBeRefusal(reason) && this.#refusals.detail !== undefined) return 'KAFKA_REFUSED';
    if (reason !== undefined) return reason;
    if (this.stoppedPartitions.length > 0) return 'LEDGER_UNREADABLE';
    const { kafkaSilenceMs: silentMs, isMember } = this.vitals();
    if (silentMs > KAFKA_SILENCE_MS) return 'KAFKA_UNAVAILABLE';
    if (!isMember) return 'GROUP_JOINING';
    return this.#requests?.restoring.length === 0 ? undefined : 'INDEX_RESTORING';
  }

  /** What there is to say of `unready`, for people. */
  get unreadyDetail(): string | undefined {
    switch (this.unready) {
      case 'KAFKA_REFUSED':
        return this.#refusals.detail;
      case 'LEDGER_UNREADABLE':
        return this.stoppedPartitions.map(({ message }) => message).join('; ');
      case 'INDEX_RESTORING':
        return this.#requests?.restoring
          .map(({ partition, progress }) => {
            const place = progress.state === 'absent' ? 'not begun' : `at ${progress.end} of ${progress.logEnd}`;
            return `ledger partition ${partition}: ${place}`;
          })
          .join('; ');
      case 'NO_IDENTITY':
      case 'LEASE_SUSPENDED':
        return this.#tools.surroundings.etcd.fault?.message;
      default:
        return undefined;
    }
  }

  /** How it stands with Kafka, whatever the gate says. */
  vitals(): Vitals {
    const { cluster, config, runtime } = this.#tools;
    return {
      isMember: this.#membership?.joined === true,
      kafkaSilenceMs: runtime.monotonicMs() - (cluster.lastAnswerMs ?? this.#beganMs),
      stoppedPartitions: this.stoppedPartitions.length,
      oldestUnread: this.#requests?.oldestUnread ?? [],
      kafkaRefused: this.#refusals.resources,
      copies: this.#copies(),
      certificates: certificateExpiries(config),
    };
  }

  #copies(): Vitals['copies'] {
    const [ledger, share] = [this.#ledger, this.#requests?.share];
    if (ledger === undefined) return [];
    return ledger.copies().map(({ partition, state, end, logEnd }) => {
      const isServing = state === 'following' && share?.partitions.includes(partition) === true;
      return { partition, state: isServing ? 'serving' : state, lag: logEnd - end };
    });
  }

  /** Finishes what is in hand, leaves the group and gives the identity back. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #end(): Promise<void> {
    this.#tools.gate.close('process', 'STOPPING');
    this.#stop.abort();
    await this.#starting;
    await this.#stack.disposeAsync();
  }

  async #start(): Promise<void> {
    const { config, log, runtime, cluster, gate, clock, metrics, surroundings } = this.#tools;
    const stack = this.#stack;
    const identity = this.#identity;
    stack.use(new SecretWatch(config.secretFiles, runtime, log));
    const release = () => identity[Symbol.asyncDispose]();
    stack.defer(release);
    const allocator = surroundings.createAllocator({
      layout: config.layout,
      datacenterId: config.datacenterId,
      readClock: () => clock.read(),
      authority: (now) => identity.authority(now),
      random: runtime.random,
      sleep: runtime.sleep,
    });
    const api = await openApi({ config, log, metrics, gate, allocator });
    const closeApi = async () => api?.stop();
    if (api !== undefined) gate.onChange((reason) => api.gateChanged(reason));
    stack.defer(closeApi);
    stack.defer(() => cluster.close());
    const report = await waitForTopics({ cluster, config, gate, runtime, log, stop: this.#stop.signal });

    const tail = stack.adopt(ledgerTail(cluster, runtime, this.#tools.wireLog), (one) => one.close());
    const ledger = stack.use(new LedgerSide(this.#tools, report, tail));
    this.#ledger = ledger;
    const witness = startWitness({ config, cluster, runtime, tail });
    stack.defer(release);
    stack.defer(closeApi); // what is under way is answered before the identity is given back
    identity.start({ witness, askBrokers: () => ledger.log.askClocks() });
    const requests = stack.use(new RequestSide(this.#tools, { ledger, identity, allocator }));
    this.#requests = requests;
    await ledger.recognised(this.#stop.signal); // the group is to learn at the first join which copies this worker has
    const membership = new Membership({
      createMember: () => requests.createMember(),
      isOpen: () => gate.reason() === undefined,
      graceOver: () => gate.graceOver(config.gateGraceMs),
      runtime,
      log,
    });
    this.#membership = membership;
    gate.onChange(() => membership.gateChanged());
    stack.defer(() => membership.stop());
    gate.clear('process');
  }
}
