import { textOfId } from '../../codec/request-checks.ts';
import { counted } from '../table.ts';
import type { palette } from '../terminal.ts';
import type { Finding, FindingCode, JoinCounts } from './check.ts';
import type { BatchLocation } from './location.ts';
import type { LostNumbers } from './lost.ts';
import type { ReadCounts } from './read.ts';
import type { RequestCounts } from './request-join.ts';
import type { Unjudged } from './request-rules.ts';
import { type JournalView, sequenceLines, sequencesJson } from './sequence-lines.ts';
import type { SequenceAccount } from './sequences.ts';

/** What was compared. */
export interface Checked extends JoinCounts {
  /** Undefined if requests were not judged. */
  readonly requests: RequestCounts | undefined;
}

/** The first findings, and how many there are of each kind. */
export class Findings {
  readonly #most: number;
  readonly listed: Finding[] = [];
  readonly counts = new Map<FindingCode, number>();

  constructor(most: number) {
    this.#most = most;
  }

  readonly add = (finding: Finding): void => {
    this.counts.set(finding.code, (this.counts.get(finding.code) ?? 0) + 1);
    if (this.listed.length < this.#most) this.listed.push(finding);
  };

  get total(): number {
    return [...this.counts.values()].reduce((sum, count) => sum + count, 0);
  }
}

function locationText({ topic, partition, offset, requestId }: BatchLocation): string {
  return `${topic}/${partition} at ${offset}, correlation ID ${textOfId(requestId)}`;
}

/** Everything that an audit reports. */
export interface AuditReport {
  readonly read: ReadCounts;
  readonly join: Checked;
  readonly lost: readonly LostNumbers[];
  readonly accounts: readonly SequenceAccount[];
  readonly journal: JournalView;
  readonly findings: Findings;
  /** Requests that should have been judged, and could not be. */
  readonly unjudged: number;
}

/** How many requests could not be judged, without those whose reply topic was not asked for. */
export function unjudgedIn({ requests }: Checked, { replyTopic }: { readonly replyTopic?: readonly string[] }): number {
  const reasons = [...(requests?.unjudged ?? [])];
  const asked = reasons.filter(([reason]) => replyTopic === undefined || reason !== 'reply_topic_not_read');
  return asked.reduce((sum, [, count]) => sum + count, 0);
}

/** The line that --json prints. */
export function auditJson({ read, join, lost, accounts, journal, findings }: AuditReport): object {
  const { requests } = join;
  return {
    ...(requests && {
      requests: requests.requests,
      answered: requests.answered,
      refused: requests.refused,
      dead_letters: requests.deadLetters,
      waiting: requests.waiting,
      unjudged: Object.fromEntries(requests.unjudged),
    }),
    entries: read.entries,
    markers: read.markers,
    of_sequences: read.ofSequences,
    ids: String(read.ids),
    decisions: join.decisions,
    losers: join.losers,
    doubled: join.doubled,
    replies: read.replies,
    replies_as_decided: join.replies,
    replies_forgotten: join.forgotten,
    replies_lost: join.lost,
    replies_undecidable: join.undecidable,
    errors: Object.fromEntries(read.errors),
    unknown_layouts: read.unknownLayouts,
    sequences: sequencesJson(accounts, journal),
    lost_numbers: lost.map(({ sequence, from, to }) => ({ sequence, from, to })),
    ...findingsJson(findings),
  };
}

export function findingsJson({ counts, listed }: Findings): object {
  return {
    finding_counts: Object.fromEntries(counts),
    findings: listed.map(({ code, message, locations }) => ({ code, message, batches: locations.map(locationJson) })),
  };
}

function locationJson({ source, topic, partition, offset, requestId }: BatchLocation): object {
  return { source, topic, partition, offset, correlation_id: textOfId(requestId) };
}

/** The report as text. */
export function auditText(
  { read, join, lost, accounts, journal, findings, unjudged }: AuditReport,
  paint: ReturnType<typeof palette>,
): string {
  const errors = [...read.errors].map(([code, count]) => `${code} ${count}`).join(', ');
  const lines = [
    ...(join.requests === undefined ? [] : requestLines(join.requests, paint)),
    `ledger   ${counted(read.entries, 'entry', 'entries')} with ${counted(read.ids, 'ID')}, ${counted(read.markers, 'marker')}`,
    `         ${counted(join.decisions, 'decision')}, ${counted(join.losers, 'loser')}, ${join.doubled} doubled`,
    `replies  ${read.replies}: ${join.replies} as decided, ${join.forgotten} older than the ledger` +
      `${errors === '' ? '' : `, errors: ${errors}`}`,
    ...(read.ofSequences === 0
      ? []
      : [`numbers  ${counted(read.ofSequences, 'record')} of sequences, replies included`]),
    ...sequenceLines(accounts, journal),
    ...lost.map(({ sequence, from, to }) =>
      paint.yellow(`         numbers ${from} to ${to} of ${sequence} were lost with the ledger's tail`),
    ),
    ...(join.lost === 0
      ? []
      : [
          paint.yellow(
            `         the decisions of ${counted(join.lost, 'reply', 'replies')} were lost with the ledger's tail`,
          ),
        ]),
    ...(join.undecidable === 0
      ? []
      : [paint.yellow(`         ${join.undecidable} can't be judged: the beginning of the ledger was deleted`)]),
    ...(read.unknownLayouts === 0
      ? []
      : [paint.yellow(`         ${read.unknownLayouts} batches have an unknown layout`)]),
  ];
  const end =
    findings.total === 0 && unjudged > 0
      ? paint.red(`${counted(unjudged, 'request')} can't be judged; --from leaves out those from before a time\n`)
      : findingsText(findings, paint);
  return `${lines.map((line) => `${line}\n`).join('')}${end}`;
}

const UNJUDGED: Readonly<Record<Unjudged, string>> = {
  reply_topic_not_read: 'their reply topic was not read, or is gone',
  replies_deleted: 'the reply topic does not reach back that far',
  letters_deleted: 'the dead-letter topic does not reach back that far',
  copies_deleted: 'they were forwarded, and the request topic does not reach back to the copies',
};

function requestLines(counts: RequestCounts, paint: ReturnType<typeof palette>): string[] {
  const { requests, answered, refused, deadLetters, waiting, unjudged } = counts;
  const line = (text: string) => paint.yellow(`         ${text}`);
  return [
    `requests ${counted(requests, 'request')}, ${answered} answered: ${refused} of them with a refusal, ${deadLetters} with a dead letter`,
    ...(waiting === 0 ? [] : [line(`${waiting} are younger than the grace time, and wait`)]),
    ...[...unjudged].map(([reason, count]) => line(`${count} have no answer that was found: ${UNJUDGED[reason]}`)),
  ];
}

/** Each finding with its batches, and the number of findings. */
export function findingsText({ listed, total }: Findings, paint: ReturnType<typeof palette>): string {
  const lines = listed.flatMap(({ code, message, locations }) => [
    `${paint.red(code)}  ${message}`,
    ...locations.map((location) => `  ${locationText(location)}`),
  ]);
  if (total > listed.length) lines.push(`and ${total - listed.length} more`);
  lines.push(total === 0 ? paint.green('no problems found') : paint.red(`${total} findings`));
  return lines.map((line) => `${line}\n`).join('');
}
