import type { LogLine } from './worker-process.ts';

/** Under these a worker keeps its worker ID and may allocate again. */
const SUSPENDS = /^(LEASE_SUSPENDED|PROCESS_PAUSED|RESERVATION_EXHAUSTED|LAYOUT_EXHAUSTED)$/;
/** Under these it has none. */
const ENDS = /^(LEASE_LOST|CLOCK_|RESTORED|NO_IDENTITY|POOL_EXHAUSTED|ALL_CEILINGS_AHEAD)/;
/** Whether nothing may be allocated under a reason; the others only keep the worker from taking requests. */
export function refuses(reason: unknown): boolean {
  return SUSPENDS.test(String(reason)) || ENDS.test(String(reason));
}

/** An ID's time may be ahead of the brokers' clock by as much as the clock guard lets pass. */
const MAX_LEAD_MS = 1_000;

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * One stay under one fence, as the worker's log tells. Its times are those of the worker's own wall clock, which is steady
 * within a term, since a step ends it; only `overSeenMs` is of the test's monotonic clock.
 */
export interface Term {
  readonly fence: bigint;
  readonly fromMs: number;
  /** Refusals after which it could go on. */
  readonly suspended: readonly Span[];
  /** The highest time that the clock showed in it. */
  readonly untilMs: number;
  /** When the test had read that it was over. */
  readonly overSeenMs: number;
}

/** A batch, and what the test knows about when it was made. */
export interface Made {
  readonly correlationId: string;
  /** By the worker's wall clock. */
  readonly generatedAtMs: number;
  /** When its request was sent first, by the test's monotonic clock; undefined when that was not noted. */
  readonly sentMs: number | undefined;
  /** When the ledger took its entry, by the broker's wall clock. */
  readonly appendedMs: number;
}

/** The terms in a worker's log, in order. */
export function termsOf(lines: readonly LogLine[]): readonly Term[] {
  const began = lines.flatMap(({ msg }, at) => (msg === 'worker ID acquired' ? [at] : []));
  return began.map((at, i) => toTerm(lines.slice(at, began[i + 1])));
}

function toTerm([first, ...lines]: readonly LogLine[]): Term {
  const suspended: Span[] = [];
  let fromMs: number | undefined;
  let over: LogLine | undefined;
  for (const line of lines) {
    if (!/^gate (open|closed|still closed)$/.test(line.msg ?? '')) continue;
    if (ENDS.test(String(line.reason))) {
      over = line;
      break;
    }
    if (SUSPENDS.test(String(line.reason))) fromMs ??= Number(line.time);
    else if (fromMs !== undefined) {
      suspended.push({ fromMs, toMs: Number(line.time) });
      fromMs = undefined;
    }
  }
  if (fromMs !== undefined) suspended.push({ fromMs, toMs: Number.POSITIVE_INFINITY });
  return {
    fence: BigInt(String(first?.fence)),
    fromMs: Number(first?.time),
    suspended,
    untilMs: over === undefined ? Number.POSITIVE_INFINITY : Number(over.time) + wentBackMs(over),
    overSeenMs: over?.seenMs ?? Number.POSITIVE_INFINITY,
  };
}

/** By how much the clock showed less than before when a term ended for that. */
function wentBackMs({ detail }: LogLine): number {
  return Number(/went back by ([\d.]+) ms/.exec(String(detail))?.[1] ?? 0);
}

/**
 * What is wrong with when the batches of a term were made.
 *
 * @param stepMs by so much the worker's clock may have stepped back within a term
 */
export function faultsOf(term: Term, batches: readonly Made[], stepMs: number): readonly string[] {
  const { fence, fromMs, suspended, untilMs, overSeenMs } = term;
  return batches.flatMap(({ correlationId, generatedAtMs: madeMs, sentMs, appendedMs }) => {
    const during = suspended.find((span) => madeMs > span.fromMs + stepMs && madeMs < span.toMs - stepMs);
    const faults = [
      madeMs < fromMs - stepMs && `before its term began at ${fromMs}`,
      during !== undefined && `while its gate was closed, from ${during.fromMs} to ${during.toMs}`,
      madeMs > untilMs + stepMs && `after its term had ended at ${untilMs}`,
      sentMs !== undefined && sentMs > overSeenMs && `though its request was sent when its term was over`,
      madeMs - appendedMs > MAX_LEAD_MS && `ahead of its entry's time ${appendedMs}`,
    ];
    return faults.flatMap((fault) =>
      fault === false ? [] : [`fence ${fence}, ${correlationId}: ${madeMs}, ${fault}`],
    );
  });
}

/** How long after each reopening the term made its next batch; those that made none any more are left out. */
export function resumedMs({ suspended }: Term, batches: readonly Made[]): readonly number[] {
  return suspended.flatMap(({ toMs }) => {
    const nextMs = Math.min(...batches.flatMap(({ generatedAtMs: ms }) => (ms >= toMs ? [ms] : [])));
    return Number.isFinite(nextMs) ? [nextMs - toMs] : [];
  });
}
