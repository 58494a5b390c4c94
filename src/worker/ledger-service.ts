import type { IndexBinding } from '../adapters/index/sqlite-index.ts';
import { KafkaLedgerEntries, KafkaLedgerLog } from '../adapters/kafka/ledger-log.ts';
import { LedgerReading } from '../adapters/kafka/ledger-reading.ts';
import { Mutex } from '../async/mutex.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import { aborted, atMost, every } from '../async/waiting.ts';
import type { CommittedPosition } from '../codec/request-position.ts';
import { restatedAfterMs } from '../core/sequence-row.ts';
import { wallMs } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import { headKeysOf } from '../identity/bindings.ts';
import type { Tail } from '../kafka/loops/tail.ts';
import { type EndHeads, EtcdEndHeads } from '../ledger/end-heads.ts';
import type { EndEvents, Loss } from '../ledger/ends.ts';
import { Ledger } from '../ledger/ledger.ts';
import type { CopyProgress, LedgerCopies, LedgerIndex } from '../ledger/ledger-ports.ts';
import { LedgerPartition } from '../ledger/partition.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { WorkerContext } from './context.ts';

/** A copy that is not recognised after this time is not reported when the worker joins the group. */
const RECOGNITION_MS = 5_000;
/** How often the index learns where the log starts; it also maintains its store then. */
const EXPIRE_INTERVAL_MS = 10_000;
/**
 * What a worker forgets at most that is killed or loses power. It reads that from the ledger again; if the ledger has
 * lost it meanwhile, nothing shows that it was there.
 */
const SAVE_INTERVAL_MS = 1_000;

const CLUSTER_TIMEOUT_MS = 5_000;

/** The dependencies of the ledger, besides the context. */
export interface LedgerParts {
  readonly clusterId: string;
  readonly tail: Tail;
  /** What this worker has answered of a request partition, which each append says; undefined while it does not know. */
  readonly answered: (partition: number) => CommittedPosition | undefined;
  /** The partitions that this worker serves. */
  readonly owned: () => readonly number[];
}

/**
 * The ledger of a worker: appending, deciding, and the copies of its partitions in the index, which are kept in step
 * with the log.
 */
export class LedgerService implements Disposable {
  readonly index: LedgerIndex;
  readonly ledger: Ledger;
  readonly log: KafkaLedgerLog;
  readonly partitions: number;
  readonly #context: WorkerContext;
  /** Resolves when the copies on disk are open. */
  readonly #opened: Promise<void>;
  readonly #disk: LedgerCopies;
  readonly #copies: KeptCopies;
  readonly #timers: readonly Disposable[];
  readonly #partitions: readonly LedgerPartition[];
  /** The reading of each open copy. */
  readonly #readings = new Map<number, LedgerReading>();
  readonly #reports: EndReports;
  readonly #owned: () => readonly number[];
  #syncing: Promise<void> | undefined;
  readonly #listeners: ((partition: number) => void)[] = [];

