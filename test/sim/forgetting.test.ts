import { describe, expect, it } from 'vitest';
import { decidedAgainst, decidedThoughKnown, falseClaim, mayBeForgotten } from './forgetting.ts';
import { type Entry, emptyHistory, type History, type Mark, type SentRequest } from './history.ts';
import { FINE } from './setting.ts';

const batch = {} as Entry['batch'];
const batchFrom = (first: bigint) => ({ ranges: [{ first }] }) as unknown as Entry['batch'];
const end = (order: number): Pick<Entry, 'order' | 'partition'> => ({ order, partition: 0 });

/** A ledger partition; each record is numbered by its offset, and landed in the order of offsets. */
function ledger(
  records: readonly (Partial<Entry> & { readonly end: number })[],
  trims: History['trims'] = [],
): History {
  const marks = records.map((record, offset): Mark => {
    return { ...end(offset + 10), offset, through: -1, appendedAtMs: 1_000 * offset, ...record };
  });
  const entries = marks.flatMap((mark): Entry[] => {
    const { correlationId, requestOffset } = mark as Partial<Entry>;
    if (correlationId === undefined) return [];
    return [
      {
        ...mark,
        correlationId,
        requestOffset: requestOffset ?? 0,
        count: 1,
        replyTopic: 'r',
        batch,
        process: 'p',
        sent: 1,
      },
    ];
  });
  return { ...emptyHistory(), marks, entries, trims };
}

const trimmed = (low: number, order = 50) => [{ ...end(order), low }];
const request = (offset: number, correlationId = 'new') => ({
  order: 1,
  tag: 'r1',
  timestampMs: 0,
  partition: 0,
  offset,
  correlationId,
  count: 1,
  replyTopic: 'r',
});
const forgets = (history: History, offset: number, correlationId?: string, order = 100): boolean =>
  mayBeForgotten(history, request(offset, correlationId), order);

describe('the set of requests that may be FORGOTTEN', () => {
  const two = [
    { correlationId: 'a', requestOffset: 4, end: 0 },
    { correlationId: 'b', requestOffset: 7, end: 1, through: 4 },
    { correlationId: 'c', requestOffset: 9, end: 1, through: 4 },
  ];

  it('has requests of slower lanes below what a copy knew when it was emptied, since retention overtook it', () => {
    const history = ledger(
      [
        { correlationId: 'a', requestOffset: 4, end: 0 },
        { end: 1, through: 4 },
        { correlationId: 'b', requestOffset: 9, end: 2, through: 4 },
      ],
      trimmed(1, 11),
    );
    const emptied = { ...end(13), process: 'p', what: 'emptied', logEnd: 3 } as const;
    const forgetsOf = (fields: Partial<SentRequest>, offset: number, copy = emptied) =>
      mayBeForgotten({ ...history, copies: [copy] }, { ...request(offset), ...fields }, 100);
    const slower = [{ count: FINE.maxCount }, { isDense: true }, { sequence: 's' }];
    expect(slower.map((fields) => forgetsOf(fields, 8))).toEqual([true, true, true]);
    expect(slower.map((fields) => forgetsOf(fields, 10))).toEqual([false, false, false]);
    expect(slower.map((fields) => forgetsOf(fields, 8, { ...emptied, order: 12 }))).toEqual([false, false, false]);
    expect(forgetsOf({}, 8)).toBe(false);
  });

  it('is empty while the ledger is whole', () => {
    expect([0, 4, 9].map((offset) => forgets(ledger(two), offset))).toEqual([false, false, false]);
  });

  it('has every request not above those of lost entries, and those that the first anchor covers', () => {
    const lost = ledger(two, trimmed(1));
    expect([4, 5, 7].map((offset) => forgets(lost, offset))).toEqual([true, false, false]);
    const covered = ledger([...two, { end: 3, through: 9 }], trimmed(3));
    expect([9, 10].map((offset) => forgets(covered, offset))).toEqual([true, false]);
  });

  it('has no requests that only a later anchor covers', () => {
    const later = ledger([{ end: 0 }, { end: 1, through: 2 }, { end: 2, through: 8 }], trimmed(1));
    expect([2, 3].map((offset) => forgets(later, offset))).toEqual([true, false]);
  });

  it('has requests whose first entry was written by a worker that had not read up to the start', () => {
    expect(forgets(ledger(two, trimmed(2)), 20, 'c')).toBe(true);
    expect(forgets(ledger(two, trimmed(1)), 20, 'c')).toBe(false);
    expect(forgets(ledger(two, trimmed(1)), 20, 'b')).toBe(false);
  });

  it('is judged at the time of the reply', () => {
    expect(forgets(ledger(two, trimmed(1)), 4, 'new', 50)).toBe(false);
  });
});

