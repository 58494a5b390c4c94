import { isDeepStrictEqual } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import type { FindingCode } from '../../../src/cli/audit/found.ts';
import { decodeLedgerEntry, requestHash } from '../../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../../src/codec/ledger-key.ts';
import { auditOf } from '../../sim/audit-checks.ts';
import type { FinalTopics } from '../../sim/final-topics.ts';
import { FINE, isReplyTopic, LEDGER, PARTITIONS, REPLY_TOPICS, SEQUENCES } from '../../sim/setting.ts';
import { simulate } from '../../sim/simulation.ts';
import { batchIn, Corruptible, numbersIn } from './corruptions.ts';

/** A history with IDs and numbers in which nothing is trimmed or lost. */
const SEED = 3;
let topics: FinalTopics;

beforeAll(async () => {
  const { history } = await simulate(SEED, { scenario: 'full-etcd' });
  if (history.topics === undefined) throw new Error('a simulation ends with its topics');
  topics = history.topics;
});

/** The codes of what is found once the history was changed. */
function codesAfter(change: (history: Corruptible) => void): readonly FindingCode[] {
  const history = new Corruptible(topics);
  change(history);
  return [...new Set(auditOf(history, FINE).findings.map(({ code }) => code))].toSorted();
}

const nth = Corruptible.nth;
/** The same tick of the next second, in the timestamp field. */
const LATER = BigInt(1_000) << FINE.timestampShift;
const laterBy = (by: bigint) => (range: { first: bigint; count: number }) => ({ ...range, first: range.first + by });

it('finds nothing in a history that nobody has changed', () => {
  expect(auditOf(topics, FINE).findings).toEqual([]);
  const { batches, numbers } = new Corruptible(topics);
  expect([batches.length, numbers.length]).toEqual([expect.any(Number), expect.any(Number)]);
  expect(Math.min(batches.length, numbers.length)).toBeGreaterThan(5);
});

/** Changes a history, about some IDs or numbers that it told in the middle. */
type Change<T> = (history: Corruptible, told: T) => void;
type Row<T> = readonly [what: string, code: FindingCode, change: Change<T>];
type Batch = Corruptible['batches'][number];
type Numbers = Corruptible['numbers'][number];

const refusal = (code: string) => ({ error: { code, message: 'x' } });

describe('finds, in the ledger,', () => {
  it.each<Row<Batch>>([
    ['an ID of another batch in an entry', 'OVERLAP', (history, told) => history.entry(other(history), told.entry)],
    [
      'a batch that is in two entries and in both replies',
      'OVERLAP',
      (history, { entry }) => history.both(other(history), entry.batch),
    ],
    [
      'a single ID that is in two entries and in both replies',
      'OVERLAP',
      (history, { entry: { batch } }) => history.both(other(history), { ...batch, ranges: [firstOf(batch)] }),
    ],
    [
      'that a decision was replaced, the reply staying',
      'DIVERGENT',
      (history, told) => history.entry(told, { batch: history.free(told), count: 1 }),
    ],
    [
      'a second decision in another partition',
      'SPLIT',
      (history, told) => {
        const partition = (told.record.partition + 1) % PARTITIONS;
        history.append(told.record, { partition });
        history.entry({ ...told, record: nth(history.records, -1) }, { batch: history.free(told), count: 1 });
      },
    ],
    ['that a decision is gone, its reply staying', 'UNDECIDED', (history, { record }) => history.remove(record)],
    [
      'that a decision and its reply are gone',
      'MISSING_REPLY',
      (history, { record, reply }) => history.remove(record, reply),
    ],
    [
      'that a decision has the key of another request',
      'UNDECIDED',
      (history, { record }) => history.change(record, { key: encodeLedgerKey(Buffer.from('nobody')) }),
    ],
    [
      'fewer IDs than were asked for, in entry and reply',
      'MISMATCH',
      (history) => {
        const several = history.batches.filter(({ entry }) => entry.count > 1);
        const { batch } = nth(several, 2).entry;
        history.both(nth(several, 2), { ...batch, ranges: [firstOf(batch)] });
      },
    ],
    [
      'an entry that names another reply topic than its request',
      'MISDIRECTED',
      (history, told) => history.entry(told, { replyTopic: topicBeside(told.entry.replyTopic) }),
    ],
    [
      'an entry with another request hash',
      'MISMATCH',
      (history, told) => history.entry(told, { requestHash: requestHash(7, 'id.replies.other') }),
    ],
    [
      'IDs above every ceiling that was witnessed, in entry and reply',
      'ABOVE_CEILING',
      (history) => {
        const last = nth(history.batches, -1);
        const { batch } = last.entry;
        const ranges = batch.ranges.map(laterBy(3_600n * LATER));
        history.both(last, { ...batch, ranges, generatedAtMs: batch.generatedAtMs + 3_600_000 });
      },
    ],
    [
      'a fence below that of lower IDs, in entry and reply',
      'FENCE',
      (history) => history.both(other(history), { ...other(history).entry.batch, fence: fenceBelow(history) }),
    ],
    [
      'IDs that were allocated under no term of their worker ID, in entry and reply',
      'OUTSIDE_EVIDENCE',
      (history) => {
        const { batch } = other(history).entry;
        history.both(other(history), { ...batch, workerId: batch.workerId + 1 });
      },
    ],
    [
      'that a partition has lost its decisions',
      'UNDECIDED',
      (history) =>
        history.remove(...history.batches.filter(({ record }) => record.partition === 0).map(({ record }) => record)),
    ],
    [
      'an entry whose writer had read beyond it',
      'UNREADABLE',
      (history, told) => history.entry(told, { end: told.record.offset + 1 }),
    ],
  ])('%s: %s', (_, code, change) => {
    expect(codesAfter((history) => change(history, nth(history.batches, 2)))).toContain(code);
  });
});

