import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import type { FetchPosition } from '../../../src/kafka/wire/record-apis.ts';
import { serverClock } from '../../sim/runtime.ts';
import { World } from '../../sim/world.ts';
import { batchOf, type PlainRecord, recordsOf } from '../../support/fake-kafka/batches.ts';
import { type FakeKafka, type FakeKafkaOptions, fakeKafka } from '../../support/fake-kafka/fake-kafka.ts';

const LONG_MS = 1_000_000;

/** Simulated brokers in virtual time, which passes only while a test waits. */
export class Stage {
  readonly world = new World(1, false);
  readonly kafka: FakeKafka;

  constructor(options: Partial<FakeKafkaOptions> = {}) {
    this.kafka = fakeKafka({ clock: serverClock(this.world), ...options });
  }

  /** Lets virtual time pass until the promise is settled. */
  async outcome<T>(promise: Promise<T>): Promise<T> {
    let isOver = false;
    const end = (): void => {
      isOver = true;
    };
    promise.then(end, end);
    await this.world.run(this.world.nowMs + LONG_MS, () => isOver);
    return await promise;
  }

  /** Lets virtual time pass. */
  async pass(delayMs: number): Promise<void> {
    const { atMs } = this.world.after(delayMs, () => {});
    await this.world.run(atMs, () => false);
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
