import { Follower } from '../../src/pipeline/follower.ts';
import { MemoryIndex } from './memory-index.ts';
import { type LedgerDraft, MemoryLedger, MemoryReader } from './memory-ledger.ts';
import { entry } from './memory-records.ts';
import { ManualTimers } from './memory-worker.ts';

/** A follower of one partition, with an index that may be older than the follower. */
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
  const follower = new Follower({
    index,
    partitions,
    setTimer: timers.set,
    onRestart: (partition, cause) => {
      causes.push(cause);
      reader.restart(partition);
    },
    onChange: () => {
      changes += 1;
    },
    onStop: (partition, { code }) => {
      stopped.push([partition, code]);
    },
  });
  for (let partition = 0; partition < partitions; partition += 1) {
    index.load(partition);
    follower.addCopy(partition);
  }
  const reader = new MemoryReader(topic, follower);
  return { index, timers, causes, stopped, follower, reader, changes: () => changes };
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
