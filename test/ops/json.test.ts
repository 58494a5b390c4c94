import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readableJson } from '../../ops/dev/json.ts';

test('readable JSON says what JSON says, whatever that is', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      expect(JSON.parse(readableJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
    }),
  );
});

test('readable JSON breaks a list where its line would have more than 120 columns, with a comma behind it', () => {
  const pair = (columns: number) => ['x'.repeat(columns - '  ["", 1],'.length), 1];
  const lines = readableJson([pair(120), pair(121), {}]).split('\n');
  const short = lines.map((line) => line.replace(/x+/, 'x'));
  expect(short).toEqual(['[', '  ["x", 1],', '  [', '    "x",', '    1', '  ],', '  {}', ']', '']);
  expect(lines[1]).toHaveLength(120);
});
