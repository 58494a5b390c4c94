import type { RecordHeaders } from '../../src/codec/request-headers.ts';
import { bufferOf, Slice } from '../../src/core/slice.ts';
import type { Delivery, OutgoingHeaders, OutgoingRecord, Publisher } from '../../src/pipeline/ports.ts';

/** A record as a topic has it: with bytes of its own. */
export interface SentRecord extends OutgoingRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: RecordHeaders;
}

export function sentRecord(record: OutgoingRecord): SentRecord {
  const { key, value, headers } = record;
  return { ...record, key: key && bufferOf(key), value: value && bufferOf(value), headers: sentHeaders(headers) };
}

export function sentHeaders(headers: OutgoingHeaders): RecordHeaders {
  const sent = Object.entries(headers).map(([name, value]) => [name, value instanceof Slice ? value.view() : value]);
  return Object.fromEntries(sent);
}

/** Topics in memory: acknowledged records in order, with faults on the way. */
export class MemoryPublisher implements Publisher {
  readonly records: SentRecord[] = [];
  /** Topics that refuse records, with the reason. */
  readonly refusing = new Map<string, string>();
  /** Called when records are sent and when they are acknowledged. */
  onEvent: (what: 'sent' | 'acknowledged', records: readonly SentRecord[]) => void = () => {};
  /** Awaited between the append and its answer; a rejection stands for a lost answer. */
  hold: (records: readonly OutgoingRecord[]) => Promise<void> = async () => {};

  async publish(outgoing: readonly OutgoingRecord[]): Promise<readonly Delivery[]> {
    if (outgoing.length === 0) return [];
    const records = outgoing.map(sentRecord);
    this.onEvent('sent', records);
    const deliveries = records.map(({ topic }): Delivery => {
      const reason = this.refusing.get(topic);
      return reason === undefined ? { ok: true } : { ok: false, reason, cause: 'topic' };
    });
    this.records.push(...records.filter((_, i) => deliveries[i]?.ok));
    await this.hold(records);
    this.onEvent('acknowledged', records);
    return deliveries;
  }

  on(topic: string): SentRecord[] {
    return this.records.filter((record) => record.topic === topic);
  }
}
