import type { Scenario } from './scenario.ts';

/** One plausible bug, as exact replacements in files of this repository. */
export interface Mutant {
  readonly name: string;
  /** The only scenario to play, for a bug that random scenarios would reveal too rarely. */
  readonly scenario?: Scenario;
  /**
   * The first seed to play, for a bug that many seeds before it do not reveal; it saves time and shows nothing else.
   */
  readonly firstSeed?: number;
  readonly patches: readonly Patch[];
}

interface Patch {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export function patch(file: string, from: string, to: string): Patch {
  return { file, from, to };
}
