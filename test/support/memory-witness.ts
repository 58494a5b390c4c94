import {
  sealKey,
  sealValue,
  WitnessTable,
  type WitnessView,
  witnessHeaders,
  witnessKey,
  witnessValue,
} from '../../src/codec/witness.ts';
import type { WitnessEntry, WitnessPort } from '../../src/identity/identity-ports.ts';

/** The most entries of one write, as in the real topic. */
const MAX_ENTRIES = 2_000;

interface LoggedRecord {
  readonly key: Buffer;
  readonly value: Buffer | null;
  readonly headers: Readonly<Record<string, Buffer>>;
}

/** The witness topic in memory: an ordered log that each reader reads from its beginning. */
export class MemoryWitness {
  readonly #datacenterId: number;
  readonly #table: WitnessTable;
  readonly log: LoggedRecord[] = [];

  constructor(datacenterId: number) {
    this.#datacenterId = datacenterId;
    this.#table = new WitnessTable(datacenterId);
  }

  /** Lets entries land at the end. */
  land(entries: readonly WitnessEntry[]): void {
    for (const entry of entries) {
      const record = this.#toRecord(entry);
      this.log.push(record);
      this.#table.apply(record.key, record.value, record.headers);
    }
  }

  /** Lets a record land that no release of idalloc writes. */
  apply(key: string, value: string): void {
    const record = { key: Buffer.from(key), value: Buffer.from(value), headers: {} };
    this.log.push(record);
    this.#table.apply(record.key, record.value, record.headers);
  }

  /** What is left after compaction: of each key the last record. */
  compacted(): WitnessView {
    const table = new WitnessTable(this.#datacenterId);
    const last = new Map(this.log.map((record) => [record.key.toString('latin1'), record]));
    for (const { key, value, headers } of last.values()) table.apply(key, value, headers);
    return table.view();
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

  #toRecord(entry: WitnessEntry): LoggedRecord {
    if ('seal' in entry) return { key: sealKey(this.#datacenterId), value: sealValue(entry.seal), headers: {} };
    if ('clear' in entry) return { key: Buffer.from(entry.clear, 'latin1'), value: null, headers: {} };
    if ('drop' in entry) return { key: witnessKey(this.#datacenterId, entry.drop), value: null, headers: {} };
    const { put } = entry;
    const headers = Object.entries(witnessHeaders(put)).map(([name, text]) => [name, Buffer.from(text)]);
    return {
      key: witnessKey(this.#datacenterId, put),
      value: witnessValue(put),
      headers: Object.fromEntries(headers),
    };
  }
}
