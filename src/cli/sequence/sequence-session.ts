import type { EtcdClient } from '../../adapters/etcd/etcd.ts';
import type { Source } from '../../adapters/kafka/topics/offsets.ts';
import { decodeDescriptor } from '../../codec/descriptor.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { type LedgerHeadKeys, ledgerHeadKeys } from '../../identity/bindings.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import type { EtcdPort } from '../../identity/ports.ts';
import { EtcdHeads, type LedgerHeads } from '../../ledger/heads.ts';
import type { CliContext } from '../context.ts';
import { withEtcd } from '../etcd-session.ts';
import { readShown, withCluster } from '../kafka-session.ts';
import { SequenceLog } from './sequence-log.ts';

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
  return await withCluster(context, config, (source) =>
    withEtcd(config, async (etcd) => use(await sequenceSession(context, config, source, etcd))),
  );
}

async function sequenceSession(
  context: CliContext,
  config: Config,
  source: Source,
  etcd: EtcdClient,
): Promise<SequenceSession> {
  const { topics, datacenterId } = config;
  const keysOf = (partition: number) => ledgerHeadKeys(config.etcd.prefix, datacenterId, topics.ledger, partition);
  const log = new SequenceLog({
    source,
    topics,
    read: (spans, take) => readShown({ context, source }, spans, 'reading the ledger', take),
  });
  const namespace = await namespaceOf(etcd, config);
  return { context, config, source, etcd, log, heads: new EtcdHeads({ etcd, keysOf }), namespace, keysOf };
}

/** Before the first worker has created it. */
const NO_NAMESPACE = '00000000-0000-0000-0000-000000000000';

async function namespaceOf(etcd: Pick<EtcdPort, 'get'>, config: Config): Promise<string> {
  const { descriptor } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  const stored = (await etcd.get([descriptor])).get(descriptor);
  return stored === undefined ? NO_NAMESPACE : decodeDescriptor(stored.value).uuid;
}
