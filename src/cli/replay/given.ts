import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { readLedgerKey } from '../../codec/ledger-key.ts';
import { changesSequence } from '../../codec/ledger-position.ts';
import { textOfId } from '../../codec/request-checks.ts';
import { unlessInvalid } from '../../errors.ts';
import type { Found, FoundBatch } from '../audit/found.ts';
import { idsIn } from '../audit/ids.ts';
import { counted } from '../table.ts';
import type { PartitionPlan } from './plan.ts';

/** A decision for a request that had none before it was read again. */
interface Decided {
  /** As people read it. */
  readonly text: string;
  readonly json: object;
}

export interface GivenOptions {
  readonly ledger: string;
  readonly plan: readonly PartitionPlan[];
  /** By partition: the offsets of copies of planned requests, which workers have forwarded since the replay began. */
  readonly copies: ReadonlyMap<number, ReadonlySet<number>>;
  /** By partition: where the ledger ended when the replay began. */
  readonly ends: ReadonlyMap<number, number>;
  /** How many are listed. */
  readonly most: number;
}

/** What the ledger has decided since a replay began for the requests that were read again: without `--decide-refused`, nothing may be. */
export class Given {
  readonly #options: GivenOptions;
  readonly #ranges: ReadonlyMap<number, PartitionPlan>;
  readonly listed: Decided[] = [];
  requests = 0;
  ids = 0;
  numbers = 0;
  #group = -1;
  /** By partition and request ID: the first entry of the group, which decides. */
  readonly #first = new Map<string, FoundBatch>();

  constructor(options: GivenOptions) {
    this.#options = options;
    this.#ranges = new Map(options.plan.map((one) => [one.partition, one]));
  }

  /** Takes the records of the ledger since the replay began, for their numbers. What can't be read is a finding of the audit. */
  takeRecord({ key, value, headers, partition, offset }: TopicRecord): void {
    const read = unlessInvalid(() =>
      key === null || value === null
        ? undefined
        : { named: readLedgerKey(key), entry: decodeLedgerEntry(value, headers) },
    );
    if (read?.named.kind !== 'numbers' || read.entry.kind !== 'numbers') return;
    const { named, entry } = read;
    if (!changesSequence(entry, offset) || !this.#isReadAgain(partition, entry.requestOffset)) return;
    const { first, count, step } = entry;
    const to = first + (count - 1) * step;
    const numbers = count === 1 ? `${first}` : `${first} to ${to}${step === 1 ? '' : ` by ${step}`}`;
    this.numbers += count;
    this.#add(
      `${named.sequence} ${numbers}`,
      named.requestId,
      { partition, offset },
      {
        sequence: named.sequence,
        from: first,
        to,
        count,
      },
    );
  }

  /** Takes what an audit has found, in groups, for its batches. */
  takeFound(found: Found & { readonly group: number }): void {
    if (found.group !== this.#group) this.end();
    this.#group = found.group;
    if (found.kind !== undefined || found.source !== 'ledger' || found.topic !== this.#options.ledger) return;
    const name = `${found.partition} ${found.requestId.toString('latin1')}`;
    const first = this.#first.get(name);
    if (first === undefined || found.offset < first.offset) this.#first.set(name, found);
  }

  /** Call it after the last one that was found. */
  end(): void {
    for (const { partition, offset, requestId, of, ranges } of this.#first.values()) {
      const isNew = offset >= (this.#options.ends.get(partition) ?? 0);
      // The entry that a renewal repeats may be gone.
      if (!isNew || of === undefined || of.isRenewal || !this.#isReadAgain(partition, of.offset)) continue;
      const count = idsIn(ranges);
      this.ids += count;
      this.#add(counted(count, 'ID'), requestId, { partition, offset }, { count });
    }
    this.#first.clear();
  }

  #isReadAgain(partition: number, offset: number): boolean {
    const range = this.#ranges.get(partition);
    const isPlanned = range !== undefined && offset >= range.from && offset < range.to;
    return isPlanned || this.#options.copies.get(partition)?.has(offset) === true;
  }

  #add(
    what: string,
    requestId: Buffer,
    at: { readonly partition: number; readonly offset: number },
    json: object,
  ): void {
    this.requests += 1;
    if (this.listed.length >= this.#options.most) return;
    const correlation_id = textOfId(requestId);
    const text = `${what} for ${correlation_id}, decided in ${this.#options.ledger}/${at.partition} at ${at.offset}`;
    this.listed.push({ text, json: { correlation_id, ...json, ...at } });
  }
}

/** What was newly given, for --json. */
export function givenJson({ requests, ids, numbers, listed }: Given): object {
  return { requests, ids, numbers, listed: listed.map(({ json }) => json) };
}

/** Likewise as lines of text. */
export function givenLines({ requests, ids, numbers, listed }: Given): string[] {
  if (requests === 0) return ['nothing was newly given'];
  const what = [...(ids === 0 ? [] : [counted(ids, 'ID')]), ...(numbers === 0 ? [] : [counted(numbers, 'number')])];
  return [
    `${what.join(' and ')} newly given, to ${counted(requests, 'request')} without a decision before`,
    ...listed.map(({ text }) => `  ${text}`),
    ...(requests > listed.length ? [`  and ${requests - listed.length} more`] : []),
  ];
}
