import { randomUUID } from 'node:crypto';
import { withEtcd } from '../../adapters/etcd/etcd.ts';
import {
  decodeJournalEntry,
  encodeJournalEntry,
  type JournalArguments,
  type JournalEntry,
} from '../../codec/journal-entry.ts';
import { loadEtcdConfig } from '../../config/config.ts';
import { printable } from '../../core/visible.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { type EtcdPort, type KeyValue, pagesOf, tryTransact } from '../../identity/identity-ports.ts';
import { journalKeys } from '../../identity/keys.ts';
import { type CliContext, EXIT } from '../context.ts';
import type { JsonFlag } from '../options.ts';
import { counted, message, present, table, timeText } from '../output.ts';

/**
 * The journal of a datacenter: which operator gave which command, when, and what came of it. It lies in etcd beside the
 * namespace, outlives every repair of it, and has a number for each entry, in the order in which etcd took them.
 */
export interface JournalSession {
  readonly context: Pick<CliContext, 'who' | 'now' | 'err'>;
  readonly etcd: Pick<EtcdPort, 'get' | 'range' | 'transact'>;
  readonly config: { readonly etcd: { readonly prefix: string }; readonly datacenterId: number };
  /** A random UUID for each entry; a simulation makes its own. */
  readonly newId?: () => string;
}

export interface JournaledCommand {
  /** The words of the command as they are typed, without its arguments. */
  readonly command: string;
  /** Never a secret. */
  readonly arguments: JournalArguments;
}

/** An entry as it is stored. */
export interface StoredEntry {
  readonly number: number;
  /** What was entered; undefined if this version can't read it. */
  readonly entry: JournalEntry | undefined;
  /** Why not. */
  readonly fault: string | undefined;
}

/** The newest ones are kept. */
export const MAX_ENTRIES = 10_000;
/** The oldest that go with each new one; more than one, so that the bound is met again if it was ever exceeded. */
const REMOVED_AT_ONCE = 10;
/** At 4 KiB each, half of the 4 MB that gRPC takes in one answer. */
const PAGE = 500;
/** Allows for lost and repeated writes, and for other operators at the same time. */
const MAX_STEPS = 10;

/** Errors after which a command may have taken effect all the same, or will. */
const SILENCES: ReadonlySet<string> = new Set([
  'ETCD_UNAVAILABLE',
  'KAFKA_UNAVAILABLE',
  'APPEND_UNANSWERED',
  'STOPPING',
]);

/**
 * Enters the command in the journal, then does its `work`, then enters what came of it. The work calls `note` when it
 * may have changed something, with a sentence for the entry, which may be empty: an error then leaves the outcome
 * unknown; any other one is a failure. Nothing is done if the first entry can't be written. A command that is killed
 * stays in the journal with an unknown outcome, and so does one whose second entry can't be written, which is reported
 * on stderr.
 *
 * @throws IdallocError of `work`; ETCD_UNAVAILABLE or ETCD_REFUSED if the journal can't be written, and then nothing
 * was done.
 */
export async function journaled<T>(
  session: JournalSession,
  { command, arguments: given }: JournaledCommand,
  work: (note: (text: string) => void) => Promise<T>,
): Promise<T> {
  const { context, newId = randomUUID } = session;
  const base = { id: newId(), atMs: context.now(), who: context.who(), command, arguments: given, code: '' };
  let entry: JournalEntry = { ...base, outcome: 'unknown', note: '' };
  const begun = await begin(session, encodeJournalEntry(entry));
  let mayHaveActed = false;
  const note = (text: string): void => {
    mayHaveActed = true;
    entry = { ...entry, note: text };
  };
  let result: T;
  try {
    result = await work(note);
  } catch (error) {
    const code = error instanceof IdallocError ? error.code : 'INTERNAL';
    const outcome = mayHaveActed || SILENCES.has(code) ? 'unknown' : 'failed';
    await complete(session, begun, { ...entry, outcome, code });
    throw error;
  }
  await complete(session, begun, { ...entry, outcome: 'done' });
  return result;
}

