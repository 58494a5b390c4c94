import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SUITES } from '../integration/suites.ts';
import { ROOT } from '../support/docs.ts';

test('every file of tests on real servers is listed in a suite, and every listed file exists', () => {
  const files = readdirSync(join(ROOT, 'test/integration')).filter((file) => file.endsWith('.test.ts'));
  expect(files.length).toBeGreaterThan(50);
  expect(files.map((file) => file.replace('.test.ts', '')).toSorted()).toEqual(Object.keys(SUITES).toSorted());
});
