import { describe, expect, it } from 'vitest';
import { fieldsText, parseFields } from '../../src/core/layout.ts';
import { chooseLayout, customLayout, LAYOUT_NAMES, type LayoutChoice } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';

const FIELDS = parseFields('timestamp:41,worker:10,sequence:12');
const GOOD: LayoutChoice = { name: 'custom', fields: FIELDS, epochMs: 0 };

/** The problems of a choice, each as property and problem. */
function problemsOf(choice: LayoutChoice): readonly string[] {
  const chosen = chooseLayout(choice);
  return 'problems' in chosen ? chosen.problems.map(({ property, problem }) => `${property} ${problem}`) : [];
}

describe('the choice of a layout', () => {
  it.each(LAYOUT_NAMES)('accepts %s, with its own epoch', (name) => {
    expect(problemsOf(name === 'custom' ? GOOD : { name, epochMs: 7 })).toEqual([]);
  });

  it('of a custom one defaults to ticks of 1 ms whose sequence starts at 0', () => {
    expect(chooseLayout(GOOD)).toMatchObject({ layout: { name: 'custom', tickMs: 1, sequenceStartBelow: 1 } });
    expect(chooseLayout({ ...GOOD, tickMs: 5, sequenceStartBelow: 9 })).toMatchObject({
      layout: { tickMs: 5, sequenceStartBelow: 9 },
    });
  });

  it.each([
    ['no fields', { fields: undefined }, /^fields is required/],
    ['no epoch', { epochMs: undefined }, /^epochMs is required/],
    ['bits of bwmarrin', { workerBits: 3 }, /^workerBits is for layout bwmarrin only/],
    ['a tick of no time', { tickMs: 0 }, /^tickMs is 0/],
    ['a tick above a second', { tickMs: 1_001 }, /^tickMs is 1001/],
    ['half an epoch', { epochMs: 0.5 }, /^epochMs is 0.5/],
    [
      'a start past the last sequence number',
      { sequenceStartBelow: 4_097 },
      /^sequenceStartBelow is 4097, must be 1..4096/,
    ],
    [
      'too few bits of time',
      { fields: parseFields('timestamp:15,worker:1,sequence:1') },
      /^fields gives 'timestamp' 15 bits/,
    ],
    [
      'too many bits of workers',
      { fields: parseFields('timestamp:16,worker:33,sequence:1') },
      /^fields gives 'worker' 33/,
    ],
    ['no worker', { fields: parseFields('timestamp:41,sequence:12') }, /^fields has 0 worker fields/],
    ['two sequences', { fields: parseFields('timestamp:41,worker:1,sequence:2,sequence:3') }, /^fields has 2 sequence/],
    ['too many bits', { fields: parseFields('timestamp:48,worker:10,sequence:12') }, /^fields takes 70 bits/],
    [
      'a time that is not on top',
      { fields: parseFields('worker:5,timestamp:41,sequence:7') },
      /^fields must begin with the timestamp: only/,
    ],
    [
      'dates past all dates',
      { fields: parseFields('timestamp:48,worker:1,sequence:1'), tickMs: 1_000 },
      /^fields lasts past/,
    ],
  ] as const)('of a custom one refuses %s, and names the property', (_, change, problem) => {
    expect(problemsOf({ ...GOOD, ...change })).toEqual([expect.stringMatching(problem)]);
  });

  it('of a custom one reports all its problems together', () => {
    const fields = parseFields('worker:40,timestamp:41');
    const all = problemsOf({ name: 'custom', fields, tickMs: 0, sequenceBits: 3 });
    expect(new Set(all.map((fault) => fault.slice(0, fault.indexOf(' '))))).toEqual(
      new Set(['epochMs', 'sequenceBits', 'fields', 'tickMs']),
    );
  });

  it.each(['fields', 'tickMs', 'sequenceStartBelow'] as const)('of a preset refuses %s', (part) => {
    const given = { fields: FIELDS, tickMs: 1, sequenceStartBelow: 1 };
    expect(problemsOf({ name: 'js-safe', [part]: given[part] })).toEqual([
      `${part} is for layout 'custom' only: 'js-safe' has its own`,
    ]);
  });

  it('of baidu needs an epoch', () => {
    expect(problemsOf({ name: 'baidu' })).toEqual([expect.stringMatching(/^epochMs is required/)]);
  });
});

describe('a custom layout', () => {
  it('equals the preset with the same fields, tick, epoch and start, except for its name', () => {
    const region = presetLayout('region');
    const { name, ...same } = customLayout({ ...region, fields: fieldsText(region.fields) });
    expect({ ...same, name: 'region' }).toEqual(region);
    expect(name).toBe('custom');
  });

  it('rejects invalid fields and invalid layouts with CONFIG_INVALID', () => {
    for (const fields of ['timestamp', 'worker:1']) {
      expect(() => customLayout({ fields, epochMs: 0 })).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }));
    }
  });
});
