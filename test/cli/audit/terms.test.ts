import { expect, test } from 'vitest';
import { Terms } from '../../../src/cli/audit/ids.ts';
import { presetLayout } from '../../../src/core/presets.ts';

const LAYOUT = presetLayout('default');

test('a term has one number, however many batches name it, and another layout makes it another term', () => {
  const terms = new Terms();
  const [one, other] = [
    { datacenterId: 4, workerId: 1, fence: 10n },
    { datacenterId: 4, workerId: 1, fence: 11n },
  ];
  const numbers = [one, other, one].map((term) => terms.numberOf(term, LAYOUT));
  expect([...numbers, terms.numberOf(one, presetLayout('js-safe'))]).toEqual([0, 1, 0, 2]);
  expect([terms.at(0), terms.at(2), terms.at(3)]).toMatchObject([one, one, undefined]);
});
