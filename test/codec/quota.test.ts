import { describe, expect, it } from 'vitest';
import { parseQuotas } from '../../src/codec/quota.ts';

describe('quotas as text', () => {
  it('are lines or parts between semicolons, with comments', () => {
    const text =
      '# ours\nid.replies.a. 1000 5 7; id.replies.b. - 7 # b asks little\r\n\n  id.replies.   20   - - \n c. - - 9';
    expect(parseQuotas(text)).toEqual([
      { prefix: 'id.replies.a.', idsPerSecond: 1_000, requestsPerSecond: 5, replyBytesPerSecond: 7 },
      { prefix: 'id.replies.b.', requestsPerSecond: 7 },
      { prefix: 'id.replies.', idsPerSecond: 20 },
      { prefix: 'c.', replyBytesPerSecond: 9 },
    ]);
  });

  it.each([
    ['a 1000 5', 15_000],
    ['a 1000 -', 1_010_000],
    ['a 10 1000', 10_100],
    ['a - 5', undefined],
    ['a 1000 5 -', undefined],
  ])('of %s allow %s bytes of replies, as many as the replies within the other limits may have', (line, bytes) => {
    expect(parseQuotas(line)[0]?.replyBytesPerSecond).toBe(bytes);
  });

  it('may be empty', () => {
    expect(parseQuotas(' ;\n# nothing\n')).toEqual([]);
  });

  it.each([
    ['a 1', 'one rate'],
    ['a 1 2 3 4', 'four rates'],
    ['a - -', 'no bound at all'],
    ['a - - -', 'no bound, of three'],
    ['a 1 1 0', 'no bytes'],
    ['a 0 1', 'a rate of nothing'],
    ['a 1e3 1', 'digits of another kind'],
    ['a -5 1', 'a rate below nothing'],
    ['a/b 1 1', 'no topic name'],
    [`${'a'.repeat(250)} 1 1`, 'a name that is too long'],
  ])('are rejected with the line: %s (%s)', (line) => {
    expect(() => parseQuotas(`ok 1 1\n${line}`)).toThrow(line.slice(0, 100));
  });

  it('are rejected when a prefix has two, or when there are too many', () => {
    expect(() => parseQuotas('a 1 1; a 2 2')).toThrow("two quotas for 'a'");
    expect(parseQuotas(Array.from({ length: 1_000 }, (_, i) => `a${i} 1 1`).join('\n'))).toHaveLength(1_000);
    expect(() => parseQuotas(Array.from({ length: 1_001 }, (_, i) => `a${i} 1 1`).join('\n'))).toThrow(
      'more than 1000',
    );
  });
});
