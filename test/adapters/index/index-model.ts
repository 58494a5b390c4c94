import { decodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { digestEntry } from '../../../src/codec/ledger-key.ts';
import { readReplay } from '../../../src/codec/request-position.ts';
import type { LedgerRecord } from '../../../src/ledger/ledger-ports.ts';

interface Known {
  readonly record: LedgerRecord;
  readonly end: number;
  readonly through: number;
  /** Undefined for a marker. */
  readonly requestOffset: number | undefined;
}

/** The expected state of one partition's index, computed from a list of all entries. */
export class IndexModel {
  #known: Known[] = [];
  #last: LedgerRecord | undefined;
  #appendedAtMs = 0;
  #anchored = true;
  #horizon = -1;
  end = 0;
  origin = 0;
  through = -1;
  since: number | undefined = 0;
  answeredBelow = 0;

  get horizon(): number | undefined {
    return this.#anchored ? this.#horizon : undefined;
  }

  get last(): object | undefined {
    return this.#last === undefined ? undefined : { offset: this.#last.offset, digest: digestEntry(this.#last) };
  }

  placesOf(key: Buffer): number[] {
    const same = this.#known.filter(({ record, requestOffset }) => {
      return requestOffset !== undefined && record.key?.equals(key) === true;
    });
    return same.map(({ record }) => record.offset);
  }

  firsts(records: readonly LedgerRecord[]): Set<number> {
    const firsts = this.#known.filter(({ record: { key, offset }, end }) => {
      return key !== null && end >= this.origin && this.placesOf(key)[0] === offset;
    });
    const asked = new Set(records.map(({ offset }) => offset));
    return new Set(firsts.map(({ record }) => record.offset).filter((offset) => asked.has(offset)));
  }

  apply(records: readonly LedgerRecord[]): { lossAt?: number } {
    const fresh = records.filter(({ offset }) => offset >= this.end).map(read);
    for (const { record, end, through, requestOffset = -1 } of fresh) {
      const isPastGap = end > record.offset;
      if (this.since === undefined || isPastGap) {
        this.since = Math.max(this.since ?? this.#appendedAtMs, record.appendedAtMs);
      }
      if (isPastGap || (end === record.offset && !this.#anchored)) {
        this.#horizon = Math.max(this.#horizon, through);
        this.#anchored = true;
      }
      this.through = Math.max(this.through, through, requestOffset);
      this.answeredBelow = readReplay(record) ?? this.answeredBelow;
      this.#appendedAtMs = record.appendedAtMs;
      this.#last = record;
      this.end = record.offset + 1;
    }
    this.#known.push(...fresh);
    const lost = fresh.findLast(({ record, end }) => end > record.offset);
    return lost === undefined ? {} : { lossAt: lost.record.offset };
  }

  wipe(from: number): void {
    this.since = from === 0 && this.through === -1 ? 0 : undefined;
    this.#known = [];
    this.#last = undefined;
    this.#anchored = from === 0;
    this.#horizon = this.through;
    this.end = from;
    this.origin = from;
  }

  /** Drops the entries below an offset, which is the new origin of the index. */
  expire(origin: number): void {
    if (origin <= this.origin) return;
    for (const { record, requestOffset = -1 } of this.#known) {
      if (record.offset < origin) this.#horizon = Math.max(this.#horizon, requestOffset);
    }
    this.#known = this.#known.filter(({ record }) => record.offset >= origin);
    this.origin = origin;
    const oldest = this.#known.find(({ requestOffset }) => requestOffset !== undefined);
    this.since = Math.max(this.since ?? 0, oldest?.record.appendedAtMs ?? this.#appendedAtMs);
  }
}

function read(record: LedgerRecord): Known {
  const entry = decodeLedgerEntry(record.value as Buffer);
  const requestOffset = entry.kind === 'batch' ? entry.requestOffset : undefined;
  return { record, end: entry.end, through: entry.through, requestOffset };
}
