import { describe, expect, test } from 'vitest';
import { encodeIdReply } from '../../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../../src/codec/id-request.ts';
import { EMPTY_MARKER, requestHash } from '../../../src/codec/ledger-entry.ts';
import { HOPS, ORIGIN } from '../../../src/codec/request-headers.ts';
import { ADOPTION_HEADER, REPLAY_HEADER } from '../../../src/codec/request-position.ts';
import { BASE_MS, DAY_MS, HOUR_MS, REPLIES, Topics } from './history.ts';

/** The codes of what is found in a history in which workers have answered everything. */
function codesOf(write: (topics: Topics) => void, partitions?: number): readonly string[] {
  const topics = new Topics(partitions);
  write(topics);
  return topics.audit({ answeredBelow: 1_000 }).codes;
}

describe('a right history has no finding, and counts every request', () => {
  test('with batches, refusals, and dead letters of one or of several', () => {
    const topics = new Topics();
    topics.serve('a');
    topics.refuse(topics.ask('b'), 'EXPIRED');
    topics.letter(topics.ask('c', { value: Buffer.from('junk') }));
    topics.letter([1, 2, 3].map((i) => topics.ask(`d${i}`, { value: Buffer.from('junk') })));
    topics.letter(topics.ask('e', { replyTopic: 'id.replies.nowhere' }), 'REPLY_UNDELIVERABLE');
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({
      codes: [],
      counts: { requests: 7, answered: 7, refused: 1, deadLetters: 5, waiting: 0, unjudged: new Map() },
    });
  });

  test('while requests wait that are younger than the grace time', () => {
    const topics = new Topics();
    topics.serve('a');
    topics.decide(topics.ask('b'));
    topics.ask('c');
    expect(topics.audit({ answeredBelow: 1, nowMs: HOUR_MS / 2 })).toMatchObject({
      codes: [],
      counts: { requests: 3, answered: 1, waiting: 2 },
    });
  });

  test('while workers catch up after a pause: what is decided just now has its reply next', () => {
    const topics = new Topics();
    topics.decide(topics.ask('a'), { atMs: 3 * HOUR_MS });
    expect(topics.audit({ nowMs: 3 * HOUR_MS })).toMatchObject({ codes: [], counts: { waiting: 1 } });
  });

  test('where equal requests share a reply, and requests of a framework have a correlation ID for each try', () => {
    const topics = new Topics();
    const asked = topics.ask('a');
    const again = topics.ask('a');
    const batch = topics.decide(asked);
    topics.reply(asked, batch);
    const first = topics.ask('try-1', { requestId: 'order' });
    const second = topics.ask('try-2', { requestId: 'order' });
    const own = topics.decide({ ...first, id: 'order' });
    topics.reply({ ...first, id: 'order' }, own, { correlationId: 'try-1' });
    expect(topics.audit({ answeredBelow: 1_000 }).codes, 'the second try').toEqual(['MISSING_REPLY']);
    topics.reply({ ...second, id: 'order' }, own, { correlationId: 'try-2' });
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { requests: 4, answered: 4 } });
    expect(again.record.offset).toBe(1);
  });

  test('where a request under a used ID gets CONFLICT', () => {
    const topics = new Topics();
    topics.serve('a');
    topics.refuse(topics.ask('a', { count: 5 }), 'CONFLICT');
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { answered: 2, refused: 1 } });
  });

  test('where a request is forwarded to its home: it counts once, and its copy answers it', () => {
    const topics = new Topics(2);
    const home = topics.homeOf('a');
    const first = topics.ask('a', { partition: 1 - home });
    const origin = `${1 - home}/${first.record.offset}/${first.record.timestampMs}`;
    const headers = { 'idalloc-origin': Buffer.from(origin), 'idalloc-hops': Buffer.from('1') };
    const copy = topics.ask('a', { headers });
    expect(topics.audit({ answeredBelow: 0 })).toMatchObject({ codes: [], counts: { requests: 1, waiting: 1 } });
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: ['MISSING_REPLY'], counts: { requests: 1 } });
    const onlyForwarded = [0, 1].map((partition) => (partition === home ? 0 : 1_000));
    expect(topics.audit({ answeredBelow: onlyForwarded })).toMatchObject({ codes: [], counts: { waiting: 1 } });
    topics.reply(copy, topics.decide(copy));
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { requests: 1, answered: 1 } });
  });

  test('where a broker whose clock was ahead has a request that a quota refused to answer again', () => {
    const topics = new Topics();
    const first = topics.ask('a');
    topics.decide(first);
    topics.refuse(topics.ask('a', { atMs: 365 * DAY_MS }), 'QUOTA_EXCEEDED', 10);
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { answered: 2, refused: 2 } });
  });

  test('where a request was forgotten at about the time when another one under its ID was decided', () => {
    const topics = new Topics();
    topics.ask('try', { requestId: 'a' });
    const key = Buffer.from('try');
    const value = encodeIdReply({ correlationId: key, error: { code: 'FORGOTTEN', message: 'no' } }, 'RANGES');
    const headers = { 'idalloc-request-id': Buffer.from('a') };
    topics.append(REPLIES, 0, { key, value, headers, timestampMs: BASE_MS + 110 });
    topics.serve('a', { atMs: 100 });
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { answered: 2, refused: 1 } });
  });

  test('where a request was refused before another worker had its entry in the ledger', () => {
    const topics = new Topics();
    const asked = topics.ask('a');
    topics.refuse(asked, 'EXPIRED');
    topics.decide(asked, { atMs: 100 });
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { answered: 1, refused: 1 } });
  });
});

