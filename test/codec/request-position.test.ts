import { describe, expect, it } from 'vitest';
import {
  believable,
  decodeAnswered,
  decodePosition,
  encodeAnswered,
  encodeMetadata,
} from '../../src/codec/request-position.ts';

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

  it.each(['', '{}', 'set by hand', '{}x', '{"small":"6"}', '{"small":-6}', '{"last":[1,2]}', '{"other":1}'])(
    'of another tool, %j, is not that of a worker',
    (metadata) => {
      expect(decodePosition(5, metadata)).toBeUndefined();
    },
  );

  it('of a worker does not make another offset that of a worker: a tool may keep it and move the offset on', () => {
    expect(decodePosition(43, encodeMetadata({ small: 42, last }))).toBeUndefined();
  });

  it('of an earlier release, which left out what the offset says, is that of a worker', () => {
    expect(decodePosition(42, '{"last":[41,1700000000000,"ab+/9="]}')).toEqual({ next: 42, small: 42, last });
  });

  it('has no last record beyond what is answered', () => {
    const beyond = { ...last, offset: 60 };
    expect(decodePosition(5, encodeMetadata({ small: 42, last: beyond }))).toEqual({ next: 5, small: 42 });
  });
});

describe('what a ledger entry says is answered', () => {
  it.each([
    { next: 5, small: 5 },
    { next: 5, small: 42, last },
  ])('is the position %o', (position) => {
    expect(decodeAnswered(encodeAnswered(position))).toEqual(position);
  });

  it.each(['', '5', '5 ', '5 {}', '-5 {"small":5}', '5 {"small":4}'])('is nothing in %j', (text) => {
    expect(decodeAnswered(text)).toBeUndefined();
  });
});

describe('an offset that no worker committed', () => {
  const answered = { next: 10, small: 20, last };

  it.each([
    ['is not believed beyond what is answered', 30, answered, answered],
    ['is not believed where large requests still wait', 15, answered, answered],
    ['is believed where it was moved back', 9, answered, { next: 9, small: 9 }],
    ['says nothing if nothing shows what is answered', 9, undefined, undefined],
  ])('%s', (_, offset, known, expected) => {
    expect(believable(offset, known)).toEqual(expected);
  });
});
