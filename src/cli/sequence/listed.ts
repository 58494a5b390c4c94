import { wholeTopic } from '../../adapters/kafka/topics/offsets.ts';
import { statedOf } from '../../core/sequence.ts';
import { orderLog } from './order-log.ts';
import type { SequenceSession } from './sequence-session.ts';
import { type SequenceView, viewSequence } from './sequence-view.ts';

export interface Listed {
  readonly views: readonly SequenceView[];
  /** Since when the ledger was read, in milliseconds; undefined if all of it was. */
  readonly sinceMs: number | undefined;
}

/** All sequences that the ledger shows or etcd holds, by name. */
export async function listed(session: SequenceSession, isAll: boolean): Promise<Listed> {
  const { config, source, etcd, log, heads, namespace, keysOf } = session;
  const partitions = (await wholeTopic(source, config.topics.ledger)).map(({ partition }) => partition);
  const held = new Map<number, readonly string[]>();
  for (const partition of partitions) {
    const { sequences: prefix } = keysOf(partition);
    held.set(
      partition,
      (await etcd.range(prefix)).kvs.map(({ key }) => key.slice(prefix.length)),
    );
  }
  if (isAll) await log.readAll();
  const sinceMs = isAll ? undefined : await log.readStated();
  const views: SequenceView[] = [];
  for (const partition of partitions) {
    const names = new Set([...(held.get(partition) ?? []), ...(log.reading(partition)?.rows.keys() ?? [])]);
    if (names.size === 0) continue;
    const head = await heads.read(partition, names);
    // A sequence that etcd knows and this part of the ledger does not may be in what was not read.
    const isMissing = [...head.sequences.keys()].some(
      (name) => statedOf(log.reading(partition)?.rows.get(name)) === undefined,
    );
    if (isMissing && log.reading(partition)?.isWhole === false) await log.readWhole(partition, []);
    else await log.readOn(partition);
    const where = { partition, log: orderLog(log, source, config.topics, partition), namespace };
    for (const name of names) {
      const view = viewSequence(name, where, head);
      if (view !== undefined) views.push(view);
    }
  }
  return { views: views.toSorted((one, other) => (one.sequence < other.sequence ? -1 : 1)), sinceMs };
}
