import type { Span } from '../../adapters/kafka/topics/offsets.ts';
import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { logOf } from './location.ts';

/** Records that are read. */
export interface ReadSpan extends Span {
  /** The span begins with the first record of this time or later. */
  readonly fromMs?: number;
}

/** What is read: where the logs start and end. */
export interface AuditLogs {
  /** The first topic is the one that decides the requests; others share its reply topics. */
  readonly ledger: readonly ReadSpan[];
  /** The request topic. Without it no request is judged. */
  readonly requests?: readonly ReadSpan[];
  readonly replies?: readonly ReadSpan[];
  readonly letters?: readonly ReadSpan[];
  readonly witness?: readonly ReadSpan[];
  /** By request partition: everything below this offset was answered before any of the topics was looked at. */
  readonly answeredBelow?: ReadonlyMap<number, number>;
}

/** A partition as it is read. */
interface Log {
  readonly topic: string;
  start: number;
  /** The offset behind the last record. */
  next: number | undefined;
  /** The time of the oldest record that shows one. */
  oldestMs: number | undefined;
  /** The last record that does not follow the one before it, and the oldest time from it on. */
  jump: { readonly offset: number; oldestMs: number | undefined } | undefined;
}

/**
 * How far back topics reach: from which time on everything is there that was ever appended. A partition that starts at 0 has
 * everything. Of one that does not, since its beginning was deleted or was not to be read, everything is there since its oldest record.
 */
export class LogReach {
  readonly #logs = new Map<string, Log>();

  constructor(spans: readonly ReadSpan[]) {
    for (const span of spans) {
      const { topic, from: start, fromMs: oldestMs } = span;
      this.#logs.set(logOf(span), { topic, start, next: undefined, oldestMs, jump: undefined });
    }
  }

  /** Takes the records of each partition in log order. `isDated`: it was appended at its time, or little later. */
  see(record: TopicRecord, isDated = true): void {
    const log = this.#logs.get(logOf(record));
    if (log === undefined) return;
    if (log.next !== undefined && log.next !== record.offset) log.jump = { offset: record.offset, oldestMs: undefined };
    log.next = record.offset + 1;
    if (!isDated) return;
    log.oldestMs ??= record.timestampMs;
    if (log.jump !== undefined) log.jump.oldestMs ??= record.timestampMs;
  }

  /** Where partitions start after the reading: records that were deleted meanwhile may be missing. */
  nowStartsAt(spans: readonly Span[]): void {
    for (const span of spans) {
      const log = this.#logs.get(logOf(span));
      if (log === undefined || span.from <= log.start) continue;
      log.start = span.from;
      if (log.jump !== undefined && log.jump.offset <= span.from) log.oldestMs = log.jump.oldestMs;
    }
  }

  startOf(log: string): number {
    return this.#logs.get(log)?.start ?? 0;
  }

  /** Of one partition: -Infinity if all of it is there, Infinity if nothing shows how far it reaches back. */
  ofLog(name: string): number {
    const log = this.#logs.get(name);
    if (log?.start === 0) return Number.NEGATIVE_INFINITY;
    return log?.oldestMs ?? Number.POSITIVE_INFINITY;
  }

  /** Of the partition of a topic that reaches back least; undefined for a topic that was not read. */
  ofTopic(topic: string): number | undefined {
    const logs = [...this.#logs].filter(([, log]) => log.topic === topic);
    return logs.length === 0 ? undefined : Math.max(...logs.map(([name]) => this.ofLog(name)));
  }

  /** Of the partition that reaches back least. */
  ofAll(): number {
    return Math.max(Number.NEGATIVE_INFINITY, ...[...this.#logs.keys()].map((name) => this.ofLog(name)));
  }
}