const other = (history: Corruptible): Batch => nth(history.batches, 4);
const fenceBelow = (history: Corruptible): bigint => other(history).entry.batch.fence - 1n;
const topicBeside = (topic: string): string => REPLY_TOPICS.find((one) => one !== topic) ?? '';

/** The first ID of a batch alone. */
function firstOf({ ranges: [range] }: Batch['entry']['batch']): { readonly first: bigint; readonly count: number } {
  return { first: range?.first ?? 0n, count: 1 };
}

describe('finds, among the replies,', () => {
  it.each<Row<Batch>>([
    ['that one is missing', 'MISSING_REPLY', (history, { reply }) => history.remove(reply)],
    ['that one with numbers is missing', 'MISSING_REPLY', (history) => history.remove(nth(history.numbers, 2).reply)],
    [
      'that all are missing',
      'MISSING_REPLY',
      (history) => history.remove(...history.records.filter(({ topic }) => isReplyTopic(topic))),
    ],
    [
      'the batch of another request',
      'DIVERGENT',
      (history, { reply }) => history.reply(other(history), { batch: batchIn(reply) }),
    ],
    [
      'another time of allocation',
      'DIVERGENT',
      (history, told) => {
        const batch = batchIn(told.reply);
        history.reply(told, { batch: { ...batch, generatedAtMs: batch.generatedAtMs + 1 } });
      },
    ],
    [
      'one on another topic than the request named',
      'MISDIRECTED',
      (history, { reply }) => history.change(reply, { topic: topicBeside(reply.topic) }),
    ],
    ...['CONFLICT', 'FORGOTTEN', 'ANSWERED_BEFORE'].map(
      (code): Row<Batch> => [
        `${code}, where the ledger has the decision, for an equal request`,
        'WRONG_REFUSAL',
        (history, told) => history.reply(told, refusal(code)),
      ],
    ),
    [
      'CONFLICT, where the document has its numbers',
      'WRONG_REFUSAL',
      (history) => history.reply(nth(history.numbers, 2), refusal('CONFLICT')),
    ],
  ])('%s: %s', (_, code, change) => {
    expect(codesAfter((history) => change(history, nth(history.batches, 2)))).toContain(code);
  });
});

describe('finds, in sequences,', () => {
  it.each<Row<Numbers>>([
    ['a gap, where a record of numbers is gone', 'GAP', (history, { record }) => history.remove(record)],
    [
      'numbers that were moved by one',
      'GAP',
      (history, told) => history.numbersEntry(told, { first: told.entry.first + 1 }),
    ],
    [
      'that the last record of numbers is gone, its reply staying',
      'UNDECIDED',
      (history) => history.remove(lastOf(history).record),
    ],
    [
      'a reply with the numbers of a record that does not count',
      'VOID',
      (history, told) => history.numbersEntry(told, { at: told.entry.at + 1 }),
    ],
    [
      'a reply with other numbers',
      'DIVERGENT',
      (history, told) => {
        const numbers = numbersIn(told.reply);
        history.reply(told, { numbers: { ...numbers, first: numbers.first + 1 } });
      },
    ],
    [
      'a reply that writes its numbers otherwise',
      'FORMAT',
      (history, told) => history.reply(told, { numbers: { ...numbersIn(told.reply), format: 'INX-{number:6}' } }),
    ],
    [
      'another format than the sequence has, in record and reply',
      'FORMAT',
      (history, told) => history.bothNumbers(told, { format: 'INX-{number:6}' }),
    ],
    [
      'another step than the sequence has, in record and reply',
      'FORMAT',
      (history, told) => history.bothNumbers(told, { step: told.entry.step + 7 }),
    ],
    [
      'more numbers than were asked for, in record and reply',
      'MISMATCH',
      (history) => history.bothNumbers(lastOf(history), { count: lastOf(history).entry.count + 1 }),
    ],
    [
      'numbers under another request hash',
      'MISMATCH',
      (history, told) => history.numbersEntry(told, { requestHash: requestHash(7, 'id.replies.other') }),
    ],
  ])('%s: %s', (_, code, change) => {
    expect(codesAfter((history) => change(history, nth(history.numbers, 2)))).toContain(code);
  });
});