describe('the request offset that a ledger record claims', () => {
  it('may include all requests if its writer began after the lost head and found no anchor', () => {
    const lonely = ledger([{ end: 0 }, { end: 0 }, { end: 2, through: 30 }], trimmed(1, 11));
    expect(falseClaim(lonely)).toBeUndefined();
    const early = ledger([{ end: 0 }, { end: 0 }, { end: 2, through: 30 }], trimmed(1, 50));
    expect(falseClaim(early)).toMatchObject({ offset: 2 });
    const anchored = ledger([{ end: 0 }, { end: 1 }, { end: 2, through: 30 }], trimmed(1, 11));
    expect(falseClaim(anchored)).toMatchObject({ offset: 2 });
  });

  it('may include only what its writer had read', () => {
    const read = { correlationId: 'a', requestOffset: 4, end: 0 };
    expect(falseClaim(ledger([read, { end: 1, through: 4 }]))).toBeUndefined();
    expect(falseClaim(ledger([read, { end: 0, through: 4 }]))).toMatchObject({ offset: 1 });
    expect(falseClaim(ledger([read, { end: 1, through: 5 }]))).toMatchObject({ offset: 1 });
  });
});

describe('a second decision by the worker that had replied with the first', () => {
  const entryOf = (sent: number, first: bigint): Entry => {
    const [entry] = ledger([{ correlationId: 'a', end: 0 }]).entries as [Entry];
    return { ...entry, sent, batch: batchFrom(first) };
  };
  const reply = { process: 'p', partition: 0, offset: 0, key: 'a', sent: 5, reply: { batch: batchFrom(1n) } };
  const decidedTwice = (copies: History['copies'], decider = 'p'): History => {
    const replies = [reply as unknown as History['replies'][number]];
    const first = { ...entryOf(1, 1n), process: decider };
    return { ...emptyHistory(), replies, copies, entries: [first, entryOf(9, 2n)] };
  };
  const dropped = (order: number) => ({ ...end(order), process: 'p', what: 'dropped' as const, logEnd: 0 });

  it('is a fault, unless it has dropped its copy in between', () => {
    expect(decidedAgainst(decidedTwice([]))).toMatchObject({ sent: 9 });
    expect(decidedAgainst(decidedTwice([dropped(0), dropped(10)]))).toMatchObject({ sent: 9 });
    expect(decidedAgainst(decidedTwice([dropped(7)]))).toBeUndefined();
  });

  it('may have been replied to after the copy was dropped, by a part that was decided before', () => {
    expect(decidedAgainst(decidedTwice([dropped(4)]))).toBeUndefined();
    // It was read, so after the copy was opened again.
    expect(decidedAgainst(decidedTwice([dropped(4)], 'q'))).toMatchObject({ sent: 9 });
  });
});

describe('a second decision by a worker whose copy had the first', () => {
  /**
   * Of three entries of a key, 1 decides, for this request; the worker has read that 2 lost, and then writes the last
   * for the same request.
   */
  const then = (first: bigint, decidedFor: number): History => {
    const sent = { correlationId: 'a', requestOffset: 4, end: 0 };
    const { entries } = ledger([{ ...sent, requestOffset: decidedFor }, sent, { ...sent, end: 2 }]);
    const batches = [1n, 2n, first];
    const learned = { ...end(5), process: 'p', ...sent, offset: 1, first: 2n };
    return {
      ...emptyHistory(),
      learned: [learned],
      entries: entries.map((entry, i) => ({ ...entry, sent: 10 * i, batch: batchFrom(batches[i] as bigint) })),
    };
  };

  it('is a fault', () => {
    for (const decidedFor of [3, 4]) expect(decidedThoughKnown(then(3n, decidedFor))).toMatchObject({ offset: 2 });
  });

  it('is none if the entry renews the decision of another request', () => {
    expect(decidedThoughKnown(then(1n, 3))).toBeUndefined();
    expect(decidedThoughKnown(then(1n, 4))).toMatchObject({ offset: 2 });
  });
});
