import { DENSE, isDense } from '../../src/kafka/records/record.ts';
import type { PlainRecord } from '../support/fake-kafka/batches.ts';
import type { Rng } from './rng.ts';

/** One of so many seeds has dense batches: each takes the time of hundreds of requests. */
const SEEDS_WITH_DENSE = 6;
export function hasDense(seed: number): boolean {
  return seed % SEEDS_WITH_DENSE === 5;
}

/** Not a request, and so small that a batch of them is dense without compression. */
const JUNK: PlainRecord = { key: null, value: null };

/** The requests among so many other records that their batch is dense, often at its ends. */
export function amongJunk(requests: readonly PlainRecord[], rng: Rng): readonly PlainRecord[] {
  const records = Array.from({ length: DENSE.records + 1 }, () => JUNK);
  for (const request of requests) {
    const at = rng.pick([0, records.length, rng.below(records.length)]);
    records.splice(at, 0, request);
  }
  return records;
}

/** Throws unless workers find the batch dense. */
export function requireDense(records: number, batch: Buffer): void {
  if (!isDense(records, batch.length)) throw new RangeError(`${records} records in ${batch.length} bytes`);
}
