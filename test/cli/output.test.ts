import { describe, expect, test } from 'vitest';
import { terminalText } from '../../src/cli/terminal.ts';
import { printable, visible } from '../../src/core/visible.ts';
import { cli } from './harness.ts';

/**
 * One of each kind: escape, bell, a return to the line's beginning, DEL, C1's own escape, a turn to the left, an
 * isolate, no width, a joiner, a mark at the start, a tag.
 */
const UNSEEN = [
  '\u001b',
  '\u0007',
  '\r',
  '\u007f',
  '\u009b',
  '\u0085',
  '\u202e',
  '\u2066',
  '\u200b',
  '\u200d',
  '\ufeff',
  '\u{e0041}',
  '\u00ad',
  '\u2028',
];
/** Fillers and selectors that no list of controls has: Unicode says that they are not shown. */
const IGNORABLE = ['\u115f', '\u3164', '\uffa0', '\u034f', '\ufe0f', '\u{e01ef}', '\u2065', '\u17b4'];

describe('text that a terminal would execute or hide', () => {
  test.each([...UNSEEN, ...IGNORABLE])('is shown as JSON writes it: %j', (character) => {
    const shown = visible(`a${character}b`);
    expect(shown).toMatch(/^a(\\u[0-9a-f]{4})+b$/);
    expect(JSON.parse(`"${shown}"`)).toBe(`a${character}b`);
    expect(printable(`a${character}b`)).toBe(shown);
  });

  test('is printed without its effect, from any source', async () => {
    const { err, code } = await cli(['decode', `1\u202e2\u009b31m`]);
    expect(code).not.toBe(0);
    expect(err).toContain(String.raw`1\u202e2\u009b31m`);
  });

  test('is escaped in JSON, which keeps its meaning', async () => {
    const principal = 'User:a\u202eb\u200bc';
    const args = ['topics', 'acls', '--principal', principal, '--role', 'worker', '--json'];
    const { out, code } = await cli(args, { KAFKA_BROKERS: 'k:1' });
    expect([code, JSON.parse(out).principal]).toEqual([0, principal]);
    expect(out).not.toMatch(/[\u200b\u202e]/);
  });

  test('is the only text that is escaped', () => {
    const text = 'Größe 名前 🙂 \t\n';
    expect([visible(text), terminalText(text)]).toEqual([text, text]);
    expect(printable('Größe 名前')).toBe('Größe 名前');
  });

  test('within a line can begin no other', () => {
    expect(printable('a\nb\tc')).toBe(String.raw`a\u000ab\u0009c`);
  });
});
