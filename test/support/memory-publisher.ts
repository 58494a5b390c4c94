import type { Delivery, OutgoingRecord, Publisher } from '../../src/pipeline/ports.ts';

/** Topics in memory: acknowledged records in order, with faults on the way. */
export class MemoryPublisher implements Publisher {
  readonly records: OutgoingRecord[] = [];
  /** Topics that refuse records, with the reason. */
  readonly refusing = new Map<string, string>();
  /** Called when records are sent and when they are acknowledged. */
  onEvent: (what: 'sent' | 'acknowledged', records: readonly OutgoingRecord[]) => void = () => {};
  /** Awaited between the append and its answer; a rejection stands for a lost answer. */
  hold: (records: readonly OutgoingRecord[]) => Promise<void> = async () => {};

  async publish(records: readonly OutgoingRecord[]): Promise<readonly Delivery[]> {
    if (records.length === 0) return [];
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

  on(topic: string): OutgoingRecord[] {
    return this.records.filter((record) => record.topic === topic);
  }
}
