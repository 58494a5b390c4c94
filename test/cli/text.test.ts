import { describe, expect, test } from 'vitest';
import { counted, message, spanText, table, timeText, wrapped } from '../../src/cli/output.ts';

describe('a table of a command', () => {
  test('is as wide as its longest cells, with numbers to the right and nothing after the last column', () => {
    const rows = [
      ['worker-1', '7', 'x'],
      ['w', '12,345', ''],
    ];
    expect(table(['name', '>count', 'note'], rows)).toBe(
      ['name       count  note', 'worker-1       7  x', 'w         12,345', ''].join('\n'),
    );
  });

  test('has its titles alone without rows', () => {
    expect(table(['a', '>bc'], [])).toBe('a  bc\n');
  });

  test('leaves cells empty that a row does not have', () => {
    expect(table(['a', 'b'], [['x']])).toBe('a  b\nx\n');
  });
});

describe('texts of a command', () => {
  test.each([
    [0, '0 ms'],
    [999.4, '999 ms'],
    [1_000, '1.0 s'],
    [59_999, '60.0 s'],
    [60_000, '1.0 min'],
    [3_600_000, '1.0 h'],
    [86_400_000, '1.0 d'],
    [-90_000, '-1.5 min'],
  ])('show %d ms as %s, in the largest unit that fits', (milliseconds, text) => {
    expect(spanText(milliseconds)).toBe(text);
  });

  test('show a time that no date can have as a number', () => {
    expect([timeText(0), timeText(8_640_000_000_000_001)]).toEqual(['1970-01-01T00:00:00.000Z', '8640000000000001']);
  });

  test('count one thing, and several', () => {
    expect([counted(1, 'member'), counted(1n, 'member'), counted(0, 'member'), counted(2, 'entry', 'entries')]).toEqual(
      ['1 member', '1 member', '0 members', '2 entries'],
    );
  });

  test('cut words of more than 300 characters after 100 of them', () => {
    const word = 'x'.repeat(300);
    expect(message(`a ${word}\n`)).toBe(`a ${word}\n`);
    expect(message(`a ${word}x b`)).toBe(`a ${'x'.repeat(100)}… b\n`);
  });

  test('fill lines up to the width, and leave alone what is indented', () => {
    expect(wrapped('ab cd ef\ngh\n  a  table  as it is\nij', 5)).toBe('ab cd\nef gh\n  a  table  as it is\nij');
    expect(wrapped('ab cd', 4)).toBe('ab\ncd');
    expect(wrapped('a\n\nlonger-than-that b', 3)).toBe('a\n\nlonger-than-that\nb');
  });
});
