import type { JournalEntry } from '../../codec/journal-entry.ts';
import { loadEtcdConfig } from '../../config/config.ts';
import { type CliContext, EXIT } from '../context.ts';
import { withEtcd } from '../etcd-session.ts';
import { counted, present, printable, table, timeText } from '../output.ts';
import { readJournal, type StoredEntry } from './journaled.ts';

export interface JournalFlags {
  /** Wall milliseconds. */
  readonly from?: number;
  readonly json?: true;
}

/** Prints the journal. */
export async function showJournal(context: CliContext, { from = 0, json }: JournalFlags): Promise<void> {
  const config = loadEtcdConfig(context.env);
  const all = await withEtcd(config, (etcd) => readJournal({ etcd, config }));
  // One that can't be read may be of any time.
  const entries = all.filter(({ entry }) => entry === undefined || entry.atMs >= from);
  if (entries.some(({ entry }) => entry === undefined)) context.setExitCode(EXIT.failed);
  present(context, json, { entries: entries.map(entryJson) }, () => journalText(entries));
}

function entryJson({ number, entry, fault }: StoredEntry): object {
  if (entry === undefined) return { number, fault };
  const { atMs, who, command, arguments: given, outcome, code, note } = entry;
  return { number, at: timeText(atMs), who, command, arguments: given, outcome, code, note };
}

const COLUMNS = [
  { title: 'entry', right: true },
  { title: 'time' },
  { title: 'who' },
  { title: 'outcome' },
  { title: 'command' },
];

export function journalText(entries: readonly StoredEntry[]): string {
  const rows = entries.map(({ number, entry, fault }) => {
    if (entry === undefined) return [String(number), '', '', 'unreadable', printable(fault ?? '')];
    const outcome = entry.code === '' ? entry.outcome : `${entry.outcome}, ${entry.code}`;
    return [String(number), timeText(entry.atMs), entry.who, outcome, commandText(entry)].map(printable);
  });
  return `${rows.length === 0 ? '' : table(COLUMNS, rows)}${counted(rows.length, 'entry', 'entries')}\n`;
}

function commandText({ command, arguments: given, note }: JournalEntry): string {
  const shown = Object.entries(given).flatMap(([name, value]) =>
    value === null || value === undefined ? [] : [`${name} ${Array.isArray(value) ? value.join(',') : String(value)}`],
  );
  return `${command}: ${shown.join(', ')}${note === '' ? '' : ` (${note})`}`;
}
