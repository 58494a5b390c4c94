import { type Source, wholeTopic } from '../../adapters/kafka/topics/offsets.ts';
import { readSpans, type TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { RESENT, readDeadLetterNote } from '../../codec/dead-letter.ts';
import { ANSWERED_BEFORE, HOPS, ORIGIN, originText } from '../../codec/request-headers.ts';
import { IdallocError } from '../../errors.ts';
import type { NewRecord } from '../../kafka/records/record.ts';
import { counted } from '../output.ts';
import { type Letter, letterName, recordObstacle } from './letter-view.ts';

/** A record of a letter, to be sent again. */
export interface Original {
  readonly letter: Letter;
  /** The record, with the partition and the offset that it has in the request topic. */
  readonly record: TopicRecord;
  /** How often it was sent again. */
  readonly resent: number;
}

/** Records of a range letter that can't be sent again. */
export interface Unsent {
  readonly letter: string;
  readonly records: number;
  readonly why: string;
}

/** Where letters and requests are read. */
interface Reading {
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
  reading: Reading,
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

export function unsentText({ letter, records, why }: Unsent): string {
  return `${counted(records, 'record')} of letter ${letter} can't be sent again: ${why}`;
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
