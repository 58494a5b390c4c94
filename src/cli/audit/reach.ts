import type { Span, TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { partitionFor } from '../../kafka/records/record.ts';
import { type BatchLocation, logOf } from './found.ts';

/*
 * How far back does a topic reach, and what did it lose? Every finding of the form "this is not there" hangs on the
 * answer. A reply without a decision is a fault if the ledger has everything since then; if retention took the
 * beginning, or the cluster lost the end, it is none.
 *
 * The traps: a partition that starts at offset 0 has everything, whatever its times say. One that starts later has
 * everything since its oldest record, but that record may be a reply that was sent again with an old time, so some
 * records do not count as dates. Retention goes on while the audit reads, so that records may vanish from the middle of
 * what was read: a jump of offsets behind which the partition starts by now was such a removal. And brokers' clocks
 * differ, so that whoever compares adds a margin to all of these times.
 *
 * The rule: what is older than a topic reaches is never missing, only unknown. What a ledger partition has stated as
 * lost is never missing, either, up to the time of the statement.
 */

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
  /** Everything below this offset of a request partition was answered before any of the topics was looked at. */
  readonly answeredBelow?: ReadonlyMap<number, number>;
}

/** A partition as it is read. */
interface LogSpan {
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
 * How far back topics reach: from which time on everything is there that was ever appended. A partition that starts at
 * 0 has everything. Of one that does not, since its beginning was deleted or was not to be read, everything is there
 * since its oldest record.
 */
export class LogReach {
  readonly #logs = new Map<string, LogSpan>();

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

  /** How far one partition reaches back: -Infinity if all of it is there, Infinity if nothing shows it. */
  ofLog(name: string): number {
    const log = this.#logs.get(name);
    if (log?.start === 0) return Number.NEGATIVE_INFINITY;
    return log?.oldestMs ?? Number.POSITIVE_INFINITY;
  }

  /** How far that partition of a topic reaches back that does so least; undefined for a topic that was not read. */
  ofTopic(topic: string): number | undefined {
    const logs = [...this.#logs].filter(([, log]) => log.topic === topic);
    return logs.length === 0 ? undefined : Math.max(...logs.map(([name]) => this.ofLog(name)));
  }

  /** How far that one of all partitions reaches back that does so least. */
  ofAll(): number {
    return Math.max(Number.NEGATIVE_INFINITY, ...[...this.#logs.keys()].map((name) => this.ofLog(name)));
  }
}

/** An entry at a lower offset than the end that its writer had read. */
interface Misplaced {
  readonly location: BatchLocation;
  readonly end: number;
  /** When it was decided at the earliest. */
  readonly decidedMs: number;
}

/** Misplaced entries that are reported in each ledger partition. */
const MAX_MISPLACED = 1_000;

/**
 * When ledger partitions last stated that their tails are lost. A decision from before such a statement may be missing
 * for that reason. An entry from before it that lies at another offset than its own may be from a copy that an operator
 * has adopted.
 */
export class LostTails {
  readonly #lastMs = new Map<string, number>();
  readonly #misplaced = new Map<string, Misplaced[]>();
  readonly #partitions: ReadonlyMap<string, number>;

  /** `partitions`: how many decide, in each ledger. */
  constructor(partitions: ReadonlyMap<string, number>) {
    this.#partitions = partitions;
  }

  add(log: string, statedMs: number): void {
    this.#misplaced.delete(log);
    this.#lastMs.set(log, Math.max(statedMs, this.#lastMs.get(log) ?? statedMs));
  }

  /** One from before a statement may arrive behind it. */
  hold(log: string, misplaced: Misplaced): void {
    if (misplaced.decidedMs <= (this.#lastMs.get(log) ?? Number.NEGATIVE_INFINITY)) return;
    const held = this.#misplaced.get(log) ?? [];
    this.#misplaced.set(log, held);
    if (held.length < MAX_MISPLACED) held.push(misplaced);
  }

  /** The misplaced entries that no statement explains. */
  held(): readonly Misplaced[] {
    return [...this.#misplaced.values()].flat();
  }

  /** Whether what was decided by then may be lost, in the home partition of a request ID or the name of a sequence. */
  mayHave(homeKey: Buffer, timeMs: number): boolean {
    return [...this.#partitions].some(([topic, partitions]) => {
      const partition = partitionFor(homeKey, partitions, () => 0);
      return timeMs <= (this.#lastMs.get(logOf({ topic, partition })) ?? Number.NEGATIVE_INFINITY);
    });
  }
}

/**
 * How many partitions decide, in each ledger: of the first one as many as are configured, of others those up to the
 * last one that was ever written to. Partitions that were added later decide nothing.
 */
export function decidingPartitions(ledger: readonly Span[], configured?: number): ReadonlyMap<string, number> {
  const sizes = [...Map.groupBy(ledger, ({ topic }) => topic)].map(([topic, all]) => {
    const used = all.filter(({ to }) => to > 0);
    const most = Math.max(...(used.length === 0 ? all : used).map(({ partition }) => partition)) + 1;
    const isOwn = topic === ledger[0]?.topic && configured !== undefined;
    return [topic, isOwn ? Math.min(configured, all.length) : most] as const;
  });
  return new Map(sizes);
}