/** The last numbers of one sequence. */
function lastOf(history: Corruptible): Numbers {
  const [name = ''] = SEQUENCES;
  return nth(
    history.numbers.filter(({ reply }) => numbersIn(reply).sequence === name),
    -1,
  );
}

describe('finds nothing, since no promise is broken, in', () => {
  it.each<[string, (history: Corruptible) => void]>([
    [
      'a later entry with another batch, which loses',
      (history) => {
        const told = nth(
          history.batches.filter(({ entry }) => entry.count === 1),
          1,
        );
        history.append(told.record, {});
        history.entry({ ...told, record: nth(history.records, -1) }, { batch: history.free(told) });
      },
    ],
    ['a copy of an entry', (history) => history.append(nth(history.batches, 2).record, {})],
    [
      'a reply that was sent twice, and says so',
      (history) => {
        const { reply } = nth(history.batches, 2);
        history.records.push({ ...reply, headers: { ...reply.headers, 'idalloc-replayed': Buffer.from('1') } });
      },
    ],
    [
      'a ledger without its beginning, which retention has deleted',
      (history) => {
        const { partition, offset } = nth(history.batches, 6).record;
        const isGone = (one: TopicRecord) => one.topic === LEDGER && one.partition === partition && one.offset < offset;
        history.remove(...history.records.filter(isGone));
        const ledger = history.logs.ledger.map((span) =>
          span.partition === partition ? { ...span, from: offset } : span,
        );
        history.logs = { ...history.logs, ledger };
      },
    ],
  ])('%s', (_, change) => {
    expect(codesAfter(change)).toEqual([]);
  });
});

describe('of bits that were flipped, one in each byte,', () => {
  /** The records with one bit flipped of which nothing is found. */
  function silent(recordOf: (history: Corruptible) => TopicRecord): readonly Buffer[] {
    const value = recordOf(new Corruptible(topics)).value as Buffer;
    const flips = [...value.keys()].map((at) => {
      const flipped = Buffer.from(value);
      flipped.writeUInt8(value.readUInt8(at) ^ (1 << (at % 8)), at);
      return flipped;
    });
    return flips.filter(
      (flipped) => codesAfter((history) => history.change(recordOf(history), { value: flipped })).length === 0,
    );
  }

  /** The fields of an entry that differ. */
  function differences(entry: object, flipped: Buffer): readonly string[] {
    const other = Object.entries(decodeLedgerEntry(flipped));
    return other.flatMap(([name, value]) => (isDeepStrictEqual(value, Reflect.get(entry, name)) ? [] : [name]));
  }

  /** How far the writer had read, and how the reply is framed: who has which IDs or numbers does not hang on them. */
  const OUT_OF_REACH = ['end', 'through', 'requestOffset', 'framing', 'schemaFingerprint'];

  it.each<[string, (history: Corruptible) => { readonly record: TopicRecord; readonly entry: object }]>([
    ['an entry', (history) => nth(history.batches, 2)],
    ['a record of numbers', (history) => nth(history.numbers, 2)],
  ])('only those in %s stay unseen on which no decision hangs', (_, toldOf) => {
    const { entry } = toldOf(new Corruptible(topics));
    const unseen = silent((history) => toldOf(history).record);
    expect(unseen.length).toBeGreaterThan(0);
    for (const flipped of unseen) {
      const fields = differences(entry, flipped);
      expect(fields).toHaveLength(1);
      expect(OUT_OF_REACH).toContain(fields[0]);
    }
  });

  it('each one in a reply is found', () => {
    expect(silent((history) => nth(history.batches, 2).reply)).toEqual([]);
    expect(silent((history) => nth(history.numbers, 2).reply)).toEqual([]);
  });
});
