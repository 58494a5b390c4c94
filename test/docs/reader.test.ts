import { describe, expect, test } from 'vitest';
import { anchorsOf, blockCommands, inlineCode, linksOf } from '../support/docs.ts';
import { misfit } from '../support/shown-output.ts';

describe('the reader of pages', () => {
  const markdown = [
    'Text with `npm\nstart`.',
    '```sh',
    'export A=1   # a comment',
    '# only a comment',
    'idalloc worker',
    '```',
    '```js',
    'code();',
    '```',
    '```console',
    'what the code printed',
    '```',
    '```console',
    '$ one',
    'a',
    'b',
    '$ two',
    '```',
    '1. In a list:',
    '',
    '   ```sh',
    '   three',
    '   ```',
  ].join('\n');

  test('has commands in their order, with line and output', () => {
    expect(blockCommands(markdown)).toEqual([
      { line: 4, command: 'export A=1', output: undefined },
      { line: 6, command: 'idalloc worker', output: undefined },
      { line: 15, command: 'one', output: ['a', 'b'] },
      { line: 18, command: 'two', output: [] },
      { line: 23, command: 'three', output: undefined },
    ]);
  });

  test('joins code in the text to one line, and leaves out blocks', () => {
    expect(inlineCode(markdown)).toEqual(['npm start']);
  });

  test('refuses output without a command', () => {
    expect(() => blockCommands('```console\nx\n```')).toThrow(/line 2/);
  });

  test('refuses a block that does not end', () => {
    expect(() => blockCommands('```sh\nx')).toThrow(/line 1/);
  });

  test('has the links of the text, without those of code and of other sites', () => {
    const text = 'See [a](b.md#c), [d](https://example.com) and `[e](f.md)`.\n```text\n[g](h.md)\n```\n![i](j.png)';
    expect(linksOf(text)).toEqual(['b.md#c', 'j.png']);
  });

  test('builds anchors as GitHub does', () => {
    expect(anchorsOf('# `A_B`: c, d\n## Same\n## Same\n## [Link](x.md) here')).toEqual([
      'a_b-c-d',
      'same',
      'same-1',
      'link-here',
    ]);
  });
});

describe('shown output', () => {
  test.each([
    ['another time, ID and place', ['7 at 2026-06-02T16:05:00.000Z, 0:3'], ['55325 at 2027-01-01T00:00:00.001Z, 1:17']],
    ['an ID that is 0', ['worker ID 25 was'], ['worker ID 0 was']],
    ['other hosts', ['on http://etcd-1.lan:2379'], ['on http://127.0.0.1:4001']],
    ['more lines in the place of …', ['a', '…', 'b'], ['a', 'x', 'y', 'b']],
    ['no lines in the place of …', ['a', '…', 'b'], ['a', 'b']],
    ['other text in the place of … within a line', ['{"ids":[…],"x":1}'], ['{"ids":[1,2],"x":7}']],
    ['another width', ['a    b'], ['a  b']],
  ])('fits %s', (_, shown, real) => {
    expect(misfit(shown, real)).toBeUndefined();
  });

  test.each([
    ['another word', ['2 replies'], ['2 answers']],
    ['a line too many', ['a'], ['a', 'b']],
    ['a line too few', ['a', 'b'], ['a']],
    ['something where the page has nothing', ['0 losers'], ['3 losers']],
    ['nothing where the page has something', ['3 replies'], ['0 replies']],
    ['text that only begins the same', ['a'], ['ab']],
  ])('does not fit %s', (_, shown, real) => {
    expect(misfit(shown, real)).toContain('the page shows');
  });

  test('must be equal byte for byte where an exact match is required', () => {
    expect(misfit(['a  1'], ['a  1'], true)).toBeUndefined();
    expect(misfit(['a  1'], ['a  2'], true)).toBeDefined();
    expect(misfit(['a  1'], ['a 1'], true)).toBeDefined();
  });
});
