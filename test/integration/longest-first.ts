import { basename } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { SUITES } from './suites.ts';

/** Starts the longest tests on real servers first, so that no worker waits for one that began last. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const secondsOf = ({ moduleId }: TestSpecification) => SUITES[basename(moduleId, '.test.ts')]?.seconds ?? 0;
    return (await super.sort(files)).toSorted((one, other) => secondsOf(other) - secondsOf(one));
  }
}
