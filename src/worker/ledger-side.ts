import type { IndexBinding } from '../adapters/index/sqlite-index.ts';
import { KafkaLedgerLog } from '../adapters/kafka/ledger-log.ts';
import { LedgerReader } from '../adapters/kafka/ledger-reader.ts';
import type { TopicsReport } from '../adapters/kafka/topics/topics.ts';
import { describeError, type IdallocError } from '../errors.ts';
import type { Tail } from '../kafka/loops/tail.ts';
import { Follower } from '../pipeline/follower.ts';
import { Ledger } from '../pipeline/ledger.ts';
import type { LedgerIndex } from '../pipeline/ports.ts';
import type { Tools } from './tools.ts';

/** The ledger as a worker has it: writing, deciding, and the index, which a reader keeps in step with the log. */
export class LedgerSide implements Disposable {
  readonly index: LedgerIndex;
  readonly ledger: Ledger;
  readonly log: KafkaLedgerLog;
  readonly partitions: number;
  readonly #tools: Tools;
  readonly #opened: Disposable;
  readonly #follower: Follower | undefined;
  readonly #reader: LedgerReader;

  /** Opens the index and follows all ledger partitions from now on. Throws INDEX_LOCKED or INDEX_UNUSABLE. */
  constructor(tools: Tools, { clusterId, partitions }: TopicsReport, tail: Tail) {
    const { config, runtime, cluster, clock, log, wireLog, surroundings, fail } = tools;
    const { ledger: topic, requests: requestTopic } = config.topics;
    this.#tools = tools;
    this.partitions = partitions;
    const binding: IndexBinding = { clusterId, ledgerTopic: topic, partitions };
    const index = surroundings.openIndex(binding, {
      onWiped: (cause) => {
        log.warn({ cause }, 'ledger index was thrown away');
        // While the index opens there is no follower yet, which then begins with what the index has.
        this.#follower?.restore(cause);
      },
      onUnusable: fail,
    });
    this.index = index;
    this.#opened = index;
    this.#follower = new Follower({
      index,
      partitions,
      setTimer: (run, delayMs) => runtime.schedule(delayMs, run),
      onRestart: (partition, cause) => {
        log.warn({ partition, cause }, 'ledger partition is restored from the log');
        this.ledger.requireMarker(partition);
        this.#reader.restart(partition);
      },
      onChange: () => this.#showRestore(),
      onStop: (partition, fault) => {
        log.error({ partition, code: fault.code, error: describeError(fault) }, 'ledger partition stopped');
      },
    });
    this.#reader = new LedgerReader({ cluster, runtime, tail, topic, partitions, sink: this.#follower, log: wireLog });
    this.log = new KafkaLedgerLog({
      cluster,
      runtime,
      topic,
      requestTopic,
      readClock: () => clock.read().reading,
      onDriftSample: (sample) => clock.recordDrift(sample),
    });
    this.ledger = new Ledger(this.log, index, this.#follower);
    this.#showRestore();
    this.#reader.start();
  }

  /** Why partitions stand still: their log holds what can't be read. */
  get stopped(): readonly IdallocError[] {
    return this.#follower?.stopped() ?? [];
  }

  [Symbol.dispose](): void {
    this.#reader.stop();
    this.#opened[Symbol.dispose]();
  }

  #showRestore(): void {
    const { gate } = this.#tools;
    if (this.#follower?.caughtUp() === true) gate.clear('index');
    else gate.close('index', 'INDEX_RESTORING');
  }
}
