import {
  ANSWERED_HEADER,
  type CommittedPosition,
  decodeAnswered,
  type LastRead,
  readOf,
} from '../../codec/request-position.ts';
import { boundsOf } from '../../kafka/loops/leader-calls.ts';
import { CALL_TIMEOUT_MS } from './brokers.ts';
import { ISOLATION, type Source, wholePartition } from './topics/offsets.ts';
import { readSpans, type TopicRecord } from './topics/spans.ts';

/**
 * The entries that are looked at, counted from the end of the log. An append has at most some hundred entries, and nearly each one
 * says what was answered. If none of so many does, they are of an earlier release.
 */
const LOOKS = [
  [0, 1_000],
  [1_000, 20_000],
] as const;

/**
 * What workers had answered of a request partition at the last append to its ledger partition; undefined if the end of that
 * says nothing. Rejects with a KafkaError, or as readSpans does.
 */
export async function lastAnswered(
  source: Source,
  topic: string,
  partition: number,
  signal: AbortSignal,
): Promise<CommittedPosition | undefined> {
  const query = { topic, partition, isolation: ISOLATION, timeoutMs: CALL_TIMEOUT_MS } as const;
  const { logStart, end } = await boundsOf(source.cluster, source.runtime, query);
  let found: CommittedPosition | undefined;
  for (const [near, far] of LOOKS) {
    const span = { topic, partition, from: Math.max(logStart, end - far), to: Math.max(logStart, end - near) };
    await readSpans(source, [span], {
      signal,
      take: ({ headers }) => {
        const said = headers[ANSWERED_HEADER];
        if (Buffer.isBuffer(said)) found = decodeAnswered(said.toString()) ?? found;
        return false;
      },
    });
    if (found !== undefined) break;
  }
  return found;
}

/** Whether a request partition no longer has a record that was read; false if it has expired. Rejects as readSpans does. */
export async function hasLost(
  source: Source,
  place: { readonly topic: string; readonly partition: number },
  { offset, digest }: LastRead,
  signal: AbortSignal,
): Promise<boolean> {
  const { from, to } = await wholePartition(source, place.topic, place.partition);
  if (offset < from) return false;
  let isThere = false;
  const take = (record: TopicRecord) => {
    isThere = readOf(record).digest === digest;
    return true;
  };
  await readSpans(source, [{ ...place, from: offset, to: Math.min(to, offset + 1) }], { signal, take });
  return !isThere;
}
