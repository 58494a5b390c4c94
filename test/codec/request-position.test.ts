import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import type { RecordHeaders } from '../../src/codec/request-headers.ts';
import {
  ADOPTION_HEADER,
  adoptionHeaders,
  believable,
  type CommittedPosition,
  decodeAnswered,
  decodePosition,
  EVERY_TOPIC,
  encodeAnswered,
  encodeMetadata,
  isAdoption,
  MAX_DEBTOR_SPANS,
  REPLAY_HEADER,
  readReplay,
  replayRecord,
  topicHash,
} from '../../src/codec/request-position.ts';

const last = { offset: 41, timestampMs: 1_700_000_000_000, digest: 'ab+/9=' };

const span = { topic: topicHash('id.replies.orders'), prefix: 0, from: 7, until: 9 };

describe('the metadata of a committed offset', () => {
  it.each([
    { next: 5, small: 5 },
    { next: 5, small: 42 },
    { next: 42, small: 42, last },
    { next: 5, small: 42, last },
    { next: 5, small: 42, debtors: [span] },
    { next: 5, small: 42, last, debtors: [span, { topic: 2 ** 48 - 1, prefix: 0, from: 41, until: 42 }] },
    { next: 5, small: 42, debtors: [{ topic: 7, prefix: 11, from: 5, until: 42 }, span] },
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
    expect(decodePosition(43, encodeMetadata({ next: 42, small: 42, last }))).toBeUndefined();
  });

  it('of an earlier release, which left out what the offset says, is that of a worker', () => {
    expect(decodePosition(42, '{"last":[41,1700000000000,"ab+/9="]}')).toEqual({ next: 42, small: 42, last });
  });

  it('with as many spans as there may be is shorter than brokers allow', () => {
    const far = 2 ** 53 - 1;
    const longest = { topic: EVERY_TOPIC, from: far, until: far, prefix: 249 };
    const debtors = Array.from({ length: MAX_DEBTOR_SPANS }, () => longest);
    const metadata = encodeMetadata({ next: far - 1, small: far, last, debtors });
    expect([decodePosition(far - 1, metadata)?.debtors, metadata.length < 4_096]).toEqual([debtors, true]);
  });

  it('of 0.3, which lets others wait than this release, has all wait that it has not passed', () => {
    const debtors = [{ topic: EVERY_TOPIC, prefix: 0, from: 5, until: 42 }];
    expect(decodePosition(5, '{"small":42}')).toEqual({ next: 5, small: 42, debtors });
    expect(decodePosition(42, '{"small":42}')).toEqual({ next: 42, small: 42 });
  });

  it.each(['[,[1,2,3,4]]', '[[1,2,3,4],]', '[[1,2,3]]', '[1]', '[[1,2,3,4,5]]'])(
    'with spans that no worker wrote, %s, is not that of a worker',
    (spans) => {
      expect(decodePosition(5, `{"small":42,"debtors":${spans}}`)).toBeUndefined();
    },
  );

  it('where anything waits is of another kind for 0.3, which serves all from the offset on', () => {
    const of03 = /^\{(?:"small":\d{1,16})?,?(?:"last":\[\d{1,16},\d{1,16},"[\w+/=]{1,64}"\])?\}$/;
    const isKnown = (position: CommittedPosition) => of03.test(encodeMetadata({ ...position, last }));
    expect([42, 41].map((next) => isKnown({ next, small: 42 }))).toEqual([true, false]);
    expect(isKnown({ next: 5, small: 42, debtors: [span] })).toBe(false);
  });

  it('has no last record beyond what is answered', () => {
    const beyond = { ...last, offset: 60 };
    expect(decodePosition(5, encodeMetadata({ next: 5, small: 42, last: beyond }))).toEqual({ next: 5, small: 42 });
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

describe('an adoption', () => {
  it('counts at the offset for which it was written, alone', () => {
    for (const place of [0, 7, Number.MAX_SAFE_INTEGER]) {
      const [header] = Object.values(adoptionHeaders(place));
      for (const headers of [adoptionHeaders(place), { [ADOPTION_HEADER]: Buffer.from(String(header)) }])
        expect([0, 7, Number.MAX_SAFE_INTEGER].filter((offset) => isAdoption({ offset, key: null, headers }))).toEqual([
          place,
        ]);
    }
  });

  it.each<[string, RecordHeaders[string]]>([
    ['empty', ''],
    ['two offsets', '1 2'],
    ['padded', '02'],
    ['no value', null],
    ['there twice', ['2', '2']],
  ])('is not read from a header that is %s: LEDGER_UNREADABLE', (_, said) => {
    expect(() => isAdoption({ offset: 2, key: null, headers: { [ADOPTION_HEADER]: said } })).toThrow(
      expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
    );
  });

  it('is nothing that a record with a key says, nor one without the header', () => {
    expect(isAdoption({ offset: 2, key: Buffer.from('k'), headers: adoptionHeaders(2) })).toBe(false);
    expect(isAdoption({ offset: 2, key: null })).toBe(false);
  });
});

describe('the statement of a replay', () => {
  it.each([0, 1, 42, Number.MAX_SAFE_INTEGER])('says below which offset all was answered: %d', (below) => {
    for (const offset of [0, 7, Number.MAX_SAFE_INTEGER]) {
      const record = replayRecord(below, offset);
      expect(readReplay({ offset, ...record })).toBe(below);
      const readBack = { [REPLAY_HEADER]: Buffer.from(record.headers[REPLAY_HEADER]) };
      expect(readReplay({ offset, key: null, headers: readBack })).toBe(below);
    }
  });

  it('is void at any other place than that for which it was written', () => {
    for (const offset of [0, 6, 8]) expect(readReplay({ offset, ...replayRecord(42, 7) })).toBeUndefined();
  });

  it.each([-1, 1.5, 2 ** 53, Number.NaN])('is not written for %d, which is no offset', (none) => {
    expect(() => replayRecord(none, 7)).toThrow(RangeError);
    expect(() => replayRecord(7, none)).toThrow(RangeError);
  });

  it('is a marker that says nothing, for workers that know no such statement', () => {
    expect(decodeLedgerEntry(replayRecord(42, 7).value)).toEqual({ kind: 'marker', end: 0, through: -1 });
  });

  it.each<[string, RecordHeaders[string]]>([
    ['empty', ''],
    ['one offset', '42'],
    ['three offsets', '1 2 3'],
    ['not decimal', '0x10 2'],
    ['padded', '042 2'],
    ['negative', '-1 2'],
    ['beyond 2^53', '1 9007199254740992'],
    ['no value', null],
    ['there twice', ['1 1', '2 2']],
    ['not UTF-8', Buffer.from([0xff])],
  ])('is not read from a header that is %s: LEDGER_UNREADABLE', (_, said) => {
    expect(() => readReplay({ offset: 2, key: null, headers: { [REPLAY_HEADER]: said } })).toThrow(
      expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
    );
  });

  it('is nothing that a record with a key says, nor one without the header', () => {
    expect(readReplay({ offset: 2, key: Buffer.from('k'), headers: { [REPLAY_HEADER]: 'x' } })).toBeUndefined();
    expect(readReplay({ offset: 2, key: null, headers: { 'idalloc-answered': '7 {}' } })).toBeUndefined();
    expect(readReplay({ offset: 2, key: null })).toBeUndefined();
  });
});