  /**
   * Opens the index and starts to follow the partitions that it has copies of. Throws INDEX_LOCKED or INDEX_UNUSABLE.
   */
  constructor(context: WorkerContext, { clusterId, tail, answered, owned }: LedgerParts) {
    const { config, runtime, cluster, clock, log, metrics, wireLog, environment, fail } = context;
    const { ledger: topic, requests: requestTopic, requestPartitions: partitions } = config.topics;
    this.#context = context;
    this.#owned = owned;
    this.#reports = new EndReports({ runtime, log, lines: context.lines, metrics });
    this.partitions = partitions;
    const binding: IndexBinding = { clusterId, ledgerTopic: topic, partitions };
    const index = environment.openIndex(binding, {
      onWiped: (cause) => {
        log.warn({ cause }, 'ledger index was discarded');
        for (const partition of this.#partitions ?? []) partition.restore(cause); // undefined while the index opens
      },
      onUnusable: fail,
    });
    this.index = index;
    this.#disk = index;
    const entries = new KafkaLedgerEntries({ cluster, runtime, topic });
    const following = {
      index,
      runtime,
      onRestart: (partition: number, cause: string) => {
        log.warn({ partition, cause }, 'restoring a ledger partition from the log');
        this.ledger.restarted(partition);
        this.#readings.get(partition)?.restart();
      },
      onChange: (partition: number) => {
        for (const changed of this.#listeners) changed(partition);
      },
      onStop: (partition: number, error: IdallocError) => {
        metrics.addError(error.code);
        log.error({ partition, code: error.code, error: describeError(error) }, 'ledger partition stopped');
      },
    };
    this.#partitions = Array.from({ length: partitions }, (_, number) => new LedgerPartition(number, following));
    this.log = new KafkaLedgerLog({
      cluster,
      runtime,
      topic,
      requestTopic,
      readClock: () => clock.read().reading,
      onDriftSample: (sample) => clock.recordDrift(sample),
      answered,
    });
    const keysOf = headKeysOf(config);
    this.ledger = new Ledger({
      log: this.log,
      entries,
      index,
      partitions: this.#partitions,
      restateAfterMs: restatedAfterMs(config.topics.ledgerRetentionMs),
      now: () => wallMs(runtime.wallMs()),
      monotonicMs: runtime.monotonicMs,
      trustedNow: () => clock.trusted(),
      timeStep: context.timeStep,
      heads: ofOneCluster(new EtcdEndHeads(environment.etcd, (partition) => keysOf(partition).end), context, clusterId),
      endEvents: this.#reports,
    });
    const reading = { cluster, runtime, tail, topic, log: wireLog, expiring: new Mutex() };
    this.#copies = new KeptCopies({
      index,
      runtime,
      lingerMs: config.copyLingerMs,
      onOpened: (partition) => {
        const copy = this.#of(partition);
        copy.open();
        this.#readings.set(partition, new LedgerReading(reading, copy, this.#mayLag(partition)));
      },
      onDropped: (partition) => {
        log.info({ partition }, 'deleting the copy of a ledger partition: this worker has not needed it for a while');
        this.#readings.get(partition)?.stop();
        this.#readings.delete(partition);
        this.#of(partition).drop();
      },
      onError: (error) =>
        log.error({ error: describeError(error) }, 'could not open or delete copies of ledger partitions'),
    });
    this.#timers = [
      every(runtime, EXPIRE_INTERVAL_MS, async () => {
        await Promise.all([...this.#readings.values()].map((one) => one.expire()));
      }),
      every(runtime, SAVE_INTERVAL_MS, () => this.#save()),
      every(runtime, SAVE_INTERVAL_MS, () => this.ledger.raise(owned()).catch(fail)),
      logRestores(runtime, log, () => this.copies()),
    ];
    this.#opened = this.#copies.openHeld();
  }

  /** Resolves when each copy on disk is recognised as this log's or found not to be; after 5 s in any case. */
  async recognised(stop: AbortSignal): Promise<void> {
    await this.#opened;
    const isPending = () => this.copies().some(({ state, isRecognised }) => state === 'restoring' && !isRecognised);
    let done = !isPending();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.onChange(() => {
      done ||= !isPending();
      if (done) resolve();
    });
    if (done) return;
    await atMost(this.#context.runtime, RECOGNITION_MS, (over) =>
      Promise.race([promise, aborted(AbortSignal.any([stop, over]))]),
    );
    done = true; // later changes no longer matter
  }

  /** Calls back after each change of state of a partition's copy. */
  onChange(listener: (partition: number) => void): void {
    this.#listeners.push(listener);
  }

  /** Keeps copies of these partitions, and drops the others after a while. Called after each assignment. */
  keep(partitions: readonly number[]): void {
    for (const [partition, reading] of this.#readings) reading.mayLag(this.#mayLag(partition));
    this.#copies.want(partitions);
  }

  /** Keeps all copies until the next call of `keep`. */
  keepAll(): void {
    this.#copies.keepAll();
  }

  /** How far a partition's copy is; undefined without one. */
  progress(partition: number): CopyProgress | undefined {
    return this.#of(partition).progress;
  }

  /** All copies that this worker keeps now. */
  copies(): readonly KeptCopy[] {
    return this.#partitions.flatMap(({ partition, progress }) => (progress ? { partition, ...progress } : []));
  }

  /** Whether requests of the partition can be decided now. */
  isReady(partition: number): boolean {
    return this.#of(partition).refusal === undefined;
  }

  /** Why partitions are stopped: their log holds something unreadable, or their entries at other offsets. */
  get stopped(): readonly IdallocError[] {
    const copied = this.#owned().flatMap((partition) => this.ledger.ends.copied(partition) ?? []);
    return [...this.#partitions.flatMap(({ stopped }) => stopped ?? []), ...copied];
  }

  /** For how long etcd has not confirmed how far the partitions have gone. */
  get headsFailingMs(): number {
    return this.#reports.failingMs;
  }

  [Symbol.dispose](): void {
    for (const timer of this.#timers) timer[Symbol.dispose]();
    this.#copies[Symbol.dispose]();
    for (const reading of this.#readings.values()) reading.stop();
    this.#readings.clear(); // ends the saving in progress
    this.#disk[Symbol.dispose]();
  }

  /** Saves one partition in a turn of the event loop: 256 at once would keep it busy for 13 ms. */
  async #save(): Promise<void> {
    const { runtime, log } = this.#context;
    // All partitions share a store, so a fault concerns every one of them.
    const failed = (error: unknown): void => log.warn({ error: describeError(error) }, 'saving the index failed');
    try {
      for (const partition of this.#readings.keys()) if (this.#disk.save(partition)) await runtime.nextTurn();
    } catch (error) {
      return failed(error);
    }
    // Saves go on while a slow disk works: a kill loses none of them.
    this.#syncing ??= this.#disk
      .sync()
      .catch(failed)
      .finally(() => {
        this.#syncing = undefined;
      });
  }

  /** Whether a copy decides nothing, so that it need not be read from the leader. */
  #mayLag(partition: number): boolean {
    return !this.#owned().includes(partition);
  }

  #of(partition: number): LedgerPartition {
    const found = this.#partitions[partition];
    if (found === undefined) throw new RangeError(`the ledger has no partition ${partition}`);
    return found;
  }
}

/**
 * Copies are compared only while the brokers are still those of the same cluster. Others may answer at the same
 * addresses, after a fail-over, whose ledger would seem to have lost its tail. Then the worker ends, and waits at its
 * next start until the cluster is adopted.
 */
function ofOneCluster(heads: EndHeads, { cluster, fail }: WorkerContext, clusterId: string): EndHeads {
  const requireCluster = async (): Promise<void> => {
    const { clusterId: now } = await cluster.metadata([], CLUSTER_TIMEOUT_MS).catch((error: unknown) => {
      throw new IdallocError('KAFKA_UNAVAILABLE', `no broker tells its cluster: ${describeError(error)}`, {
        cause: error,
      });
    });
    if (now === clusterId) return;
    const message = `the brokers belong to the Kafka cluster ${now} now, and to ${clusterId} before: the worker has to start again`;
    const error = new IdallocError('CLUSTER_CHANGED', message);
    fail(error);
    throw error;
  };
  const read: EndHeads['read'] = async (partitions) => {
    await requireCluster();
    return await heads.read(partitions);
  };
  return { read, swap: (changes) => heads.swap(changes) };
}

/** A copy that this worker keeps, with its partition. */
export type KeptCopy = CopyProgress & { readonly partition: number };

const INTERVAL_MS = 10_000;

/** Logs the progress of long restores: a line for each partition every 10 s. */
export function logRestores(
  runtime: Pick<Runtime, 'schedule'>,
  log: Pick<Log, 'info'>,
  copies: () => readonly KeptCopy[],
): Disposable {
  /** The end of each restoring copy at the last look. */
  let seen = new Map<number, number>();
  return every(runtime, INTERVAL_MS, () => {
    const before = seen;
    // A complete copy that waits to be compared with the log restores nothing.
    const restoring = copies().filter(({ state, end, logEnd }) => state === 'restoring' && end < logEnd);
    seen = new Map(restoring.map(({ partition, end }) => [partition, end]));
    for (const { partition, end, logEnd } of restoring) {
      const from = before.get(partition);
      if (from === undefined) continue;
      const entriesPerSecond = Math.round(((end - from) / INTERVAL_MS) * 1_000);
      log.info({ partition, end, logEnd, entriesPerSecond }, 'restoring a copy of a ledger partition');
    }
  });
}

export interface EndReportsOptions {
  readonly runtime: Pick<Runtime, 'monotonicMs'>;
  readonly log: Log;
  readonly lines: ThrottledLog;
  readonly metrics: Pick<Metrics, 'addLedgerLoss' | 'addError'>;
}

const LOG_EVERY_MS = 60_000;

/** Reports what becomes of the heads of ledger partitions in etcd. */
export class EndReports implements EndEvents {
  readonly #options: EndReportsOptions;
  #failingSinceMs: number | undefined;

  constructor(options: EndReportsOptions) {
    this.#options = options;
  }

  /** For how long etcd has confirmed none of the raises that were due; 0 if the last one was confirmed. */
  get failingMs(): number {
    return this.#failingSinceMs === undefined ? 0 : this.#options.runtime.monotonicMs() - this.#failingSinceMs;
  }

  raised(outcome: 'done' | 'refused' | 'failed', error?: unknown): void {
    const { runtime, lines } = this.#options;
    if (outcome !== 'failed') this.#failingSinceMs = undefined;
    else {
      this.#failingSinceMs ??= runtime.monotonicMs();
      const fields = { error: describeError(error) };
      const what = 'etcd does not confirm how far the ledger partitions have gone';
      lines('warn', fields, what, { everyMs: LOG_EVERY_MS });
    }
  }

  lost(partition: number, { end, through }: Loss): void {
    const { log, metrics } = this.#options;
    metrics.addLedgerLoss();
    metrics.addError('LEDGER_TRUNCATED');
    const fields = { partition, code: 'LEDGER_TRUNCATED', end, through };
    log.error(fields, 'a ledger partition has lost its tail: unknown requests from before get FORGOTTEN');
  }
}

interface CopiesOptions {
  readonly index: Pick<LedgerCopies, 'held' | 'load' | 'drop'>;
  readonly runtime: Pick<Runtime, 'schedule' | 'nextTurn'>;
  /** How long an unwanted copy is kept, so that a partition that comes back soon need not be restored. */
  readonly lingerMs: number;
  /** The copy is open: reading may continue. */
  readonly onOpened: (partition: number) => void;
  /** The copy is about to be deleted and must not be queried any more. */
  readonly onDropped: (partition: number) => void;
  /** The disk failed. */
  readonly onError: (error: unknown) => void;
}

/**
 * The copies of ledger partitions that this worker keeps.
 *
 *   absent  ──wanted──▶ opening ──loaded──▶ open ──not wanted for lingerMs──▶ dropping ──▶ absent
 *   dropping ──wanted──▶ opening, once it is deleted completely
 *
 * Opening and dropping run in small steps, one partition at a time, so that other work gets its turn.
 */
export class KeptCopies implements Disposable {
  readonly #options: CopiesOptions;
  /** Each copy has a timer while it is not wanted. */
  readonly #copies = new Map<number, Timer | undefined>();
  readonly #mutex = new Mutex();
  #isOver = false;

  constructor(options: CopiesOptions) {
    this.#options = options;
  }

  /** Opens all copies on disk, and keeps them until `want` is called. Resolves when all are open. */
  async openHeld(): Promise<void> {
    for (const partition of this.#options.index.held()) this.#open(partition);
    await this.#mutex.run(() => undefined);
  }

  /** Keeps copies of these partitions, and drops the others after lingerMs. */
  want(partitions: readonly number[]): void {
    const wanted = new Set(partitions);
    for (const partition of wanted) this.#open(partition);
    const { runtime, lingerMs } = this.#options;
    for (const [partition, lingering] of this.#copies) {
      if (wanted.has(partition)) this.#keep(partition);
      else this.#copies.set(partition, lingering ?? runtime.schedule(lingerMs, () => this.#drop(partition)));
    }
  }

  /** Keeps all current copies: they were reported to the group, which assigns partitions by them. */
  keepAll(): void {
    for (const partition of this.#copies.keys()) this.#keep(partition);
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const lingering of this.#copies.values()) lingering?.cancel();
  }

  #keep(partition: number): void {
    this.#copies.get(partition)?.cancel();
    this.#copies.set(partition, undefined);
  }

  #open(partition: number): void {
    if (this.#copies.has(partition)) return;
    this.#copies.set(partition, undefined);
    this.#enqueue(async () => {
      await this.#stepwise(() => this.#options.index.load(partition));
      if (!this.#isOver) this.#options.onOpened(partition);
    });
  }

  #drop(partition: number): void {
    this.#copies.delete(partition);
    this.#enqueue(async () => {
      if (!this.#isOver) this.#options.onDropped(partition);
      await this.#stepwise(() => this.#options.index.drop(partition));
    });
  }

  #enqueue(work: () => Promise<void>): void {
    this.#mutex.run(work).catch((error: unknown) => this.#options.onError(error));
  }

  async #stepwise(step: () => boolean): Promise<void> {
    while (!this.#isOver && this.#hasMore(step)) await this.#options.runtime.nextTurn();
  }

  /** A failed store is replaced by an empty one, where the work starts again; that does not fail the same way. */
  #hasMore(step: () => boolean): boolean {
    try {
      return step();
    } catch (error) {
      if (error instanceof IdallocError && error.code === 'INDEX_RESTORING') return true;
      throw error;
    }
  }
}
