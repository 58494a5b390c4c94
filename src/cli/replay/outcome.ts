import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { changesSequence } from '../../codec/ledger-entry.ts';
import { textOfId } from '../../codec/request-checks.ts';
import { printable } from '../../core/visible.ts';
import type { Found, FoundBatch } from '../audit/found.ts';
import { idsIn } from '../audit/ids.ts';
import type { JoinCounts } from '../audit/replies.ts';
import { type Findings, findingsJson, findingsText } from '../audit/report.ts';
import { counted } from '../output.ts';
import { sequenceRecord } from '../sequence/sequence-log.ts';
import type { palette } from '../terminal.ts';
import type { PartitionPlan } from './plan.ts';

/** What became of the requests that were read again. Replies and dead letters of new requests are among the counts. */
export interface ReplayOutcome {
  readonly readAgain: number;
  readonly forwarded: number;
  readonly join: Pick<JoinCounts, 'repeated' | 'repeatedWithoutFirst'>;
  /** Replies with numbers since the replay began; the audit compares them with the ledger. */
  readonly numbers: number;
  /** Error replies since then, by code. */
  readonly errors: ReadonlyMap<string, number>;
  readonly given: Given;
  /** Dead letters since then. */
  readonly dead: number;
  readonly findings: Findings;
}

/** For --json, without the plan. */
export function outcomeJson(outcome: ReplayOutcome): object {
  const { readAgain, forwarded, join, numbers, errors, given, dead, findings } = outcome;
  return {
    read_again: readAgain,
    forwarded,
    repeated: join.repeated,
    without_first: join.repeatedWithoutFirst,
    numbers,
    refused_again: Object.fromEntries(errors),
    newly_given: givenJson(given),
    dead_letters: dead,
    ...findingsJson(findings),
  };
}

export function outcomeText(outcome: ReplayOutcome, paint: ReturnType<typeof palette>): string {
  const { readAgain, forwarded, join, numbers, errors, given, dead, findings } = outcome;
  const { repeated, repeatedWithoutFirst } = join;
  const codes = [...errors].map(([code, count]) => `${printable(code)} ${count}`).join(', ');
  const some = (count: number, one: string, many: string) => (count === 0 ? [] : [counted(count, one, many)]);
  return [
    counted(readAgain, 'request was read again', 'requests were read again'),
    ...some(
      forwarded,
      'request was forwarded to the partition that decides it',
      'requests were forwarded to the partition that decides it',
    ),
    `${counted(repeated, 'reply repeats', 'replies repeat')} the batch of an earlier reply`,
    `${counted(repeatedWithoutFirst, 'reply matches', 'replies match')} the ledger without an earlier reply (new requests included)`,
    ...some(
      numbers,
      'reply has numbers of a sequence (new requests included)',
      'replies have numbers of sequences (new requests included)',
    ),
    `refused again: ${codes === '' ? 'none' : `${codes} (new requests included)`}`,
    ...givenLines(given),
    counted(dead, 'request became a dead letter', 'requests became dead letters'),
    findingsText(findings, paint),
  ].join('\n');
}

/** A decision for a request that had none before it was read again. */
interface ListedDecision {
  /** The line that people read. */
  readonly text: string;
  readonly json: object;
}

/** Where a record lies. */
export type RecordPlace = Pick<TopicRecord, 'topic' | 'partition' | 'offset'>;

export interface GivenOptions {
  readonly ledger: string;
  readonly plan: readonly PartitionPlan[];
  /**
   * The offsets, in each partition, of copies of planned requests, which workers have forwarded since the replay began.
   */
  readonly copies: ReadonlyMap<number, ReadonlySet<number>>;
  /** Whether a record was written since the replay began. */
  readonly isNew: (at: RecordPlace) => boolean;
  /** How many are listed. */
  readonly most: number;
}

/**
 * What the ledger has decided since a replay began for the requests that were read again: without `--decide-refused`,
 * nothing may be.
 */
export class Given {
  readonly #options: GivenOptions;
  readonly #ranges: ReadonlyMap<number, PartitionPlan>;
  readonly listed: ListedDecision[] = [];
  requests = 0;
  ids = 0;
  numbers = 0;
  #group = -1;
  /** The first entry of each request ID of the group in each partition: it decides. */
  readonly #first = new Map<string, FoundBatch>();

  constructor(options: GivenOptions) {
    this.#options = options;
    this.#ranges = new Map(options.plan.map((one) => [one.partition, one]));
  }

  /**
   * Takes records of all topics, for the numbers in those of the ledger. What can't be read is a finding of the audit.
   */
  takeRecord(record: TopicRecord): void {
    const { topic, partition, offset } = record;
    const { ledger, isNew } = this.#options;
    const read = topic === ledger && isNew(record) ? sequenceRecord(record) : undefined;
    if (read?.requestId === undefined) return;
    const { sequence, requestId, entry } = read;
    if (!changesSequence(entry, offset) || !this.#isReadAgain(partition, entry.requestOffset)) return;
    const { first, count, step } = entry;
    const to = first + (count - 1) * step;
    const numbers = count === 1 ? `${first}` : `${first} to ${to}${step === 1 ? '' : ` by ${step}`}`;
    this.numbers += count;
    this.#add(`${sequence} ${numbers}`, requestId, { partition, offset }, { sequence, from: first, to, count });
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
    for (const { topic, partition, offset, requestId, of, ranges } of this.#first.values()) {
      const isNew = this.#options.isNew({ topic, partition, offset });
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

/** What was newly given, as lines of text. */
export function givenLines({ requests, ids, numbers, listed }: Given): string[] {
  if (requests === 0) return ['nothing was newly given'];
  const what = [...(ids === 0 ? [] : [counted(ids, 'ID')]), ...(numbers === 0 ? [] : [counted(numbers, 'number')])];
  return [
    `${what.join(' and ')} newly given, to ${counted(requests, 'request')} without a decision before`,
    ...listed.map(({ text }) => `  ${text}`),
    ...(requests > listed.length ? [`  and ${requests - listed.length} more`] : []),
  ];
}
