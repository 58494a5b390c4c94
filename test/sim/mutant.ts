import type { Scenario } from './scenario.ts';

/** One mistake that somebody could make, as exact replacements in files of this repository. */
export interface Mutant {
  readonly name: string;
  /** Where chance alone would show it too seldom, nothing else is played. */
  readonly scenario?: Scenario;
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
