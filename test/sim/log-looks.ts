import type { LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import type { Cluster } from '../support/fake-kafka/cluster.ts';
import type { Partition } from '../support/fake-kafka/partition.ts';
import { partitionIn } from '../support/fake-kafka/view.ts';

/** The lowest end of a partition that any broker may report from now on, if it believes to be the leader. */
export function surelyEnds({ brokers }: Pick<Cluster, 'brokers'>, at: Partition): number {
  const { leadership, topic, number } = at;
  const ends = [...brokers.values()].flatMap(({ node, view }) => {
    const { believed } = partitionIn(view, topic, number) ?? {};
    if (believed === leadership) return [];
    // A broker may have missed several changes, one of which made it the leader and a later one deposed it.
    const mayLead = believed === undefined || believed.leader === node || leadership.epoch > believed.epoch + 1;
    return mayLead ? [at.highWatermarkOf(node)] : [];
  });
  return Math.min(at.highWatermark, ...ends);
}

/** The record at an offset; undefined if the log doesn't have it. */
export function recordAt({ log }: Partition, offset: number): LedgerRecord | undefined {
  if (offset < log.start || offset >= log.end) return undefined;
  const records = log.batches(offset, offset + 1).flatMap(recordsOf);
  const record = records.find((one) => one.offset === offset);
  if (record === undefined) return undefined;
  const { key = null, value = null, headers, timestampMs } = record;
  return { offset, key, value, headers, appendedAtMs: timestampMs };
}
