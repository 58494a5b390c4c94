import type { Outcome } from './load.ts';

export interface Percentiles {
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly p999_ms: number;
  /** Fewer than rate x seconds where the contender fell too far behind. */
  readonly sent: number;
  readonly unanswered: number;
}

/** Percentiles of all requests, or of those that `counts` selects. */
export function percentilesOf({ latenciesMs, unanswered }: Outcome, counts = (_: number) => true): Percentiles {
  const sorted = latenciesMs.filter((_, i) => counts(i)).sort();
  const at = (share: number) => Number((sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(2));
  const late = unanswered.filter(counts).length;
  return { p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), sent: sorted.length, unanswered: late };
}