/** Reads all entries, the oldest first. */
export async function readJournal({ etcd, config }: Omit<JournalSession, 'context'>): Promise<readonly StoredEntry[]> {
  const keys = journalKeys(config.etcd.prefix, config.datacenterId);
  const found: StoredEntry[] = [];
  for await (const { key, value } of pagesOf(etcd, keys.entries, PAGE)) {
    const number = keys.numberOf(key);
    if (number !== undefined) found.push({ number, ...readEntry(key, value) });
  }
  return found;
}

function readEntry(key: string, value: Buffer): Pick<StoredEntry, 'entry' | 'fault'> {
  try {
    return { entry: decodeJournalEntry(key, value), fault: undefined };
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    return { entry: undefined, fault: error.message };
  }
}

/** Writes the entry under the next number, once. */
async function begin({ etcd, config }: JournalSession, value: Buffer): Promise<KeyValue> {
  const keys = journalKeys(config.etcd.prefix, config.datacenterId);
  try {
    for (let step = 0; step < MAX_STEPS; step += 1) {
      const last = (await etcd.get([keys.last])).get(keys.last);
      const number = (await lastNumber(etcd, keys, last)) + 1;
      const key = keys.entry(number);
      const isLast = last === undefined ? { createRevision: 0n } : { modRevision: last.modRevision };
      const old = Array.from({ length: REMOVED_AT_ONCE }, (_, i) => number - MAX_ENTRIES - i).filter((one) => one > 0);
      await tryTransact(
        etcd,
        [{ key: keys.last, ...isLast }],
        [
          { put: keys.last, value: Buffer.from(String(number)) },
          { put: key, value },
          ...old.map((one) => ({ delete: keys.entry(one) })),
        ],
      );
      const stored = (await etcd.get([key])).get(key);
      if (stored?.value.equals(value) === true) return stored;
    }
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    throw new IdallocError(error.code, `${UNWRITTEN}: ${error.message}`, { cause: error });
  }
  throw new IdallocError('ETCD_UNAVAILABLE', `${UNWRITTEN}: other commands came first ${MAX_STEPS} times`);
}

const UNWRITTEN = 'the journal of commands could not be written, so nothing was done';

/** If the key was lost, or is unreadable, the entries show it. */
async function lastNumber(
  etcd: JournalSession['etcd'],
  keys: ReturnType<typeof journalKeys>,
  last: KeyValue | undefined,
): Promise<number> {
  const text = last?.value.toString('utf8') ?? '';
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  let highest = 0;
  for await (const { key } of pagesOf(etcd, keys.entries, PAGE)) highest = Math.max(highest, keys.numberOf(key) ?? 0);
  return highest;
}

/** The command is done: what can't be written now must not make it look as if it had failed. */
async function complete({ context, etcd }: JournalSession, begun: KeyValue, entry: JournalEntry): Promise<void> {
  const { key, modRevision } = begun;
  try {
    const value = encodeJournalEntry(entry);
    for (let step = 0; step < MAX_STEPS; step += 1) {
      await tryTransact(etcd, [{ key, modRevision }], [{ put: key, value }]);
      const stored = (await etcd.get([key])).get(key);
      if (stored?.value.equals(value) === true) return;
      if (stored?.modRevision !== modRevision) throw new IdallocError('OVERTAKEN', `another program changed ${key}`);
    }
    throw new IdallocError('ETCD_UNAVAILABLE', `it was not written in ${MAX_STEPS} steps`);
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    context.err(message(`the journal keeps this command with an unknown outcome: ${describeError(error)}`));
  }
}

export interface JournalFlags extends JsonFlag {
  /** Wall milliseconds. */
  readonly from?: number;
}

/** Prints the journal. */
export async function showJournal(context: CliContext, { from = 0, json }: JournalFlags): Promise<void> {
  const config = loadEtcdConfig(context.env);
  const all = await withEtcd(config.etcd, (etcd) => readJournal({ etcd, config }));
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

const COLUMNS = ['>entry', 'time', 'who', 'outcome', 'command'];

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
