import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import type { FetchPosition } from '../../../src/kafka/wire/record-apis.ts';
import { batchOf, type PlainRecord, recordsOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage } from '../../support/loop-stage.ts';

/** Calls of single brokers in virtual time, which passes only while a test waits. */
export class Stage extends LoopStage {
  /** Lets virtual time pass until the promise is settled. */
  outcome<T>(promise: Promise<T>): Promise<T> {
    return this.runtime.until(promise);
  }

  async link(node = 1, signal = new AbortController().signal): Promise<BrokerLink> {
    const seed = this.kafka.seeds[node - 1];
    if (seed === undefined) throw new RangeError(`there is no broker ${node}`);
    return await this.outcome(this.kafka.dialer().dial(seed, signal));
  }

  batch(...values: string[]): Buffer {
    return batchOf(values.map(plain), { timestampMs: 1_000 });
  }
}

export const plain = (value: string): PlainRecord => ({ key: Buffer.from('k'), value: Buffer.from(value) });

export const produceTo = (topic: string, batch: Buffer, partition = 0) =>
  ({ topic, partition, batch, acks: -1, timeoutMs: 5_000 }) as const;

export const fetchOf = (...positions: (Partial<FetchPosition> & { readonly topic: string })[]) => ({
  maxWaitMs: 0,
  maxBytes: 1_000_000,
  isolation: 'read_uncommitted' as const,
  partitions: positions.map((position) => ({ partition: 0, offset: 0, maxBytes: 1_000_000, ...position })),
});

/** Values in the bytes of a fetch, by offset; truncated batches are skipped. */
export function valuesIn(bytes: Buffer): [offset: number, value: string][] {
  const found: [number, string][] = [];
  for (let at = 0; at + 61 <= bytes.length; ) {
    const end = at + 12 + bytes.readInt32BE(at + 8);
    if (end > bytes.length) break;
    for (const { offset, value } of recordsOf(bytes.subarray(at, end))) found.push([offset, String(value)]);
    at = end;
  }
  return found;
}

/** The fault that a call is rejected with, or ok. */
export async function nameOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'ok';
  } catch (error) {
    return (error as { errorCode?: string }).errorCode ?? String(error);
  }
}
