import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { type DeadLetterNote, readDeadLetterNote, runsText } from '../../codec/dead-letter.ts';
import { decodeIdRequest } from '../../codec/id-request.ts';
import { textOfId } from '../../codec/request-checks.ts';
import { printable } from '../../core/visible.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import { HEADERS_CUT } from '../../kafka/records/fetched-record.ts';
import { counted, table, timeText } from '../output.ts';

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

export function letterName({ record }: Letter): string {
  return `${record.partition}:${record.offset}`;
}

/** Why nothing of a letter can be sent again; undefined if it can. */
export function resendObstacle(letter: Letter, requestTopic: string): string | undefined {
  const { record, note } = letter;
  const at = letterName(letter);
  if (note.topic === undefined || note.partition === undefined || note.offset === undefined) {
    return `letter ${at} does not name the place of its record: idalloc did not write it`;
  }
  if (note.topic !== requestTopic) {
    return `letter ${at} names the topic '${note.topic}'; records go back to REQUEST_TOPIC '${requestTopic}' only`;
  }
  if (note.offsets === undefined) return `letter ${at} does not name the offsets of its records`;
  const obstacle = recordObstacle(record.headers, note.resent);
  return obstacle && `letter ${at} ${obstacle}: fix the cause, ${note.code}`;
}

/** Why a record with these headers can't be sent again, continuing its name; undefined if it can. */
export function recordObstacle(headers: object, resent: number | undefined): string | undefined {
  if (resent === undefined) return 'has an invalid resend count in its header';
  if (resent >= MAX_RESENDS) return `was sent again ${resent} times and came back each time`;
  const isIncomplete = [HEADERS_CUT, UNREADABLE].some((name) => Object.hasOwn(headers, name));
  return isIncomplete ? 'is incomplete: it had more than could be read' : undefined;
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
    range: note.isRange ? rangeJson(note) : null,
    key: record.key === null ? null : textOfId(record.key),
    value_bytes: record.value?.length ?? null,
    record_left_out: note.recordLeftOut,
    resent: note.resent ?? null,
  };
}

function rangeJson({ offsets }: DeadLetterNote): object {
  if (offsets === undefined) return { records: null, last: null, offsets: null };
  return { records: offsets.length, last: offsets.at(-1), offsets: runsText(offsets) };
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

const COLUMNS = ['>letter', 'at', 'code', 'record', '>bytes', '>resent', 'key'];

/** `code`: the filter, if there is one. */
export function lettersText(letters: readonly Letter[], code?: string): string {
  if (letters.length === 0) return `there are no dead letters${code === undefined ? '' : ` with code ${code}`}\n`;
  const rows = letters.map(({ record, note }) => [
    `${record.partition}:${record.offset}`,
    timeText(record.timestampMs),
    cell(note.code ?? '?'),
    note.partition === undefined ? '?' : cell(`${note.topic}/${note.partition} at ${placesText(note)}`),
    record.value === null ? '-' : String(record.value.length),
    note.resent === 0 ? '' : String(note.resent ?? '?'),
    record.key === null ? '-' : cell(textOfId(record.key)),
  ]);
  return table(COLUMNS, rows);
}

/** The offset of the record, or the first and the last one and the number of them. */
function placesText({ isRange, offset, offsets }: DeadLetterNote): string {
  if (!isRange) return String(offset ?? '?');
  return offsets === undefined ? `${offset ?? '?'}-?` : `${offset}-${offsets.at(-1)} (${offsets.length})`;
}

export function letterText(letter: Letter): string {
  const { record, note } = letter;
  const headers = Object.entries(note.headers).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => `  ${cell(printable(name))}: ${shown(one)}`),
  );
  return [
    `letter   ${record.partition}:${record.offset}, written ${timeText(record.timestampMs)}`,
    `record   ${printable(note.topic ?? '?')}/${note.partition ?? '?'} at ${placesText(note)}` +
      `${note.timestampMs === undefined || note.timestampMs < 0 ? '' : `, sent ${timeText(note.timestampMs)}`}`,
    `why      ${printable(note.code ?? '?')}: ${printable(note.message ?? '?')}`,
    `resent   ${note.resent === undefined ? '? times' : counted(note.resent, 'time')}`,
    `key      ${shown(record.key)}`,
    `headers${headers.length === 0 ? '  none' : ''}`,
    ...headers,
    ...valueLines(letter),
    '',
  ].join('\n');
}

function valueLines({ record, note }: Letter): readonly string[] {
  if (note.isRange) {
    const offsets = note.offsets === undefined ? '?' : runsText(note.offsets);
    return [`offsets  ${offsets}`, 'value    none: its records are in the request topic'];
  }
  const value = note.recordLeftOut ? 'left out: too long, or the dead-letter topic rejected it' : shown(record.value);
  return [`value    ${value}`, `         ${reading(record.value)}`];
}

/** The fields of a request's value, or why it can't be decoded. */
function reading(value: Buffer | null): string {
  if (value === null || value.length === 0) return 'empty';
  try {
    const { count, correlationId, replyTopic, encoding, requestId, sequence } = decodeIdRequest(value);
    const id = correlationId === undefined ? 'in a header' : textOfId(correlationId);
    const named = [requestId && `request ID ${textOfId(requestId)}`, sequence && `sequence ${sequence}`];
    const own = named.flatMap((text) => (text === undefined ? [] : `, ${text}`)).join('');
    return `IdRequest: count ${count}, correlation ID ${id}, reply topic ${replyTopic ?? 'in a header'}, encoding ${encoding ?? 'default'}${own}`;
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
