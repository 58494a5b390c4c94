import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { readClock } from '../../src/adapters/clock.ts';
import { kafkaClient } from '../../src/adapters/kafka/client.ts';
import { KafkaLedgerLog } from '../../src/adapters/kafka/ledger-log.ts';
import { LedgerReader } from '../../src/adapters/kafka/ledger-reader.ts';
import { createPartitioner } from '../../src/adapters/kafka/partitioner.ts';
import { createLogger } from '../../src/log.ts';
import type { LedgerRecord } from '../../src/pipeline/ports.ts';
import { ledgerContract } from '../sim/ledger-contract.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const PARTITIONS = 2;
const READ_LIMIT_MS = 30_000;

/** Takes what the reader gives, from wherever the test wants each partition read. */
class Collected {
  readonly #from = new Map<number, number>();
  readonly #records = new Map<number, LedgerRecord[]>();

  want(partition: number, from: number): void {
    this.#from.set(partition, from);
    this.#records.set(partition, []);
  }

  of(partition: number): readonly LedgerRecord[] {
    return this.#records.get(partition) ?? [];
  }

  begin(partition: number): number {
    this.#records.set(partition, []);
    return this.#from.get(partition) ?? 0;
  }

  resume(partition: number): number {
    return (this.#from.get(partition) ?? 0) + this.of(partition).length;
  }

  deliver(partition: number, records: readonly LedgerRecord[]): void {
    this.#records.get(partition)?.push(...records);
  }

  expire(): boolean {
    return false;
  }
}

ledgerContract('a Kafka broker', async () => {
  const servers = suiteServers();
  const stack = new AsyncDisposableStack();
  const realm = stack.use(await Realm.create(servers, { partitions: PARTITIONS }));
  const kafka = kafkaClient({ brokers: servers.brokers, clientId: 'contract', tls: false }, () => () => undefined);
  const producer = kafka.producer({ createPartitioner, allowAutoTopicCreation: false });
  stack.defer(() => producer.disconnect());
  await producer.connect();
  const sink = new Collected();
  const reader = new LedgerReader({
    kafka,
    admin: realm.admin,
    topic: realm.ledgerTopic,
    partitions: PARTITIONS,
    groupId: `contract-${randomUUID()}`,
    sink,
    log: createLogger({ level: 'error', destination: 'stderr' }),
    onCrash: (error) => {
      throw error;
    },
  });
  stack.defer(() => reader.stop());
  await reader.start();
  const log = new KafkaLedgerLog({
    producer,
    admin: realm.admin,
    topic: realm.ledgerTopic,
    requestTopic: realm.requestTopic,
    readClock,
    onDriftSample: () => {},
  });
  return {
    log,
    read: async (partition, from) => {
      const due = (await log.endOffset(partition)) - from;
      sink.want(partition, from);
      reader.restart(partition);
      await expect.poll(() => sink.of(partition).length, { timeout: READ_LIMIT_MS, interval: 20 }).toBe(due);
      return sink.of(partition);
    },
    ask: async (partition) => {
      await realm.sendRaw([{ partition, value: 'a request' }]);
    },
    close: () => stack.disposeAsync(),
  };
});
