import { readSpans } from '../../src/adapters/kafka/topics/spans.ts';
import { adoptCluster } from '../../src/cli/namespace/adopt-run.ts';
import { SequenceLog } from '../../src/cli/sequence/sequence-log.ts';
import type { SequenceSession } from '../../src/cli/sequence/sequence-session.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { EtcdHeads } from '../../src/ledger/heads.ts';
import type { Place } from './host.ts';
import type { Machine, Process } from './machine.ts';
import { configOf, FIRST } from './pairs.ts';
import { runtimeOf } from './runtime.ts';
import { DATACENTER, descriptor, PREFIX } from './setting.ts';

/**
 * Runs `idalloc namespace adopt-cluster --yes` in a process of a machine: the real code, without its own connections.
 */
export async function adopt({ world, brokers, store }: Place, machine: Machine, process: Process): Promise<void> {
  const config = configOf(brokers.config, FIRST);
  const runtime = runtimeOf(world, machine, process);
  const cluster = new Cluster({ dialer: brokers.dialer(process, []), seeds: brokers.kafka.seeds, runtime });
  const source = { cluster, runtime };
  const etcd = store.port(process, () => () => {});
  const keysOf = (partition: number) => ledgerHeadKeys(PREFIX, DATACENTER, FIRST.ledger, partition);
  const stop = new AbortController().signal;
  const note = (text: string): void => world.note(() => `${process.name}: ${text.trimEnd()}`);
  const session = {
    context: { out: note, err: note, setExitCode: () => {}, now: runtime.wallMs, who: () => machine.name },
    newId: () => `00000000-0000-4000-8000-${String(world.tick()).padStart(12, '0')}`,
    config,
    source,
    etcd,
    log: new SequenceLog({
      source,
      topics: config.topics,
      partitions: FIRST.partitions,
      read: (spans, take) => readSpans(source, spans, { signal: stop, take, onProgress: () => {} }),
    }),
    heads: new EtcdHeads({ etcd, keysOf }),
    namespace: store.namespace ?? descriptor.uuid,
    keysOf,
  };
  try {
    await adoptCluster(session as unknown as SequenceSession, { yes: true });
  } finally {
    await cluster.close();
  }
}