describe('a request that was refused in its partition, before one under its ID was served in another', () => {
  const codes = (own: string) =>
    codesOf((topics) => {
      topics.refuse(topics.ask('a', { headers: { kafka_replyPartition: Buffer.from(own) } }), 'QUOTA_EXCEEDED');
      const later = topics.ask('a', { headers: { kafka_replyPartition: Buffer.from('1') }, atMs: 100 });
      topics.reply(later, topics.decide(later), { partition: 1 });
    });

  test('has its answer, as where a sequence is created after a client has asked for its numbers', () => {
    expect(codes('0')).toEqual([]);
  });

  test('has none if the refusal is in another partition than it names', () => {
    expect(codes('2')).toEqual(['MISMATCH']);
  });
});

describe('a request without an answer', () => {
  test('is UNANSWERED once it is older than the grace time, whoever should have read it', () => {
    const topics = new Topics();
    topics.ask('a');
    topics.ask('b', { value: Buffer.from('junk') });
    const { codes, found, counts } = topics.audit({ nowMs: HOUR_MS + 1 });
    expect(codes).toEqual(['UNANSWERED', 'UNANSWERED']);
    expect(found[0]?.locations).toMatchObject([{ source: 'request', topic: 'requests', partition: 0 }]);
    expect(counts).toMatchObject({ requests: 2, answered: 0 });
  });

  test('is MISSING_REPLY if workers have answered it, or decided it long ago', () => {
    expect(codesOf((topics) => void topics.ask('a'))).toEqual(['MISSING_REPLY']);
    expect(codesOf((topics) => void topics.decide(topics.ask('a')))).toEqual(['MISSING_REPLY']);
    expect(codesOf((topics) => void topics.ask('a', { value: Buffer.from('junk') }))).toEqual(['MISSING_REPLY']);
    const topics = new Topics();
    topics.decide(topics.ask('a'));
    expect(topics.audit({ nowMs: 2 * HOUR_MS }).codes).toEqual(['MISSING_REPLY']);
  });

  test('is found in each of many, though all replies are gone', () => {
    const ids = Array.from({ length: 50 }, (_, i) => `id-${i}`);
    const codes = codesOf((topics) => {
      for (const id of ids) topics.decide(topics.ask(id));
    });
    expect(codes).toEqual(ids.map(() => 'MISSING_REPLY'));
  });

  test('is not answered by what an earlier request under its ID was told, before it was sent and decided', () => {
    const topics = new Topics();
    topics.refuse(topics.ask('a'), 'QUOTA_EXCEEDED');
    const again = topics.ask('a', { atMs: HOUR_MS });
    const batch = topics.decide(again, { atMs: HOUR_MS });
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({
      codes: ['MISSING_REPLY'],
      counts: { requests: 2, answered: 1, refused: 1 },
    });
    topics.reply(again, batch);
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { answered: 2 } });
  });

  test('is not answered by the reply or the dead letter of another request', () => {
    expect(
      codesOf((topics) => {
        topics.serve('a');
        topics.decide(topics.ask('b'));
        topics.letter(topics.ask('c', { value: Buffer.from('junk') }));
        topics.ask('d', { value: Buffer.from('junk') });
      }),
    ).toEqual(['MISSING_REPLY', 'MISSING_REPLY']);
  });

  test('is not answered by a letter about a record that was at its offset in an earlier life of the log', () => {
    expect(
      codesOf((topics) => {
        const asked = topics.ask('a', { value: Buffer.from('junk') });
        topics.letter({ ...asked, record: { ...asked.record, timestampMs: BASE_MS - HOUR_MS } });
      }),
    ).toEqual(['MISSING_REPLY']);
  });
});

