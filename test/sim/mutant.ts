import type { Scenario } from './scenario.ts';

/** One plausible bug, as exact replacements in files of this repository. */
export interface Mutant {
  readonly name: string;
  /**
   * What catches it, instead of simulations: they meet some bugs so rarely that the first seed which does is another
   * one after each change of the simulator.
   */
  readonly unit?: UnitTest;
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

/** A test that fails with the bug. The title is as it stands in the file, where `%s` is any text. */
export interface UnitTest {
  readonly file: string;
  readonly title: string;
}

export function patch(file: string, from: string, to: string): Patch {
  return { file, from, to };
}

export function unitTest(file: string, title: string): UnitTest {
  return { file, title };
}
