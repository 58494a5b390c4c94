import { LedgerPartition } from '../../src/ledger/partition.ts';
import { MemoryIndex } from './memory-index.ts';
import { type LedgerDraft, MemoryLedger, MemoryReader } from './memory-ledger.ts';
import { entry } from './memory-records.ts';
import { ManualTimers } from './memory-worker.ts';

/** A copy of the only partition of a topic, with an index that may be older than that. */
export function followedWorld(
  options: { readonly entries?: readonly LedgerDraft[]; readonly index?: MemoryIndex } = {},
) {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  if (options.entries) topic.land(0, options.entries);
  return { topic, ...follow(topic, options.index) };
}

export function follow(topic: MemoryLedger, index = new MemoryIndex(), partitions = 1) {
  const timers = new ManualTimers();
  const causes: string[] = [];
  const stopped: [number, string][] = [];
  let changes = 0;
  const copies = Array.from({ length: partitions }, (_, partition) => {
    index.load(partition);
    return new LedgerPartition(partition, {
      index,
      runtime: timers,
      onRestart: (_partition, cause) => {
        causes.push(cause);
        reader.restart(partition);
      },
      onChange: () => {
        changes += 1;
      },
      onStop: (_partition, { code }) => {
        stopped.push([partition, code]);
      },
    });
  });
  for (const one of copies) one.open();
  const reader = new MemoryReader(topic, copies);
  const copy = copies[0] as LedgerPartition;
  return { index, timers, causes, stopped, copies, copy, reader, changes: () => changes };
}

/** An index that has applied the topic so far, as an earlier worker would have left it. */
export function indexOf(topic: MemoryLedger): MemoryIndex {
  const { index, reader } = follow(topic);
  reader.catchUp(0);
  return index;
}

export const three = [entry('a'), entry('b'), entry('c')];
/** The offset of a key's first entry according to the index; undefined if it has none. */
export const heldAt = (index: MemoryIndex, id: string) => index.placesOf(0, entry(id).key)[0];