describe('what does not match its request', () => {
  test('is an entry with another hash, or in another partition, than its own fields say', () => {
    expect(
      codesOf((topics) => {
        const asked = topics.ask('a');
        topics.reply(asked, topics.decide(asked, { hash: requestHash(4, REPLIES) }));
      }),
    ).toEqual(['MISMATCH', 'MISMATCH']); // against itself, and against its request
    const topics = new Topics(2);
    const asked = topics.ask('a');
    topics.reply(asked, topics.decide(asked, { partition: 1 - asked.record.partition }));
    expect(topics.audit({ answeredBelow: 1_000 }).codes).toEqual(['MISMATCH']);
  });

  test('is an entry with another count than the request for which it was written, and so is its reply', () => {
    const codes = codesOf((topics) => {
      const asked = topics.ask('a', { count: 3 });
      topics.reply(asked, topics.decide({ ...asked, count: 2 }));
    });
    expect(codes).toEqual(['MISMATCH', 'MISMATCH']);
  });

  test('is a reply with another number of numbers, of its sequence and of no other', () => {
    const key = Buffer.from('a');
    const told = (wanted: string | undefined, given: string) =>
      codesOf((topics) => {
        const sequence = wanted === undefined ? {} : { sequence: wanted };
        topics.ask('a', { value: encodeIdRequest({ count: 2, correlationId: key, replyTopic: REPLIES, ...sequence }) });
        const numbers = { sequence: given, first: 1, count: 3, step: 1, format: '' };
        const value = encodeIdReply({ correlationId: key, numbers }, 'RANGES');
        topics.append(REPLIES, 0, { key, value, timestampMs: BASE_MS });
      });
    expect(told('invoices', 'invoices')).toEqual(['UNDECIDED', 'MISMATCH']);
    expect(told('invoices', 'tickets')).toEqual(['UNDECIDED', 'MISSING_REPLY']);
    expect(told(undefined, 'invoices')).toEqual(['UNDECIDED', 'MISSING_REPLY']);
  });

  test('is not an entry of an earlier life of the request log, in which another request was at its offset', () => {
    const topics = new Topics();
    const asked = topics.ask('a', { count: 5, atMs: HOUR_MS });
    topics.decide({ ...asked, count: 3 });
    topics.refuse(asked, 'CONFLICT');
    expect(topics.audit({ answeredBelow: 1_000 })).toMatchObject({ codes: [], counts: { refused: 1 } });
  });

  test('is not an entry that was copied to another offset, with requests that were copied to others', () => {
    const codes = (end: number) =>
      codesOf((topics) => {
        const asked = topics.ask('a', { count: 5 });
        topics.decide({ ...asked, count: 3 }, { end });
        topics.refuse(asked, 'CONFLICT');
      });
    expect(codes(0)).toEqual(['MISMATCH']);
    expect(codes(1), 'what the log lacks is not stated').toEqual(['UNREADABLE']);
  });

  test('is not an entry from before an adoption, whose request was in another topic at this offset', () => {
    const codes = (place: number) =>
      codesOf((topics) => {
        const asked = topics.ask('a', { count: 5 });
        topics.decide({ ...asked, count: 3 });
        topics.refuse(asked, 'CONFLICT');
        const headers = { [ADOPTION_HEADER]: Buffer.from(String(place)) };
        topics.append('ledger', 0, { key: null, value: EMPTY_MARKER, headers, timestampMs: BASE_MS });
      });
    expect(codes(1)).toEqual([]);
    expect(codes(0), 'it is not at its place').toEqual(['MISMATCH']);
  });

  test('is a reply in another partition than the request names', () => {
    const headers = { kafka_replyPartition: Buffer.from('1') };
    const codes = (partition: number) =>
      codesOf((topics) => {
        const asked = topics.ask('a', { headers });
        topics.reply(asked, topics.decide(asked), { partition });
      });
    expect(codes(1)).toEqual([]);
    expect(codes(0)).toEqual(['MISMATCH']);
  });
});

