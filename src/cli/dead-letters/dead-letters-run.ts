import { isWriteOver, PATIENT } from '../../adapters/kafka/brokers.ts';
import { readRecord, readSpans, type Source, type TopicRecord, wholeTopic } from '../../adapters/kafka/topics/spans.ts';
import { retrying } from '../../async/retrying.ts';
import { RESENT, readDeadLetterNote } from '../../codec/dead-letter.ts';
import { ANSWERED_BEFORE, HOPS, ORIGIN, originText } from '../../codec/request-headers.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { append } from '../../kafka/loops/leader-calls.ts';
import type { NewRecord } from '../../kafka/records/record.ts';
import type { CliContext } from '../context.ts';
import { type KafkaSession, withKafka } from '../kafka-session.ts';
import type { ConfirmFlags, JsonFlag } from '../options.ts';
import { counted, present } from '../output.ts';
import { confirm } from '../terminal.ts';
import {
  fullLetterJson,
  type Letter,
  letterJson,
  letterName,
  letterOf,
  lettersText,
  letterText,
  mayBeFixed,
  recordObstacle,
  resendObstacle,
} from './letter-view.ts';

/** The place of a letter in the dead-letter topic. */
export interface LetterLocation {
  readonly partition: number;
  readonly offset: number;
}

export interface LetterListOptions extends JsonFlag {
  readonly limit: number;
  readonly code?: string;
}

/** Lists the newest letters. */
export async function listLetters(context: CliContext, options: LetterListOptions): Promise<void> {
  const letters = await withKafka(context, (session) => newestLetters(session, options));
  present(context, options.json, { letters: letters.map(letterJson) }, () => lettersText(letters, options.code));
}

/** The newest letters first, with `code` those of it alone. Memory holds twice as many. */
export async function newestLetters(
  { context, config, source }: KafkaSession,
  { limit, code }: Omit<LetterListOptions, 'json'>,
): Promise<readonly Letter[]> {
  let found: Letter[] = [];
  const newest = () =>
    found
      .sort((a, b) => b.record.timestampMs - a.record.timestampMs || b.record.offset - a.record.offset)
      .slice(0, limit);
  const take = (record: TopicRecord) => {
    const letter = letterOf(record);
    if (code === undefined || letter.note.code === code) found.push(letter);
    if (found.length >= 2 * limit) found = newest();
  };
  await readSpans(source, await wholeTopic(source, config.topics.deadLetters), { signal: context.stop, take });
  return newest();
}

/** Shows one letter. */
export async function showLetter(context: CliContext, location: LetterLocation, { json }: JsonFlag): Promise<void> {
  const letter = await withKafka(context, (session) => readLetter(session, location));
  present(context, json, fullLetterJson(letter), () => letterText(letter));
}

/** Sends the records of letters again, after a confirmation. */
export async function runResend(
  context: CliContext,
  locations: readonly LetterLocation[],
  { yes, json }: ConfirmFlags,
): Promise<void> {
  const { resent, unsent } = await withKafka(context, async (session) => {
    const { topics } = session.config;
    const letters: Letter[] = [];
    for (const location of locations) letters.push(await readLetter(session, location));
    const refusals = letters.flatMap((letter) => resendObstacle(letter, topics.requests) ?? []);
    if (refusals.length > 0) throw new IdallocError('RESEND_REFUSED', refusals.join('; '));
    const reading = { source: session.source, requestTopic: topics.requests, signal: context.stop };
    const found: Awaited<ReturnType<typeof originalsOf>>[] = [];
    for (const letter of letters) found.push(await originalsOf(reading, letter));
    const originals = found.flatMap(({ due }) => due);
    const unsent = found.flatMap((of) => of.unsent);
    for (const { letter, records, why } of unsent)
      context.err(`${counted(records, 'record')} of letter ${letter} can't be sent again: ${why}\n`);
    const hopeless = originals.filter(({ letter }) => !mayBeFixed(letter)).length;
    const hint = hopeless === 0 ? '' : ` ${hopeless} of them will come back, since the request itself is invalid.`;
    await confirm(context, `Send ${counted(originals.length, 'record')} to '${topics.requests}' again?${hint}`, yes);
    return { resent: await send(session, originals), unsent };
  });
  const lines = resent.map(
    ({ letter, partition, offset }) => `${letter} was sent again as request ${partition}:${offset}\n`,
  );
  present(context, json, { resent, unsent }, () => lines.join(''));
}

interface Resent {
  readonly letter: string;
  readonly partition: number;
  readonly offset: string;
}

