import { type EtcdClient, withEtcd } from '../../adapters/etcd/etcd.ts';
import { KafkaLedgerLog } from '../../adapters/kafka/ledger-log.ts';
import { partitionsOf, type Source } from '../../adapters/kafka/topics/spans.ts';
import { decodeDescriptor } from '../../codec/namespace-values.ts';
import { type Config, type KafkaConfig, loadWorkerConfig } from '../../config/config.ts';
import { wallMs } from '../../core/units.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { bindingsOf, boundCount, headKeysOf, type LedgerHeadKeys } from '../../identity/bindings.ts';
import type { EtcdPort } from '../../identity/identity-ports.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import { kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import { EtcdHeads, type LedgerHeads } from '../../ledger/heads.ts';
import type { LedgerLog } from '../../ledger/ledger-ports.ts';
import type { OrderLog } from '../../ledger/sequence-order.ts';
import type { CliContext } from '../context.ts';
import { readShown, withCluster } from '../kafka-session.ts';
import { SequenceLog, type SequenceLogOptions } from './sequence-log.ts';

/** A command that is connected to both memories of sequences. */
export interface SequenceSession {
  readonly context: CliContext;
  readonly config: Config;
  readonly source: Source;
  readonly etcd: EtcdClient;
  readonly log: SequenceLog;
  readonly heads: LedgerHeads;
  /** The UUID of the namespace. */
  readonly namespace: string;
  keysOf(partition: number): LedgerHeadKeys;
}

export async function withSequences<T>(context: CliContext, use: (session: SequenceSession) => Promise<T>): Promise<T> {
  const config = loadWorkerConfig(context.env);
  const keysOf = headKeysOf(config);
  return await withCluster(context, config, (source) =>
    withEtcd(config.etcd, async (etcd) => {
      const partitions = await servedPartitions(etcd, config, source);
      const read: SequenceLogOptions['read'] = (spans, take) =>
        readShown({ context, source }, spans, 'reading the ledger', take);
      const log = new SequenceLog({ source, topics: config.topics, partitions, read });
      const namespace = await namespaceOf(etcd, config);
      return await use({
        context,
        config,
        source,
        etcd,
        log,
        heads: new EtcdHeads({ etcd, keysOf }),
        namespace,
        keysOf,
      });
    }),
  );
}

/**
 * How many ledger partitions workers serve, by which the home of a sequence is chosen: those that the namespace is
 * bound to, though the topic got more since, and REQUEST_PARTITIONS is not set here. Before the first worker has bound
 * them, all that there are.
 */
export async function servedPartitions(etcd: Pick<EtcdPort, 'get'>, config: Config, source: Source): Promise<number> {
  const bindings = bindingsOf(namespaceKeys(config.etcd.prefix, config.datacenterId), config);
  return (await boundCount(etcd, bindings)) ?? (await partitionsOf(source, config.topics.ledger));
}

/** Before the first worker has created it. */
const NO_NAMESPACE = '00000000-0000-0000-0000-000000000000';

async function namespaceOf(etcd: Pick<EtcdPort, 'get'>, config: Config): Promise<string> {
  const { descriptor } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  const stored = (await etcd.get([descriptor])).get(descriptor);
  return stored === undefined ? NO_NAMESPACE : decodeDescriptor(stored.value).uuid;
}

/** The home partition of an order, which the log must have read. */
export function orderLog(log: SequenceLog, writer: LedgerLog, partition: number): OrderLog {
  return {
    get reading() {
      return log.reading(partition);
    },
    readOn: () => log.readOn(partition),
    readWhole: (pending) => log.readWhole(partition, pending),
    append: async (records) => {
      await writer.append(partition, records);
    },
    requestEnd: (known) => writer.requestEnd(partition, known),
  };
}

/**
 * Writes the ledger as workers do, but for what they have answered. Rejects with TOPIC_INVALID if this login may not.
 */
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
