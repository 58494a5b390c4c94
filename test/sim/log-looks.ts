import type { LedgerRecord } from '../../src/pipeline/ports.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import type { Cluster } from '../support/fake-kafka/cluster.ts';
import type { Partition } from '../support/fake-kafka/partition.ts';
import { partitionIn } from '../support/fake-kafka/view.ts';

/** Where a partition ends at least, whichever broker that may believe to lead it is asked from now on. */
export function surelyEnds({ brokers }: Pick<Cluster, 'brokers'>, at: Partition): number {
  const { leadership, topic, number } = at;
  const ends = [...brokers.values()].flatMap(({ node, view }) => {
    const { believed } = partitionIn(view, topic, number) ?? {};
    if (believed === leadership) return [];
    // Of several changes that it has not heard of one may have made it the leader, and another one deposed it.
    const mayLead = believed === undefined || believed.leader === node || leadership.epoch > believed.epoch + 1;
    return mayLead ? [at.highWatermarkOf(node)] : [];
  });
  return Math.min(at.highWatermark, ...ends);
}

/** The record at an offset, unless that is not there. */
export function recordAt({ log }: Partition, offset: number): LedgerRecord | undefined {
  if (offset < log.start || offset >= log.end) return undefined;
  const records = log.batches(offset, offset + 1).flatMap(recordsOf);
  const record = records.find((one) => one.offset === offset);
  if (record === undefined) return undefined;
  const { key = null, value = null, timestampMs } = record;
  return { offset, key, value, appendedAtMs: timestampMs };
}
