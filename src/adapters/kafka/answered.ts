import {
  ANSWERED_HEADER,
  believable,
  type CommittedPosition,
  decodeAnswered,
  type LastRead,
  readOf,
  readReplay,
} from '../../codec/request-position.ts';
import { boundsOf } from '../../kafka/loops/leader-calls.ts';
import { CALL_TIMEOUT_MS } from './brokers.ts';
import { ISOLATION, readSpans, type Source, type Span, type TopicRecord, wholePartition } from './topics/spans.ts';

/**
 * The entries that are looked at, counted from the end of the log. An append has at most some hundred entries, and
 * nearly each one says what was answered. If none of so many does, they are of an earlier release.
 */
const LOOKS = [
  [0, 1_000],
  [1_000, 20_000],
] as const;

/**
 * A partition of the request topic, and the topic that has its decisions; undefined for an added partition, which has
 * none.
 */
interface RequestPlace {
  readonly topic: string;
  readonly partition: number;
  readonly ledger: string | undefined;
}

/** Where to begin in a request partition. */
export interface Beginning {
  readonly start: CommittedPosition;
  /**
   * Every request below was answered, and some are read again: what a statement of the replay has to say first.
   * Undefined for none.
   */
  readonly answeredBelow: number | undefined;
}

/**
 * Where to begin in a request partition whose committed offset is not a worker's, and requests below it may be
 * unanswered: at what the ledger shows as answered, at a lower offset that was set, or at the start of the log where
 * nothing shows what is answered. A log that has lost requests has new ones at their offsets: then it is the ledger's
 * position, which the session compares with the log. `offset`: undefined if none is committed. Rejects with a
 * KafkaError, or as readSpans does.
 */
export async function beginningOf(
  source: Source,
  { topic, partition, ledger }: RequestPlace,
  offset: number | undefined,
  signal: AbortSignal,
): Promise<Beginning> {
  const said = ledger === undefined ? undefined : await lastAnswered(source, ledger, partition, signal);
  const { from, to } = await wholePartition(source, topic, partition);
  const answered = said?.position;
  if (answered?.last !== undefined && answered.last.offset >= from) {
    const { last } = answered;
    const span = { topic, partition, from: last.offset, to: Math.min(to, last.offset + 1) };
    if (!(await has(source, span, last, signal))) return { start: answered, answeredBelow: undefined };
  }
  const start = believable(offset ?? from, answered) ?? { next: from, small: from };
  const isReplay = answered !== undefined && start.next < answered.next && said?.isStated !== true;
  return { start, answeredBelow: isReplay ? answered.next : undefined };
}

/** What workers had answered at the last append to a ledger partition. */
interface LastAnswered {
  readonly position: CommittedPosition;
  /**
   * Behind it is a statement of a replay, which is newer than what it says: that of an operator's command, or of a
   * worker before.
   */
  readonly isStated: boolean;
}

/** Undefined if the end of the ledger partition says nothing. */
async function lastAnswered(
  source: Source,
  topic: string,
  partition: number,
  signal: AbortSignal,
): Promise<LastAnswered | undefined> {
  const query = { topic, partition, isolation: ISOLATION, timeoutMs: CALL_TIMEOUT_MS } as const;
  const { logStart, end } = await boundsOf(source.cluster, source.runtime, query);
  let found: CommittedPosition | undefined;
  let isStated = false;
  for (const [near, far] of LOOKS) {
    let isStatedHere = false;
    const span = { topic, partition, from: Math.max(logStart, end - far), to: Math.max(logStart, end - near) };
    await readSpans(source, [span], {
      signal,
      take: (record) => {
        const said = record.headers[ANSWERED_HEADER];
        const position = Buffer.isBuffer(said) ? decodeAnswered(said.toString()) : undefined;
        if (position !== undefined) [found, isStatedHere] = [position, false];
        isStatedHere ||= readReplay(record) !== undefined;
      },
    });
    isStated ||= isStatedHere;
    if (found !== undefined) break;
  }
  return found && { position: found, isStated };
}

/** Whether the only record of the span is one that was read; false if the span is empty. */
async function has(source: Source, span: Span, { digest }: LastRead, signal: AbortSignal): Promise<boolean> {
  let isThere = false;
  const take = (record: TopicRecord) => {
    isThere = readOf(record).digest === digest;
    return true;
  };
  await readSpans(source, [span], { signal, take, skipsDense: true });
  return isThere;
}