describe('a refusal is wrong', () => {
  const refused = (code: string, atMs?: number) =>
    codesOf((topics) => {
      const asked = topics.ask('a');
      topics.decide(asked);
      topics.refuse(asked, code, atMs);
    });

  test('if it says that a request conflicts, and no other request is under its ID', () => {
    expect(refused('CONFLICT')).toEqual(['WRONG_REFUSAL']);
  });

  test('if it says that a decision is forgotten, or that a replay was answered, of which the ledger shows nothing', () => {
    expect(refused('FORGOTTEN', 1_000)).toEqual(['WRONG_REFUSAL']);
    expect(refused('ANSWERED_BEFORE')).toEqual(['WRONG_REFUSAL']);
  });

  test('but not where a replay was stated: in its home, or where the request was sent and forwarded from', () => {
    for (const stated of ['home', 'elsewhere'] as const) {
      const topics = new Topics(2);
      const home = topics.homeOf('a');
      const sent = topics.ask('a', { partition: 1 - home });
      const { record } = sent;
      const origin = Buffer.from(`${1 - home}/${record.offset}/${record.timestampMs}`);
      const copy = topics.ask('a', { headers: { [ORIGIN]: origin, [HOPS]: Buffer.from('1') } });
      const headers = { [REPLAY_HEADER]: Buffer.from('1 0') };
      const statement = { key: null, value: EMPTY_MARKER, headers, timestampMs: BASE_MS };
      topics.append('ledger', stated === 'home' ? home : 1 - home, statement);
      topics.refuse(sent, 'ANSWERED_BEFORE');
      topics.decide(copy);
      expect(topics.audit({ answeredBelow: 1_000 }).codes, stated).toEqual([]);
    }
  });

  test('if the decision had stood for long, unless it is one for a quota', () => {
    expect(refused('EXPIRED', HOUR_MS)).toEqual(['WRONG_REFUSAL']);
    expect(refused('QUOTA_EXCEEDED', HOUR_MS)).toEqual([]);
  });

  test('but not before the decision, though a broker whose clock is a year behind has stamped that', () => {
    const decidedLater = (behindMs: number, refusedMs: number) =>
      codesOf((topics) => {
        const asked = topics.ask('a');
        topics.refuse(asked, 'FORGOTTEN', refusedMs);
        topics.decide(asked, { atMs: HOUR_MS, behindMs });
      });
    const yearMs = 365 * 24 * HOUR_MS;
    expect([decidedLater(0, 1_000), decidedLater(yearMs, 1_000)]).toEqual([[], []]);
    expect(decidedLater(yearMs, 2 * HOUR_MS)).toEqual(['WRONG_REFUSAL']);
  });

  test('but not where the beginning of the ledger, or of the replies, was deleted', () => {
    const topics = new Topics();
    topics.serve('before');
    const asked = topics.ask('a', { atMs: 10 });
    topics.decide(asked, { atMs: 20 });
    topics.refuse(asked, 'FORGOTTEN', 1_000);
    expect(topics.audit({ answeredBelow: 1_000 }).codes).toEqual(['WRONG_REFUSAL']);
    const trimmed = topics.audit({ answeredBelow: 1_000, starts: { ledger: 1 } });
    expect(trimmed).toMatchObject({ codes: [], counts: { refused: 1 } });
    const conflicting = new Topics();
    conflicting.serve('before');
    conflicting.refuse(conflicting.ask('b'), 'EXPIRED', 5);
    const own = conflicting.ask('a');
    conflicting.decide(own);
    conflicting.refuse(own, 'CONFLICT', 6);
    const cut = conflicting.audit({ answeredBelow: 1_000, starts: { [REPLIES]: 1 } });
    expect(cut).toMatchObject({ codes: [], counts: { unjudged: new Map([['replies_deleted', 2]]) } });
  });
});

