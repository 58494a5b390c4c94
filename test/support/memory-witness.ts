import {
  sealKey,
  sealValue,
  WitnessTable,
  type WitnessView,
  witnessKey,
  witnessValue,
} from '../../src/codec/witness.ts';
import type { WitnessEntry, WitnessPort } from '../../src/identity/ports.ts';

/** The most entries of one write, as in the real topic. */
const MAX_ENTRIES = 2_000;

/** The witness topic in memory: an ordered log that each reader reads from its beginning. */
export class MemoryWitness {
  readonly #datacenterId: number;
  readonly #table: WitnessTable;
  readonly log: { readonly key: Buffer; readonly value: Buffer | null }[] = [];

  constructor(datacenterId: number) {
    this.#datacenterId = datacenterId;
    this.#table = new WitnessTable(datacenterId);
  }

  /** Lets entries land at the end. */
  land(entries: readonly WitnessEntry[]): void {
    for (const entry of entries) {
      const record = this.#toRecord(entry);
      this.log.push(record);
      this.#table.apply(record.key, record.value);
    }
  }

  /** Lets a record land that no release of idalloc writes. */
  apply(key: string, value: string): void {
    const record = { key: Buffer.from(key), value: Buffer.from(value) };
    this.log.push(record);
    this.#table.apply(record.key, record.value);
  }

  view(): WitnessView {
    return this.#table.view();
  }

  port(): WitnessPort {
    return {
      read: async () => this.view(),
      write: async (entries) => {
        if (entries.length > MAX_ENTRIES)
          throw new RangeError(`${entries.length} entries in one write are more than ${MAX_ENTRIES}`);
        this.land(entries);
        return this.view();
      },
    };
  }

  #toRecord(entry: WitnessEntry) {
    if ('seal' in entry) return { key: sealKey(this.#datacenterId), value: sealValue(entry.seal) };
    if ('clear' in entry) return { key: Buffer.from(entry.clear, 'latin1'), value: null };
    if ('drop' in entry) return { key: witnessKey(this.#datacenterId, entry.drop), value: null };
    return { key: witnessKey(this.#datacenterId, entry.put), value: witnessValue(entry.put) };
  }
}
