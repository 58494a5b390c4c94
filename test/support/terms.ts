import type { LogLine } from './worker-process.ts';

/** Reasons under which a worker keeps its worker ID and may allocate again. */
const SUSPENDS = /^(LEASE_SUSPENDED|PROCESS_PAUSED|RESERVATION_EXHAUSTED|LAYOUT_EXHAUSTED)$/;
/** Reasons that end the term. */
const ENDS = /^(LEASE_LOST|CLOCK_|RESTORED|NO_IDENTITY|POOL_EXHAUSTED|ALL_CEILINGS_AHEAD)/;
/** Whether a reason forbids allocation; the others only keep the worker from taking requests. */
export function refuses(reason: unknown): boolean {
  return SUSPENDS.test(String(reason)) || ENDS.test(String(reason));
}

/** The most by which an ID's time may be ahead of the brokers' clock: what the clock guard tolerates. */
const MAX_LEAD_MS = 1_000;

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * One term of a worker, from its log. Times are by the worker's own wall clock, which is steady within a term, since a
 * step ends it; only `overSeenMs` is by the test's monotonic clock.
 */
export interface Term {
  readonly fence: bigint;
  readonly fromMs: number;
  /** Suspensions after which the term may continue. */
  readonly suspended: readonly Span[];
  /** The highest time that the clock showed in the term. */
  readonly untilMs: number;
  /** When the test read the log line that ended the term. */
  readonly overSeenMs: number;
}

/** A batch, and what the test knows about the time of its allocation. */
export interface Allocated {
  readonly correlationId: string;
  /** By the worker's wall clock. */
  readonly generatedAtMs: number;
  /** When its request was first sent, by the test's monotonic clock; undefined if not recorded. */
  readonly sentMs: number | undefined;
  /** When its entry was appended, by the broker's wall clock. */
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
    if (!/^gate (open|closed|closed, reason changed)$/.test(line.msg ?? '')) continue;
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

/** By how much the clock went back, if that ended the term; else 0. */
function wentBackMs({ detail }: LogLine): number {
  return Number(/went back by ([\d.]+) ms/.exec(String(detail))?.[1] ?? 0);
}

/**
 * The batches of a term whose time of allocation is wrong, with the reason.
 *
 * @param stepMs how far the worker's clock may have stepped back within a term
 */
export function faultsOf(term: Term, batches: readonly Allocated[], stepMs: number): readonly string[] {
  const { fence, fromMs, suspended, untilMs, overSeenMs } = term;
  return batches.flatMap(({ correlationId, generatedAtMs: atMs, sentMs, appendedMs }) => {
    const during = suspended.find((span) => atMs > span.fromMs + stepMs && atMs < span.toMs - stepMs);
    const faults = [
      atMs < fromMs - stepMs && `before its term, which began at ${fromMs}`,
      during !== undefined && `while its gate was closed, from ${during.fromMs} to ${during.toMs}`,
      atMs > untilMs + stepMs && `after its term had ended at ${untilMs}`,
      sentMs !== undefined && sentMs > overSeenMs && `though its request was sent after its term had ended`,
      atMs - appendedMs > MAX_LEAD_MS && `ahead of its entry's time ${appendedMs}`,
    ];
    return faults.flatMap((fault) =>
      fault === false ? [] : [`fence ${fence}, ${correlationId}: allocated at ${atMs}, ${fault}`],
    );
  });
}