describe('what is out of reach is counted, by its reason', () => {
  test.for([
    ['replies_deleted', { starts: { [REPLIES]: 1 } }],
    ['letters_deleted', { starts: { letters: 1 } }],
    ['reply_topic_not_read', { unread: [REPLIES] }],
  ] as const)('%s', ([reason, judging]) => {
    const topics = new Topics();
    topics.decide(topics.ask('a'));
    const counts = topics.audit({ answeredBelow: 1_000, ...judging }).counts;
    expect(counts).toMatchObject({ requests: 1, answered: 0, unjudged: new Map([[reason, 1]]) });
  });

  test('a reply topic reaches back to its oldest reply that was not sent again', () => {
    const topics = new Topics();
    topics.serve('older');
    topics.serve('old', { atMs: HOUR_MS });
    topics.decide(topics.ask('lost', { atMs: 2 * HOUR_MS }), { atMs: 2 * HOUR_MS });
    const judging = { answeredBelow: 1_000, starts: { [REPLIES]: 1 } };
    expect(topics.audit(judging)).toMatchObject({
      codes: ['MISSING_REPLY'],
      counts: { requests: 3, answered: 1, unjudged: new Map([['replies_deleted', 1]]) },
    });
    for (const record of topics.records) {
      if (record.topic === REPLIES) Object.assign(record.headers, { 'idalloc-replayed': Buffer.from('1') });
    }
    expect(topics.audit(judging)).toMatchObject({ codes: [], counts: { unjudged: new Map([['replies_deleted', 2]]) } });
  });

  test('a copy may be where the request topic no longer reaches', () => {
    const topics = new Topics(2);
    const home = topics.homeOf('a');
    topics.ask('a', { partition: 1 - home });
    expect(topics.audit({ answeredBelow: 1_000 }).codes).toEqual(['MISSING_REPLY']);
    const other = new Topics(2);
    for (const partition of [home, 1 - home]) other.ask('gone', { partition });
    other.ask('a', { partition: 1 - home });
    const { counts } = other.audit({ answeredBelow: 1_000, starts: { requests: 1 } });
    expect(counts).toMatchObject({ requests: 1, unjudged: new Map([['copies_deleted', 1]]) });
  });
});

test('requests of a part of the time are judged, and no others', () => {
  const topics = new Topics();
  for (const hour of [0, 1, 2]) topics.ask(`id-${hour}`, { atMs: hour * HOUR_MS });
  const { codes, found, counts } = topics.audit({ answeredBelow: 1_000, fromMs: HOUR_MS, toMs: 2 * HOUR_MS });
  expect(codes).toEqual(['MISSING_REPLY']);
  expect(String(found[0]?.locations[0]?.requestId)).toBe('id-1');
  expect(counts).toMatchObject({ requests: 1 });
});

test('a CONFLICT is judged when all requests of its ID are known, in whatever order they are', () => {
  const codes = codesOf((topics) => {
    const asked = topics.ask('a');
    topics.decide(asked);
    topics.refuse(topics.ask('a', { count: 4 }), 'CONFLICT');
  });
  expect(codes, 'the CONFLICT is that of the second').toEqual(['MISSING_REPLY']);
});
