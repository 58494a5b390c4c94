import { afterEach, expect, test } from 'vitest';
import { IdallocError } from '../../src/errors.ts';
import type { Applied, LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import type { Worker } from '../../src/worker/worker.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

/** Time to acquire a worker ID, to join the group, and for what follows. */
const START_MS = 20_000;
const PARTITIONS = config.topics.requestPartitions;
const HOSTS = ['a', 'b', 'c'] as const;

/** Hosts whose disks take nothing at the moment, and what makes each start again. */
const stuck = new Set<string>();
const mend = new Map<string, () => void>();
let stage: WorkerStage;

class SlowIndex extends MemoryIndex {
  readonly #host: string;

  constructor(host: string) {
    super();
    this.#host = host;
  }

  override apply(partition: number, records: readonly LedgerRecord[], firsts?: Set<number>): Applied {
    if (stuck.has(this.#host)) throw new IdallocError('INDEX_RESTORING', 'the disk is slow');
    return super.apply(partition, records, firsts);
  }
}

afterEach(async () => {
  stuck.clear();
  await stage.stop();
});

/** Workers with disks of their own. */
function staged(): WorkerStage {
  return new WorkerStage((_binding, { onWiped }, host) => {
    mend.set(host, () => onWiped('the disk works again'));
    return new SlowIndex(host);
  });
}

const zoneOf = (host: string) => `zone-${host}`;
const begin = (host: string) => stage.start({ acceptableLag: 0, zone: zoneOf(host) }, host);

/** Partitions of which no worker has a complete copy. */
function lost(workers: Iterable<Worker>): number[] {
  const complete = [...workers].flatMap((worker) =>
    worker.vitals().copies.flatMap(({ partition, state }) => (state === 'restoring' ? [] : [partition])),
  );
  return Array.from({ length: PARTITIONS }, (_, at) => at).filter((at) => !complete.includes(at));
}

test('a worker that serves is not complete before its standby copies are, and stays so when it gets more', async () => {
  stage = staged();
  const a = begin('a');
  await stage.pass(START_MS);
  expect([a.unready, a.incomplete]).toEqual([undefined, undefined]);
  stuck.add('b');
  const b = begin('b');
  await stage.pass(START_MS);
  expect([b.unready, b.incomplete]).toEqual([undefined, 'STANDBY_RESTORING']);
  expect(b.incompleteDetail).toMatch(/^ledger partition \d: at 0 of \d+/);
  stuck.delete('b');
  mend.get('b')?.();
  await stage.pass(START_MS);
  expect([b.unready, b.incomplete, b.incompleteDetail]).toEqual([undefined, undefined, undefined]);
  // Copies that a gets now are no reason to send callers away.
  stuck.add('a');
  begin('c');
  await stage.pass(START_MS);
  expect(a.incomplete).toBe(a.unready);
});

test('no partition loses its last copy when one worker after another is replaced with an empty volume', async () => {
  stage = staged();
  const workers = new Map<string, Worker>();
  for (const host of HOSTS) workers.set(host, begin(host));
  await stage.pass(2 * START_MS);
  expect([...workers.values()].map(({ incomplete }) => incomplete)).toEqual([undefined, undefined, undefined]);
  for (const host of HOSTS) {
    await stage.stop(host);
    workers.delete(host);
    expect(lost(workers.values())).toEqual([]);
    await stage.pass(START_MS);
    const worker = begin(host);
    workers.set(host, worker);
    for (let waitedMs = 0; waitedMs === 0 || worker.incomplete !== undefined; waitedMs += 1_000) {
      expect(waitedMs).toBeLessThan(4 * START_MS);
      await stage.pass(1_000);
      expect(lost(workers.values())).toEqual([]);
    }
  }
});
