import { IdallocError } from '../../src/errors.ts';
import type {
  Appended,
  KeptEntries,
  LedgerLog,
  LedgerRecord,
  LogBounds,
  NewEntry,
} from '../../src/ledger/ledger-ports.ts';
import type { LedgerPartition } from '../../src/ledger/partition.ts';

/**
 * What the network does to one append:
 *
 * - pass:         the entries land, and the answer comes back
 * - entries lost: the broker never sees them, and the caller gets no answer
 * - answer lost:  they land, and the caller gets no answer
 * - late:         the caller gets no answer; they land when deliverLate is called
 * - sent again:   a first copy lands and its answer is lost; the client sends a second, whose answer comes back
 * - echoed:       they land and the answer comes back; a second copy lands whenever deliverLate is called
 */
export type Fate = 'pass' | 'entries lost' | 'answer lost' | 'late' | 'sent again' | 'echoed';

/** Decides the fate of each append as it is sent; may delay the append (until it resolves) and the answer (`back`). */
export type Link = (partition: number) => Promise<{ fate: Fate; back?: Promise<void> }>;

const goodLink: Link = async () => ({ fate: 'pass' });

/** A link with these fates for the next appends; later ones pass. */
export function linkOf(...fates: Fate[]): Link {
  return async () => ({ fate: fates.shift() ?? 'pass' });
}

export interface LedgerDraft extends Omit<NewEntry, 'value'> {
  readonly value: Buffer | null;
}

const REQUEST_END = 1_000_000;

interface Partition {
  low: number;
  records: LedgerRecord[];
}

/**
 * The ledger topic in memory. Each append is atomic and gets dense offsets; the append time is from the given clock.
 * Faults on the way happen in the link; faults of the log have their own methods.
 */
export class MemoryLedger {
  readonly #partitions: readonly Partition[];
  readonly #nowMs: () => number;
  /** The ends of the request topic's partitions; very high, unless a test sets them. */
  readonly requestEnds = new Map<number, number>();
  readonly #late: Array<() => unknown> = [];

  constructor(partitions: number, nowMs: () => number) {
    this.#partitions = Array.from({ length: partitions }, () => ({ low: 0, records: [] }));
    this.#nowMs = nowMs;
  }

  /** A client of this topic, with its own link. */
  producer(link: Link = goodLink): LedgerLog {
    return {
      append: async (partition, entries) => {
        const { fate, back } = await link(partition);
        const answer = this.#serve(fate, () => this.land(partition, entries));
        if (back !== undefined) await back;
        if (answer === undefined) throw new IdallocError('APPEND_UNANSWERED', `no answer to an append (${fate})`);
        return answer;
      },
      endOffset: async (partition) => this.bounds(partition).high,
      requestEnd: async (partition) => this.requestEnds.get(partition) ?? REQUEST_END,
    };
  }

  /** Reads single entries back. */
  get entries(): KeptEntries {
    return {
      read: async (partition, offsets) => {
        const records = this.read(partition, this.bounds(partition).low);
        return new Map(
          records.filter(({ offset }) => offsets.includes(offset)).map((record) => [record.offset, record]),
        );
      },
      forget: () => {},
    };
  }

  /** Appends immediately, as any client with access to the topic can. */
  land(partition: number, entries: readonly LedgerDraft[]): Appended {
    const { high } = this.bounds(partition);
    const appendedAtMs = this.#nowMs();
    const records = entries.map(({ key, value, headers }, i) => {
      return { offset: high + i, key, value, headers, appendedAtMs };
    });
    this.#of(partition).records.push(...records);
    return { baseOffset: high, appendedAtMs };
  }

  get lateCount(): number {
    return this.#late.length;
  }

  /** Lets the late or echoed append with this index land now. */
  deliverLate(index = 0): void {
    const [copy] = this.#late.splice(index, 1);
    copy?.();
  }

  bounds(partition: number): LogBounds {
    const { low, records } = this.#of(partition);
    return { low, high: low + records.length };
  }

  /** At most `max` records from `offset` on, which must be within the bounds or at their end. */
  read(partition: number, offset: number, max = Number.POSITIVE_INFINITY): readonly LedgerRecord[] {
    const { low, records } = this.#of(partition);
    return records.slice(offset - low, Math.min(records.length, offset - low + max));
  }

  /** Loses everything from `high` on, as an election among brokers that lag does. */
  truncate(partition: number, high: number): void {
    const at = this.#of(partition);
    at.records = at.records.slice(0, Math.max(0, high - at.low));
  }

  /** Drops everything below `low`, as retention does. */
  trim(partition: number, low: number): void {
    const at = this.#of(partition);
    at.records = at.records.slice(low - at.low);
    at.low = low;
  }

  #serve(fate: Fate, land: () => Appended): Appended | undefined {
    switch (fate) {
      case 'entries lost':
        return undefined;
      case 'late':
        this.#late.push(land);
        return undefined;
      case 'answer lost':
        land();
        return undefined;
      case 'sent again':
        land();
        return land();
      case 'echoed':
        this.#late.push(land);
        return land();
      case 'pass':
        return land();
    }
  }

  #of(partition: number): Partition {
    const found = this.#partitions[partition];
    if (found === undefined) throw new RangeError(`the ledger has no partition ${partition}`);
    return found;
  }
}

type Copy = Pick<LedgerPartition, 'begin' | 'deliver'>;

/**
 * Reads a ledger one step at a time, when the test says so. A position outside the log silently moves to its start.
 */
export class MemoryReader {
  readonly #ledger: MemoryLedger;
  readonly #copies: readonly Copy[];
  /** The next offset to read; absent for a partition that must start again. */
  readonly #next = new Map<number, number>();

  constructor(ledger: MemoryLedger, copies: readonly Copy[]) {
    this.#ledger = ledger;
    this.#copies = copies;
  }

  /** Forgets its position in the partition: the next poll starts again. */
  restart(partition: number): void {
    this.#next.delete(partition);
  }

  /** Delivers the next records of a partition, at most `max`; false if there were none. */
  poll(partition: number, max?: number): boolean {
    const bounds = this.#ledger.bounds(partition);
    const copy = this.#copies[partition] as Copy;
    const asked = this.#next.get(partition) ?? copy.begin(bounds);
    const offset = asked >= bounds.low && asked <= bounds.high ? asked : bounds.low;
    const records = this.#ledger.read(partition, offset, max);
    this.#next.set(partition, offset + records.length);
    if (records.length > 0) copy.deliver(records);
    return records.length > 0;
  }

  /** Polls until there are no more records; throws if that never happens. */
  catchUp(partition: number): void {
    for (let polls = 0; polls < 1_000; polls += 1) if (!this.poll(partition)) return;
    throw new Error(`ledger partition ${partition} is read again endlessly`);
  }
}
