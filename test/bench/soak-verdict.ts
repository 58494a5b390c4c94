import { median } from './stage.ts';

/**
 * What a soak of clients may fail with. A failure is allowed only for a time in which, as probes by another client
 * show, the workers did not answer, so the rules hold on a machine of any speed.
 */

/** A span of time, by the wall clock of the machine, which all processes of a soak share. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** A small request that something else than the client library sent to a partition. */
export interface Probe {
  readonly sentMs: number;
  /** Undefined while there is no reply. */
  readonly answeredMs: number | undefined;
}

/** Calls of a service that failed alike. */
export interface Failure extends Span {
  readonly service: string;
  readonly call: 'next' | 'take' | 'takeAsync' | 'request' | 'flood';
  readonly code: string;
  readonly message: string;
  readonly times: number;
  readonly count: number;
  /** The home partition of a request. */
  readonly home?: number;
}

/** A partition whose probe has no reply after this time is dark until one sent later has. */
const DARK_AFTER_MS = 2_000;
/**
 * Waits for as many IDs or fewer are served the fast way by workers, so a flood of large requests does not delay them.
 */
const SMALL_COUNT = 4_000;
/** In this time after the dark the client is to have IDs again. */
const RELIEF_MS = 10_000;

/** When a partition was dark, in order. */
export function darkSpans(probes: readonly Probe[], untilMs: number): readonly Span[] {
  const spans: { fromMs: number; toMs: number }[] = [];
  // From the last probe to the first: a probe that was lost itself is answered with the first of those after it.
  let answeredMs = untilMs;
  for (const probe of probes.toReversed()) {
    answeredMs = Math.min(answeredMs, probe.answeredMs ?? Number.POSITIVE_INFINITY);
    if (answeredMs - probe.sentMs <= DARK_AFTER_MS) continue;
    const next = spans.at(-1);
    if (next !== undefined && answeredMs >= next.fromMs) next.fromMs = probe.sentMs;
    else spans.push({ fromMs: probe.sentMs, toMs: answeredMs });
  }
  return spans.toReversed();
}

/** When all partitions were dark at once. */
export function allDark(partitions: readonly (readonly Span[])[]): readonly Span[] {
  const [first = [], ...others] = partitions;
  const both = (spans: readonly Span[], more: readonly Span[]) =>
    spans.flatMap((one) => more.map((other) => cut(one, other))).filter(({ fromMs, toMs }) => fromMs < toMs);
  return others.reduce(both, first);
}

const cut = (one: Span, other: Span): Span => ({
  fromMs: Math.max(one.fromMs, other.fromMs),
  toMs: Math.min(one.toMs, other.toMs),
});

/** How much of a span lies in others, of which no two overlap. */
export function sharedMs(span: Span, others: readonly Span[]): number {
  return others.map((other) => cut(span, other)).reduce((sum, { fromMs, toMs }) => sum + Math.max(0, toMs - fromMs), 0);
}

export interface Darkness {
  /** By partition. */
  readonly partitions: readonly (readonly Span[])[];
  readonly all: readonly Span[];
  /** When another service asked for more than workers can allocate. */
  readonly floods: readonly Span[];
}

/** A span without those others, of which no two overlap. */
function without(span: Span, others: readonly Span[]): readonly Span[] {
  let left = [span];
  for (const { fromMs, toMs } of others) {
    const pieces = left.flatMap((one) => [
      { fromMs: one.fromMs, toMs: Math.min(one.toMs, fromMs) },
      { fromMs: Math.max(one.fromMs, toMs), toMs: one.toMs },
    ]);
    left = pieces.filter((piece) => piece.fromMs < piece.toMs);
  }
  return left;
}

const lengthMs = ({ fromMs, toMs }: Span): number => toMs - fromMs;

/** What its verdict needs of the service whose call failed. */
interface Caller {
  /** For so long its buffer lasts, at so many IDs a second. */
  readonly coverMs: number;
  readonly idsPerSecond: number;
  /** When its process was suspended, in which time it could not take any reply. */
  readonly suspended: readonly Span[];
}

/** The rule that allows a failure, in words; undefined if none does. */
export function allowedBy(
  failure: Failure,
  { partitions, all, floods }: Darkness,
  { coverMs, idsPerSecond, suspended }: Caller,
): string | undefined {
  const { call, code } = failure;
  const isUnanswered = code === 'NO_REPLY' || code === 'KAFKA_UNAVAILABLE';
  if (call === 'flood') return isUnanswered ? 'a large request may wait for minutes' : undefined;
  const waits = without(failure, suspended);
  const sumOf = (each: (wait: Span) => number) => waits.reduce((sum, wait) => sum + each(wait), 0);
  const hasWaitedIn = (spans: readonly Span[]) => 2 * sumOf((wait) => sharedMs(wait, spans)) >= sumOf(lengthMs);
  if (call === 'request') {
    const isDark = isUnanswered && hasWaitedIn(partitions[failure.home ?? -1] ?? []);
    return isDark ? 'nobody served its home partition for half of its time' : undefined;
  }
  if (call === 'takeAsync') {
    if (!isUnanswered) return undefined;
    if (hasWaitedIn(all)) return 'nobody served any partition for half of its time';
    const isLarge = failure.count > SMALL_COUNT;
    const isHeldUp = [floods, ...partitions].some(hasWaitedIn);
    return isLarge && isHeldUp
      ? 'many IDs at once come by large requests, which wait for floods and partitions'
      : undefined;
  }
  if (code !== 'BUFFER_EMPTY') return undefined;
  // As soon as the buffer has fewer IDs than a call takes at once, that call fails, and next() goes on.
  const lastsMs = coverMs - (1_000 * (failure.count - 1)) / idsPerSecond;
  const isOutage = (dark: Span) =>
    lengthMs(dark) >= lastsMs && dark.fromMs + lastsMs <= failure.toMs && failure.fromMs <= dark.toMs + RELIEF_MS;
  return all.some(isOutage) ? 'nobody served any partition for longer than the buffer covers' : undefined;
}

/** What a service says of its process now and then. */
export interface Sample {
  readonly atMs: number;
  /** After a collection of garbage. */
  readonly heapBytes: number;
  readonly rssBytes: number;
}

/**
 * By how much a figure rose from the second quarter of the samples to the last; the first is the start of the process.
 */
export function growth(samples: readonly Sample[], figure: 'heapBytes' | 'rssBytes'): number {
  const quarter = (nth: number) =>
    samples.slice(Math.floor((nth * samples.length) / 4), Math.ceil(((nth + 1) * samples.length) / 4));
  return samples.length < 4
    ? 0
    : median(quarter(3).map((one) => one[figure])) - median(quarter(1).map((one) => one[figure]));
}

/** The slope of the line of least squares through the samples, without their first quarter, for each minute. */
export function slopePerMinute(samples: readonly Sample[], figure: 'heapBytes' | 'rssBytes'): number {
  const used = samples.slice(Math.floor(samples.length / 4));
  const meanOf = (of: (one: Sample) => number) => used.reduce((sum, one) => sum + of(one), 0) / used.length;
  const [atMs, value] = [meanOf((one) => one.atMs), meanOf((one) => one[figure])];
  const above = used.reduce((sum, one) => sum + (one.atMs - atMs) * (one[figure] - value), 0);
  const below = used.reduce((sum, one) => sum + (one.atMs - atMs) ** 2, 0);
  return below === 0 ? 0 : (60_000 * above) / below;
}