async function send({ source, config }: KafkaSession, originals: readonly Original[]): Promise<Resent[]> {
  const topic = config.topics.requests;
  const resent: Resent[] = [];
  for (const original of originals) {
    const { key, value, partition } = original.record;
    try {
      const offset = await appendRecord(source, topic, partition, { key, value, headers: resentHeaders(original) });
      resent.push({ letter: letterName(original.letter), partition, offset: String(offset) });
    } catch (error) {
      const done = [...Map.groupBy(resent, ({ letter }) => letter)].map(([name, { length }]) => `${name} (${length})`);
      const before = done.length === 0 ? 'none' : done.join(' ');
      const message = `a record could not be sent: ${describeError(error)}; sent before it: ${before}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }
  return resent;
}

/**
 * Retries only what can't be appended later. A second copy is harmless: its correlation ID was decided by the first
 * one.
 */
async function appendRecord(source: Source, topic: string, partition: number, record: NewRecord): Promise<number> {
  const { cluster, runtime } = source;
  const appending = { topic, partition, purpose: 'publish' as const, ...APPEND_TIMES, records: [record] };
  const retries = { ...PATIENT, isTransient: isWriteOver };
  const { baseOffset } = await retrying(runtime, retries, () => append(cluster, runtime, appending));
  return baseOffset;
}

const APPEND_TIMES = { timeoutMs: 10_000, replicationTimeoutMs: 5_000 };

async function readLetter({ context, config, source }: KafkaSession, location: LetterLocation): Promise<Letter> {
  const { deadLetters } = config.topics;
  const record = await readRecord(source, deadLetters, location, context.stop);
  if (record !== undefined) return letterOf(record);
  throw new IdallocError('NOT_FOUND', `'${deadLetters}' has no letter ${location.partition}:${location.offset}`);
}

/** A record of a letter, to be sent again. */
interface Original {
  readonly letter: Letter;
  /** The record, with the partition and the offset that it has in the request topic. */
  readonly record: TopicRecord;
  /** How often it was sent again. */
  readonly resent: number;
}

/** Records of a range letter that can't be sent again. */
interface Unsent {
  readonly letter: string;
  readonly records: number;
  readonly why: string;
}

/** Where letters and requests are read. */
interface LetterSource {
  readonly source: Source;
  readonly requestTopic: string;
  readonly signal: AbortSignal;
}

/**
 * The records that a letter stands for, and those of them that can't be sent again. A letter without its record, or for
 * a range, has them in the request topic, unless retention has deleted them.
 *
 * @throws IdallocError RESEND_REFUSED if no record is left; as readSpans does.
 */
export async function originalsOf(
  reading: LetterSource,
  letter: Letter,
): Promise<{ readonly due: Original[]; readonly unsent: Unsent[] }> {
  const { record, note } = letter;
  const { partition = -1, offset = -1, offsets = [], timestampMs = 0 } = note;
  const { source, requestTopic: topic, signal } = reading;
  const span = (await wholeTopic(source, topic)).find((whole) => whole.partition === partition);
  if (span === undefined) {
    throw refusal(letter, `names partition ${partition}, which '${topic}' does not have`);
  }
  if (!note.recordLeftOut && !note.isRange) {
    const headers = note.headers as TopicRecord['headers'];
    return {
      due: [{ letter, record: { ...record, headers, partition, offset, timestampMs }, resent: note.resent ?? 0 }],
      unsent: [],
    };
  }
  const wanted = new Set(offsets);
  const found: TopicRecord[] = [];
  const [from, to] = [Math.max(span.from, offset), Math.min(span.to, (offsets.at(-1) ?? -1) + 1)];
  await readSpans(source, [{ topic, partition, from, to }], {
    signal,
    take: (one) => {
      if (wanted.has(one.offset)) found.push(one);
    },
  });
  if (found.length === 0) {
    throw refusal(letter, `has no record, and '${topic}' no longer has it at ${partition}:${offset}`);
  }
  const checked = found.map((one) => {
    const { resent } = readDeadLetterNote(one.headers as Letter['note']['headers']);
    return { letter, record: one, resent: resent ?? 0, obstacle: recordObstacle(one.headers, resent) };
  });
  const due = checked.filter(({ obstacle }) => obstacle === undefined);
  const causes = checked.flatMap(({ obstacle }) => obstacle ?? []);
  for (let gone = wanted.size - found.length; gone > 0; gone -= 1) causes.push(`'${topic}' no longer has it`);
  if (due.length === 0) throw refusal(letter, `has no record that can be sent: ${causes[0]}`);
  const unsent = Map.groupBy(causes, (why) => why);
  return {
    due,
    unsent: [...unsent].map(([why, { length: records }]) => ({ letter: letterName(letter), records, why })),
  };
}

function refusal(letter: Letter, why: string): IdallocError {
  return new IdallocError('RESEND_REFUSED', `letter ${letterName(letter)} ${why}`);
}

/**
 * The record's headers, with its first place and time: its new offset does not show its age. A record without a
 * readable time counts as the oldest.
 */
export function resentHeaders({
  record,
  resent,
}: Pick<Original, 'record' | 'resent'>): NonNullable<NewRecord['headers']> {
  const { partition, offset, timestampMs } = record;
  // A record that is sent again is a new one, which nobody has answered.
  const { [HOPS]: _, [ANSWERED_BEFORE]: __, ...own } = record.headers;
  const appendedAtMs = Number.isSafeInteger(timestampMs) ? Math.max(0, timestampMs) : 0;
  const origin = originText({ partition, offset, appendedAtMs });
  return Object.assign(Object.create(null), { [ORIGIN]: origin }, own, { [RESENT]: String(resent + 1) });
}
