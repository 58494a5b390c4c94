import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { type DeadLetterNote, readDeadLetterNote } from '../../codec/dead-letter.ts';
import { decodeIdRequest } from '../../codec/id-request.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import { HEADERS_CUT } from '../../kafka/records/headers.ts';
import { correlationText } from '../audit/report.ts';
import { counted, printable, table, timeText } from '../table.ts';

/** A dead letter: its record, and what its headers say. */
export interface Letter {
  readonly record: TopicRecord;
  readonly note: DeadLetterNote;
}

const MAX_SHOWN_BYTES = 256;
const MAX_CELL = 60;
/** Sending a request again does not help once it came back this often. */
const MAX_RESENDS = 3;

export function letterOf(record: TopicRecord): Letter {
  return { record, note: readDeadLetterNote(record.headers as DeadLetterNote['headers']) };
}

/** Why a letter's request can't be sent again; undefined if it can. */
export function resendObstacle({ record, note }: Letter, requestTopic: string): string | undefined {
  const at = `${record.partition}:${record.offset}`;
  if (note.topic === undefined || note.partition === undefined || note.offset === undefined) {
    return `letter ${at} does not name the place of its record: idalloc did not write it`;
  }
  if (note.topic !== requestTopic) {
    return `letter ${at} names the topic '${note.topic}'; records go back to REQUEST_TOPIC '${requestTopic}' only`;
  }
  if (note.resent === undefined) return `letter ${at} has an invalid resend count in its header`;
  if (note.resent >= MAX_RESENDS) {
    return `letter ${at} was sent again ${note.resent} times and came back each time: fix the cause, ${note.code}`;
  }
  for (const name of [HEADERS_CUT, UNREADABLE]) {
    if (Object.hasOwn(record.headers, name))
      return `letter ${at} is incomplete: its record had more than could be read`;
  }
  return undefined;
}

/** Whether the cause may be fixed by now: a request that is itself invalid comes back. */
export function mayBeFixed({ note }: Letter): boolean {
  return note.code === 'REPLY_UNDELIVERABLE' || note.code === 'INVALID_REPLY_TOPIC' || note.code === 'UNKNOWN_SCHEMA';
}

export function letterJson({ record, note }: Letter): object {
  return {
    partition: record.partition,
    offset: record.offset,
    at: timeText(record.timestampMs),
    code: note.code ?? null,
    message: note.message ?? null,
    original: { topic: note.topic ?? null, partition: note.partition ?? null, offset: note.offset ?? null },
    key: record.key === null ? null : correlationText(record.key),
    value_bytes: record.value?.length ?? null,
    record_left_out: note.recordLeftOut,
    resent: note.resent ?? null,
  };
}

/** The letter with its headers and value. */
export function fullLetterJson(letter: Letter): object {
  const { record, note } = letter;
  const headers = Object.entries(note.headers).map(([name, value]) => [
    name,
    (Array.isArray(value) ? value : [value]).map((one) => (one === null ? null : bytesOf(one).toString('base64'))),
  ]);
  const value = record.value?.toString('base64') ?? null;
  return { ...letterJson(letter), headers_base64: Object.fromEntries(headers), value_base64: value };
}

const COLUMNS = [
  { title: 'letter', right: true },
  { title: 'at' },
  { title: 'code' },
  { title: 'record' },
  { title: 'bytes', right: true },
  { title: 'resent', right: true },
  { title: 'key' },
];

/** `code`: the filter, if there is one. */
export function lettersText(letters: readonly Letter[], code?: string): string {
  if (letters.length === 0) return `there are no dead letters${code === undefined ? '' : ` with code ${code}`}\n`;
  const rows = letters.map(({ record, note }) => [
    `${record.partition}:${record.offset}`,
    timeText(record.timestampMs),
    cell(note.code ?? '?'),
    note.partition === undefined ? '?' : cell(`${note.topic}/${note.partition} at ${note.offset}`),
    record.value === null ? '-' : String(record.value.length),
    note.resent === 0 ? '' : String(note.resent ?? '?'),
    record.key === null ? '-' : cell(correlationText(record.key)),
  ]);
  return table(COLUMNS, rows);
}

export function letterText(letter: Letter): string {
  const { record, note } = letter;
  const headers = Object.entries(note.headers).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => `  ${cell(printable(name))}: ${shown(one)}`),
  );
  return [
    `letter   ${record.partition}:${record.offset}, written ${timeText(record.timestampMs)}`,
    `record   ${printable(note.topic ?? '?')}/${note.partition ?? '?'} at ${note.offset ?? '?'}` +
      `${note.timestampMs === undefined || note.timestampMs < 0 ? '' : `, sent ${timeText(note.timestampMs)}`}`,
    `why      ${printable(note.code ?? '?')}: ${printable(note.message ?? '?')}`,
    `resent   ${note.resent === undefined ? '? times' : counted(note.resent, 'time')}`,
    `key      ${shown(record.key)}`,
    `headers${headers.length === 0 ? '  none' : ''}`,
    ...headers,
    `value    ${note.recordLeftOut ? 'left out: the dead-letter topic rejected it' : shown(record.value)}`,
    `         ${reading(record.value)}`,
    '',
  ].join('\n');
}

/** The fields of a request's value, or why it can't be decoded. */
function reading(value: Buffer | null): string {
  if (value === null || value.length === 0) return 'empty';
  try {
    const { count, correlationId, replyTopic, encoding } = decodeIdRequest(value);
    const id = correlationId === undefined ? 'in a header' : correlationText(correlationId);
    return `IdRequest: count ${count}, correlation ID ${id}, reply topic ${replyTopic ?? 'in a header'}, encoding ${encoding ?? 'default'}`;
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    return printable(describeError(error));
  }
}

/** Bytes as text if they are plain text, else the first ones in hex. */
function shown(value: Buffer | string | null | undefined): string {
  if (value === null || value === undefined) return 'null';
  const bytes = bytesOf(value);
  const text = bytes.toString('utf8');
  if (bytes.length <= MAX_SHOWN_BYTES && /^[\x20-\x7e]*$/.test(text)) return JSON.stringify(text);
  const more = bytes.length > MAX_SHOWN_BYTES ? '…' : '';
  return `0x${bytes.subarray(0, MAX_SHOWN_BYTES).toString('hex')}${more} (${bytes.length} bytes)`;
}

function bytesOf(value: Buffer | string | undefined): Buffer {
  return Buffer.isBuffer(value) ? value : Buffer.from(value ?? '', 'utf8');
}

function cell(text: string): string {
  const plain = printable(text);
  return plain.length <= MAX_CELL ? plain : `${plain.slice(0, MAX_CELL - 1)}…`;
}
