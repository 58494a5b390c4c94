import { describe, expect, it } from 'vitest';
import { decodePosition, encodeMetadata } from '../../src/codec/request-position.ts';

const last = { offset: 41, timestampMs: 1_700_000_000_000, digest: 'ab+/9=' };

describe('the metadata of a committed offset', () => {
  it.each([
    { next: 5, small: 5 },
    { next: 5, small: 42 },
    { next: 42, small: 42, last },
    { next: 5, small: 42, last },
  ])('returns the position %o', (position) => {
    expect(decodePosition(position.next, encodeMetadata(position))).toEqual(position);
  });

  it.each(['', 'set by hand', '{}x', '{"small":"6"}', '{"small":-6}', '{"last":[1,2]}', '{"other":1}'])(
    'of another tool, %j, says nothing: everything from the offset on is served',
    (metadata) => {
      expect(decodePosition(5, metadata)).toEqual({ next: 5, small: 5 });
    },
  );

  it('does not move the position of small requests below the offset, nor the last record beyond it', () => {
    expect(decodePosition(50, encodeMetadata({ next: 5, small: 42, last: { ...last, offset: 60 } }))).toEqual({
      next: 50,
      small: 50,
    });
  });
});
