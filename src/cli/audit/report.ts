import { withEtcd } from '../../adapters/etcd/etcd.ts';
import type { JournalEntry } from '../../codec/journal-entry.ts';
import { textOfId } from '../../codec/request-checks.ts';
import { loadEtcdConfig } from '../../config/config.ts';
import { printable } from '../../core/visible.ts';
import { IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { readJournal } from '../journal/journal-run.ts';
import { counted, message, timeText } from '../output.ts';
import type { palette } from '../terminal.ts';
import { type BatchLocation, type Finding, type FindingCode, logOf } from './found.ts';
import type { LeftOut, LostNumbers, SequenceAccount } from './numbers.ts';
import type { ReadCounts } from './read.ts';
import type { JoinCounts } from './replies.ts';
import type { RequestCounts, Unjudged } from './requests.ts';

/** What was compared. */
export interface Checked extends JoinCounts {
  /** What became of the requests; undefined if they were not judged. */
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
  const errors = [...read.errors].map(([code, count]) => `${printable(code)} ${count}`).join(', ');
  const note = (text: string) => paint.yellow(`         ${text}`);
  const some = (count: number, line: string) => (count === 0 ? [] : [line]);
  const lines = [
    ...(join.requests === undefined ? [] : requestLines(join.requests, note)),
    `ledger   ${counted(read.entries, 'entry', 'entries')} with ${counted(read.ids, 'ID')}, ${counted(read.markers, 'marker')}`,
    `         ${counted(join.decisions, 'decision')}, ${counted(join.losers, 'loser')}, ${join.doubled} doubled`,
    `replies  ${read.replies}: ${join.replies} as decided, ${join.forgotten} older than the ledger` +
      `${errors === '' ? '' : `, errors: ${errors}`}`,
    ...some(read.ofSequences, `numbers  ${counted(read.ofSequences, 'record')} of sequences, replies included`),
    ...sequenceLines(accounts, journal),
    ...lost.map(({ sequence, from, to }) =>
      note(`numbers ${from} to ${to} of ${sequence} were lost with the ledger's tail`),
    ),
    ...some(
      join.lost,
      note(`the decisions of ${counted(join.lost, 'reply', 'replies')} were lost with the ledger's tail`),
    ),
    ...some(join.undecidable, note(`${join.undecidable} can't be judged: the beginning of the ledger was deleted`)),
    ...some(read.unknownLayouts, note(`${read.unknownLayouts} batches have an unknown layout`)),
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

function requestLines(counts: RequestCounts, note: (text: string) => string): string[] {
  const { requests, answered, refused, deadLetters, waiting, unjudged } = counts;
  return [
    `requests ${counted(requests, 'request')}, ${answered} answered: ${refused} of them with a refusal, ${deadLetters} with a dead letter`,
    ...(waiting === 0 ? [] : [note(`${waiting} are younger than the grace time, and wait`)]),
    ...[...unjudged].map(([reason, count]) => note(`${count} have no answer that was found: ${UNJUDGED[reason]}`)),
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

/** The commands that may leave numbers of a sequence out. */
const LEAVING_OUT = new Set(['sequence restart', 'sequence redefine']);

/** What the journal has of operators' commands, the oldest first. */
export interface JournalView {
  readonly entries: readonly JournalEntry[];
  /** How far the clocks of an operator and of the brokers may differ. */
  readonly clockMarginMs: number;
}

/**
 * The journal, if numbers were left out: an audit needs etcd for nothing else. Where it can't be read, stderr says why,
 * and the statements in the ledger have to do.
 */
export async function journalFor(
  context: CliContext,
  accounts: readonly SequenceAccount[],
  clockMarginMs: number,
): Promise<JournalView> {
  if (accounts.every(({ leftOut }) => leftOut === 0)) return { entries: [], clockMarginMs };
  try {
    const config = loadEtcdConfig(context.env);
    const stored = await withEtcd(config.etcd, (etcd) => readJournal({ etcd, config }));
    return { entries: stored.flatMap(({ entry }) => entry ?? []), clockMarginMs };
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    context.err(
      message(`the journal can't be read, so no command is named for numbers that were left out: ${error.message}`),
    );
    return { entries: [], clockMarginMs };
  }
}

/**
 * The command that left these numbers out: the last one for the sequence before its statement was appended. Undefined
 * if the journal does not reach back that far.
 */
export function commandOf(
  { entries, clockMarginMs }: JournalView,
  sequence: string,
  { timeMs }: Pick<LeftOut, 'timeMs'>,
): JournalEntry | undefined {
  return entries.findLast(({ command, arguments: given, atMs, outcome }) => {
    const isOfSequence = LEAVING_OUT.has(command) && Object.values(given).includes(sequence);
    return isOfSequence && outcome !== 'failed' && atMs <= timeMs + clockMarginMs;
  });
}

/** What --json has of each sequence. */
export function sequencesJson(accounts: readonly SequenceAccount[], journal: JournalView): readonly object[] {
  return accounts.map(({ sequence, log, from, to, given, leftOut, leftOutRanges, lost, missing, void: voids }) => ({
    sequence,
    ledger: log,
    from,
    ...(to !== undefined && { to }),
    given,
    left_out: leftOut,
    left_out_ranges: leftOutRanges.map((range) => leftOutJson(sequence, range, journal)),
    lost,
    missing,
    void: voids,
  }));
}

function leftOutJson(sequence: string, range: LeftOut, journal: JournalView): object {
  const { from, to, count, location, timeMs } = range;
  const known = commandOf(journal, sequence, range);
  return {
    ...{ from, to, count, offset: location.offset, stated_at: timeText(timeMs) },
    ...(known && { command: known.command, who: known.who, at: timeText(known.atMs) }),
  };
}

/** A line for each sequence, and one for each range that was left out. */
export function sequenceLines(accounts: readonly SequenceAccount[], journal: JournalView): readonly string[] {
  return accounts.flatMap((account) => {
    const { sequence, from, to, given, leftOut, leftOutRanges, lost, missing } = account;
    const range = to === undefined ? `from ${from}, none given` : `from ${from} to ${to}: ${given} given`;
    const rest = [
      leftOut > 0 && `${leftOut} left out`,
      lost > 0 && `${lost} lost`,
      missing > 0 && `${missing} missing`,
      account.void > 0 && `${account.void} void`,
    ].filter((part) => part !== false);
    const more = leftOut - leftOutRanges.reduce((sum, { count }) => sum + count, 0);
    return [
      `sequence ${sequence} ${[range, ...rest].join(', ')}`,
      ...leftOutRanges.map((one) => `         ${leftOutText(sequence, one, journal)}`),
      ...(more > 0 ? [`         and ${counted(more, 'number')} more`] : []),
    ];
  });
}

function leftOutText(sequence: string, range: LeftOut, journal: JournalView): string {
  const { from, to, count, location, timeMs } = range;
  const known = commandOf(journal, sequence, range);
  const by =
    known === undefined
      ? `stated at ${timeText(timeMs)}, ${logOf(location)} at ${location.offset}`
      : `'${known.command}' of ${known.who} at ${timeText(known.atMs)}`;
  return `${count === 1 ? `${from} was` : `${from} to ${to} were`} left out: ${by}`;
}
