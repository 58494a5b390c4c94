/**
 * Two clocks, two types. Wall time names IDs; monotonic time measures waiting. Mixing them up does not compile.
 */
declare const unit: unique symbol;

/** Milliseconds since 1970-01-01T00:00:00Z by the system's clock; it can step either way. */
export type WallMs = number & { readonly [unit]: 'wall' };

/** Milliseconds by a clock that never steps; its origin means nothing. */
export type MonoMs = number & { readonly [unit]: 'mono' };

/** Whole ticks of a layout since its epoch. */
export type Ticks = number & { readonly [unit]: 'ticks' };

/** Both clocks, read at one moment. */
export interface Reading {
  readonly wall: WallMs;
  readonly mono: MonoMs;
}

export const wallMs = (value: number): WallMs => value as WallMs;
export const monoMs = (value: number): MonoMs => value as MonoMs;
export const ticks = (value: number): Ticks => value as Ticks;

/** Milliseconds between two readings, by the clock that advanced more: a deadline must not outlast either. */
export function elapsedMs(since: Reading, now: Reading): number {
  return Math.max(now.mono - since.mono, now.wall - since.wall);
}

/** A number in [0, 1), like Math.random; passed in so that the core stays pure. */
export type Random = () => number;
