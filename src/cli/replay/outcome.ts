import type { JoinCounts } from '../audit/replies.ts';
import { type Findings, findingsJson, findingsText } from '../audit/report.ts';
import { counted } from '../table.ts';
import type { palette } from '../terminal.ts';
import { type Given, givenJson, givenLines } from './given.ts';

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
export function outcomeJson({
  readAgain,
  forwarded,
  join,
  numbers,
  errors,
  given,
  dead,
  findings,
}: ReplayOutcome): object {
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
  const codes = [...errors].map(([code, count]) => `${code} ${count}`).join(', ');
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
