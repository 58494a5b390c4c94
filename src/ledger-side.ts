import { randomUUID } from 'node:crypto';
import { sleep } from './adapters/clock.ts';
import { SqliteIndex } from './adapters/index/sqlite-index.ts';
import { KafkaLedgerLog } from './adapters/kafka/ledger-log.ts';
import { LedgerReader } from './adapters/kafka/ledger-reader.ts';
import type { TopicsReport } from './adapters/kafka/topics.ts';
import { Follower } from './pipeline/follower.ts';
import { Ledger } from './pipeline/ledger.ts';
import { ReaderKeeper } from './reader-keeper.ts';
import type { Tools } from './tools.ts';

/** The ledger as a worker has it: writing, deciding, and the index that the reader keeps in step. */
export interface LedgerSide {
  readonly index: SqliteIndex;
  readonly ledger: Ledger;
  readonly log: KafkaLedgerLog;
  readonly partitions: number;
}

/** The index, and the reader that follows all ledger partitions from now on. */
export async function startLedger(
  tools: Tools,
  report: TopicsReport,
  stack: AsyncDisposableStack,
): Promise<LedgerSide> {
  const { config, kafka, admin, producer, clock, gate, log } = tools;
  const { clusterId, partitions } = report;
  const topic = config.topics.ledger;
  let restore: ((cause: string) => void) | undefined;
  const binding = { clusterId, ledgerTopic: topic, partitions };
  const index = stack.use(
    new SqliteIndex(config.indexDir, binding, {
      onWiped: (cause) => {
        log.warn({ cause }, 'ledger index was thrown away');
        restore?.(cause);
      },
      onUnusable: tools.fail,
    }),
  );
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
  restore = (cause) => follower.restore(cause);
  const reader = new ReaderKeeper({
    what: 'ledger',
    create: (onCrash) => {
      // A group of its own for each reader: the one before may be a member of its group for a while yet.
      const groupId = `${config.groupId}.ledger.${randomUUID()}`;
      return new LedgerReader({ kafka, admin, topic, partitions, groupId, sink: follower, log, onCrash });
    },
    sleep,
    monotonicMs: () => performance.now(),
    log,
    fail: tools.fail,
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
