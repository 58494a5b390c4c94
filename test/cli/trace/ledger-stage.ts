import type { KafkaSession } from '../../../src/cli/kafka-session.ts';
import { LoopStage } from '../../support/loop-stage.ts';

const LEDGER = 'id.ledger';

/** A ledger on a simulated broker, and what a command that reads it has of Kafka. */
export class LedgerStage {
  readonly #loop = new LoopStage({ nodes: 1 });

  constructor(partitions: number) {
    this.#loop.kafka.cluster.createTopic(LEDGER, { partitions, replicas: 1 });
  }

  get nowMs(): number {
    return this.#loop.runtime.wallMs();
  }

  /** Appends records to a partition. */
  append(partition: number, ...records: { readonly key: Buffer | null; readonly value: Buffer }[]): void {
    this.#loop.kafka.cluster.send(LEDGER, partition, records);
  }

  /** Deletes what is below an offset, as retention does. */
  trim(partition: number, from: number): void {
    this.#loop.kafka.cluster.partition(LEDGER, partition).log.trim(from);
  }

  grow(partitions: number): void {
    this.#loop.kafka.cluster.growTopic(LEDGER, partitions);
  }

  /** Lets time pass until the command is done. `requestPartitions`: as it is configured. */
  async run<T>(command: (session: KafkaSession) => Promise<T>, requestPartitions = 1): Promise<T> {
    const { cluster, runtime } = this.#loop;
    const context = {
      stop: new AbortController().signal,
      err: () => undefined,
      terminal: { input: false, output: false, errors: false },
    };
    const config = { topics: { ledger: LEDGER, requestPartitions } };
    return await runtime.until(command({ context, source: { cluster, runtime }, config } as unknown as KafkaSession));
  }
}
