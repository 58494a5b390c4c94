import type { IndexBinding } from '../adapters/index/sqlite-index.ts';
import { KafkaLedgerEntries } from '../adapters/kafka/ledger-entries.ts';
import { KafkaLedgerLog } from '../adapters/kafka/ledger-log.ts';
import { LedgerReader } from '../adapters/kafka/ledger-reader.ts';
import type { TopicsReport } from '../adapters/kafka/topics/topics.ts';
import { aborted } from '../async/aborted.ts';
import { atMost } from '../async/at-most.ts';
import { wallMs } from '../core/units.ts';
import { describeError, type IdallocError } from '../errors.ts';
import type { Tail } from '../kafka/loops/tail.ts';
import { Ledger } from '../ledger/ledger.ts';
import type { LedgerIndex } from '../ledger/ports.ts';
import { Follower } from '../pipeline/follower.ts';
import type { CopyProgress, KeptCopy } from '../pipeline/partition-state.ts';
import type { WorkerContext } from './context.ts';
import { KeptCopies } from './copies.ts';
import { RestoreLog } from './restore-log.ts';

/** What a sequence is, is written again at this share of the ledger's retention: three more tries fit before it is forgotten. */
const RESTATE_AFTER = 1 / 4;
/** A copy that is not recognised after this time is not reported when the worker joins the group. */
const RECOGNITION_MS = 5_000;

/**
 * The ledger of a worker: appending, deciding, and the copies of its partitions in the index, which a reader keeps in
 * step with the log.
 */
export class LedgerService implements Disposable {
  readonly index: LedgerIndex;
  readonly ledger: Ledger;
  readonly log: KafkaLedgerLog;
  readonly partitions: number;
  readonly #context: WorkerContext;
  /** Resolves when the copies on disk are open. */
  readonly #opened: Promise<void>;
  readonly #disk: Disposable;
  readonly #copies: KeptCopies;
  readonly #follower: Follower;
  readonly #reader: LedgerReader;
  readonly #restores: RestoreLog;
  readonly #listeners: ((partition: number) => void)[] = [];

  /** Opens the index and starts to follow the partitions that it has copies of. Throws INDEX_LOCKED or INDEX_UNUSABLE. */
  constructor(context: WorkerContext, { clusterId, partitions }: TopicsReport, tail: Tail) {
    const { config, runtime, cluster, clock, log, metrics, wireLog, environment, fail } = context;
    const { ledger: topic, requests: requestTopic } = config.topics;
    this.#context = context;
    this.partitions = partitions;
    const binding: IndexBinding = { clusterId, ledgerTopic: topic, partitions };
    const index = environment.openIndex(binding, {
      onWiped: (cause) => {
        log.warn({ cause }, 'ledger index was discarded');
        this.#follower?.restore(cause); // undefined while the index opens
      },
      onUnusable: fail,
    });
    this.index = index;
    this.#disk = index;
    const entries = new KafkaLedgerEntries({ cluster, runtime, topic });
    this.#follower = new Follower({
      index,
      partitions,
      setTimer: (run, delayMs) => runtime.schedule(delayMs, run),
      onRestart: (partition, cause) => {
        log.warn({ partition, cause }, 'restoring a ledger partition from the log');
        entries.forget(partition);
        this.ledger.requireMarker(partition);
        this.#reader.restart(partition);
      },
      onChange: (partition) => {
        for (const changed of this.#listeners) changed(partition);
      },
      onStop: (partition, error) => {
        metrics.addError(error.code);
        log.error({ partition, code: error.code, error: describeError(error) }, 'ledger partition stopped');
      },
    });
    this.#reader = new LedgerReader({ cluster, runtime, tail, topic, sink: this.#follower, log: wireLog });
    this.log = new KafkaLedgerLog({
      cluster,
      runtime,
      topic,
      requestTopic,
      readClock: () => clock.read().reading,
      onDriftSample: (sample) => clock.recordDrift(sample),
    });
    this.ledger = new Ledger({
      log: this.log,
      entries,
      index,
      follower: this.#follower,
      restateAfterMs: config.topics.ledgerRetentionMs * RESTATE_AFTER,
      now: () => wallMs(runtime.wallMs()),
    });
    this.#copies = new KeptCopies({
      index,
      runtime,
      lingerMs: config.copyLingerMs,
      onOpened: (partition) => {
        this.#follower.addCopy(partition);
        this.#reader.follow(partition);
      },
      onDropped: (partition) => {
        log.info({ partition }, 'deleting the copy of a ledger partition: this worker has not needed it for a while');
        this.#reader.leave(partition);
        this.#follower.removeCopy(partition);
      },
      onError: (error) =>
        log.error({ error: describeError(error) }, 'could not open or delete copies of ledger partitions'),
    });
    this.#restores = new RestoreLog({ runtime, log, copies: () => this.copies() });
    this.#reader.start();
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

  /** Keeps copies of these partitions, and drops the others after a while. */
  keep(partitions: readonly number[]): void {
    this.#copies.want(partitions);
  }

  /** Keeps all copies until the next call of `keep`. */
  keepAll(): void {
    this.#copies.keepAll();
  }

  /** A copy restored from a log without its head is not complete before a marker: until then new requests may be FORGOTTEN. */
  progress(partition: number): CopyProgress {
    const progress = this.#follower.progress(partition);
    const isUnsure = progress.state === 'following' && this.index.horizon(partition) === undefined;
    return isUnsure ? { ...progress, state: 'restoring' } : progress;
  }

  /** All copies that this worker keeps now. */
  copies(): readonly KeptCopy[] {
    return Array.from({ length: this.partitions }, (_, partition) => partition).flatMap((partition) => {
      const progress = this.progress(partition);
      return progress.state === 'absent' ? [] : { partition, ...progress };
    });
  }

  /** Whether requests of the partition can be decided now. */
  isReady(partition: number): boolean {
    return this.#follower.refusal(partition) === undefined;
  }

  /** Why partitions are stopped: their log holds something unreadable. */
  get stopped(): readonly IdallocError[] {
    return this.#follower.stopped();
  }

  [Symbol.dispose](): void {
    this.#restores[Symbol.dispose]();
    this.#copies[Symbol.dispose]();
    this.#reader.stop();
    this.#disk[Symbol.dispose]();
  }
}
