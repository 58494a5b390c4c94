import { KafkaLedgerLog } from '../../adapters/kafka/ledger-log.ts';
import type { Source } from '../../adapters/kafka/topics/offsets.ts';
import type { KafkaConfig } from '../../config/config.ts';
import { wallMs } from '../../core/units.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import type { OrderLog } from '../../ledger/order-view.ts';
import type { LedgerLog } from '../../ledger/ports.ts';
import type { PartitionReading } from './partition-reading.ts';
import type { SequenceLog } from './sequence-log.ts';

/** The home partition of a sequence, as an order needs it. The log must have read it. */
export function orderLog(
  log: SequenceLog,
  source: Source,
  topics: Pick<KafkaConfig['topics'], 'ledger' | 'requests'>,
  partition: number,
): OrderLog {
  const writer = ledgerWriter(source, topics);
  const read = (): PartitionReading => {
    const reading = log.reading(partition);
    if (reading === undefined) throw new TypeError(`nothing was read of ledger partition ${partition}`);
    return reading;
  };
  return {
    readOn: () => log.readOn(partition),
    readWhole: (pending) => log.readWhole(partition, pending),
    get isWhole() {
      return read().isWhole;
    },
    get end() {
      return read().end;
    },
    row: (name) => read().rows.get(name),
    knows: (pending) => read().knows(pending),
    firstOf: (pending) => read().firstOf(pending),
    isForgotten: (pending) => read().isForgotten(pending),
    append: async (records) => {
      await writer.append(partition, records);
    },
    requestEnd: (known) => writer.requestEnd(partition, known),
  };
}

/** Writes the ledger as workers do, but for what they have answered. Rejects with TOPIC_INVALID if this login may not. */
export function ledgerWriter(
  { cluster, runtime }: Source,
  { ledger, requests }: Pick<KafkaConfig['topics'], 'ledger' | 'requests'>,
): LedgerLog {
  const log = new KafkaLedgerLog({
    cluster,
    runtime,
    topic: ledger,
    requestTopic: requests,
    readClock: () => ({ wall: wallMs(runtime.wallMs()), mono: runtime.monotonicMs() as never }),
    onDriftSample: () => undefined,
    answered: () => undefined,
  });
  return {
    append: (partition, records) => log.append(partition, records).catch((error: unknown) => refuse(error, ledger)),
    endOffset: (partition, known) => log.endOffset(partition, known),
    requestEnd: (partition, known) => log.requestEnd(partition, known),
  };
}

function refuse(error: unknown, ledger: string): never {
  const cause = error instanceof Error ? error.cause : undefined;
  if (kafkaErrorCode(cause) !== 'TOPIC_AUTHORIZATION_FAILED') throw error;
  const message = `this login may not write topic '${ledger}' (${describeError(cause)}): the role admin may: see idalloc topics acls`;
  throw new IdallocError('TOPIC_INVALID', message, { cause: error });
}
