import type { JournalEntry } from '../../codec/journal-entry.ts';
import { loadEtcdConfig } from '../../config/config.ts';
import { IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { withEtcd } from '../etcd-session.ts';
import { readJournal } from '../journal/journaled.ts';
import { counted, message, timeText } from '../table.ts';
import { logOf } from './location.ts';
import type { LeftOut, SequenceAccount } from './sequences.ts';

/** The commands that may leave numbers of a sequence out. */
const LEAVING_OUT = new Set(['sequence restart', 'sequence redefine']);

/** What the journal has of operators' commands, the oldest first. */
export interface JournalView {
  readonly entries: readonly JournalEntry[];
  /** How far the clocks of an operator and of the brokers may differ. */
  readonly clockMarginMs: number;
}

/**
 * The journal, if numbers were left out: an audit needs etcd for nothing else. Where it can't be read, stderr says why, and the statements
 * in the ledger have to do.
 */
export async function journalFor(
  context: CliContext,
  accounts: readonly SequenceAccount[],
  clockMarginMs: number,
): Promise<JournalView> {
  if (accounts.every(({ leftOut }) => leftOut === 0)) return { entries: [], clockMarginMs };
  try {
    const config = loadEtcdConfig(context.env);
    const stored = await withEtcd(config, (etcd) => readJournal({ etcd, config }));
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
 * The command that left these numbers out: the last one for the sequence before its statement was appended. Undefined if the
 * journal does not reach back that far.
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
