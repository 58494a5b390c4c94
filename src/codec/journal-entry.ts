import { describeError, IdallocError } from '../errors.ts';
import { parseExactObject, requireExactObject, requireText } from './strict-json.ts';

/**
 * One command of an operator, as the journal in etcd remembers it. Stored as JSON of at most 4 KiB:
 *
 *   {"v":1,"id":"<UUID>","at":"2027-01-31T08:00:00.000Z","who":"alice@host","command":"sequence restart",
 *    "arguments":{"sequence":"invoices/2027","at":58},"outcome":"done","code":"",
 *    "note":"leaves out 41 numbers: 17 to 57"}
 *
 * Arguments are what the operator gave, so a command must not pass a secret. Its outcome is unknown from the start,
 * until it says more.
 */
export interface JournalEntry {
  /** Random. It distinguishes two commands that are otherwise equal. */
  readonly id: string;
  /** Wall milliseconds of the command's clock. */
  readonly atMs: number;
  readonly who: string;
  readonly command: string;
  readonly arguments: JournalArguments;
  readonly outcome: JournalOutcome;
  /** The code of the error with which it failed, or after which its outcome is unknown; else empty. */
  readonly code: string;
  /** What it did besides, in a sentence; may be empty. */
  readonly note: string;
}

type JournalOutcome = 'done' | 'failed' | 'unknown';

export type JournalArguments = Readonly<Record<string, JournalArgument>>;

/** What is undefined is left out. */
type JournalArgument = string | number | boolean | null | undefined | readonly string[];

const VERSION = 1;
const MAX_ENTRY_BYTES = 4_096;
const MAX_NOTE = 512;

const FIELDS = ['v', 'id', 'at', 'who', 'command', 'arguments', 'outcome', 'code', 'note'];
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const UTC_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;
const OUTCOME = /^(done|failed|unknown)$/;
const ANY = /^/;

/** Cuts a note for which there is no room. Throws CONFIG_INVALID if the entry is too long without any. */
export function encodeJournalEntry({ atMs, note, ...entry }: JournalEntry): Buffer {
  const { id, who, command, arguments: given, outcome, code } = entry;
  const at = new Date(atMs).toISOString();
  for (let most = MAX_NOTE; ; most = Math.floor(most / 2)) {
    const fields = { v: VERSION, id, at, who, command, arguments: given, outcome, code, note: cut(note, most) };
    const value = Buffer.from(JSON.stringify(fields));
    if (value.length <= MAX_ENTRY_BYTES) return value;
    if (most > 0) continue;
    const message = `the journal of commands takes at most ${MAX_ENTRY_BYTES} bytes of a command, and this one has ${value.length}: give it fewer arguments`;
    throw new IdallocError('CONFIG_INVALID', message);
  }
}

function cut(note: string, most: number): string {
  if (note.length <= most) return note;
  return most === 0 ? '' : `${note.slice(0, most)}…`;
}

/** Decodes what encodeJournalEntry wrote. Throws NAMESPACE_DAMAGED for anything else. */
export function decodeJournalEntry(key: string, value: Buffer): JournalEntry {
  try {
    const fields = parseExactObject(value, FIELDS);
    if (fields.v !== VERSION) throw new TypeError(`its version is not ${VERSION}`);
    const atMs = Date.parse(requireText(fields, 'at', UTC_TIME));
    if (Number.isNaN(atMs)) throw new TypeError('at is not a valid time');
    return {
      id: requireText(fields, 'id', UUID),
      atMs,
      who: requireText(fields, 'who', ANY),
      command: requireText(fields, 'command', ANY),
      arguments: requireArguments(fields.arguments),
      outcome: requireText(fields, 'outcome', OUTCOME) as JournalOutcome,
      code: requireText(fields, 'code', ANY),
      note: requireText(fields, 'note', ANY),
    };
  } catch (error) {
    const message = `${key} is no entry of the journal that this version can read: ${describeError(error)}`;
    throw new IdallocError('NAMESPACE_DAMAGED', message, { cause: error });
  }
}

function requireArguments(value: unknown): JournalArguments {
  const all = requireExactObject(value, [], Object.keys(Object(value)));
  for (const [name, one] of Object.entries(all)) {
    const isList = Array.isArray(one) && one.every((item) => typeof item === 'string');
    if (one !== null && !isList && !['string', 'number', 'boolean'].includes(typeof one)) {
      throw new TypeError(`the argument ${name} is neither a text, a number, a flag nor a list of texts`);
    }
  }
  return all as JournalArguments;
}
