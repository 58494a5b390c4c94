import { beforeEach, describe, expect, test } from 'vitest';
import type { KafkaSession } from '../../../src/cli/kafka-session.ts';
import { findDecision, homesOf } from '../../../src/cli/trace/search.ts';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { encodeLedgerKey, encodeNumbersKey } from '../../../src/codec/ledger-key.ts';
import { idOfText, textOfId } from '../../../src/codec/request-checks.ts';
import { RENEWAL } from '../../../src/codec/sequence-entry.ts';
import { LoopStage } from '../../support/loop-stage.ts';
import { entry, numbers } from '../../support/memory-records.ts';

const LEDGER = 'id.ledger';
const OF_ORDER = encodeLedgerKey(Buffer.from('order'));
const NUMBERS_OF_ORDER = encodeNumbersKey('invoices', Buffer.from('order'));

let loop: LoopStage;

beforeEach(() => {
  loop = new LoopStage({ nodes: 1 });
  loop.kafka.cluster.createTopic(LEDGER, { partitions: 1, replicas: 1 });
});

function lies(...records: { readonly key: Buffer | null; readonly value: Buffer }[]): void {
  loop.kafka.cluster.send(LEDGER, 0, records);
}

/** The offset, and the first ID or number, of what decides. */
async function decided(key: Buffer): Promise<readonly [number, bigint | number | undefined] | undefined> {
  const context = {
    stop: new AbortController().signal,
    err: () => undefined,
    terminal: { input: false, output: false, errors: false },
  };
  const source = { cluster: loop.cluster, runtime: loop.runtime };
  const session = { context, source, config: { topics: { ledger: LEDGER } } } as unknown as KafkaSession;
  const found = await loop.runtime.until(findDecision(session, 0, key));
  if (found === undefined) return undefined;
  const { record, entry: one } = found;
  return [record.offset, one.kind === 'batch' ? one.batch.ranges[0]?.first : one.first];
}

const marker = { key: null, value: encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 }) };

describe('what a correlation ID has', () => {
  test('is what its first entry says', async () => {
    lies(entry('other'), entry('order', { first: 5n }), entry('order', { first: 9n }));
    expect(await decided(OF_ORDER)).toEqual([1, 5n]);
  });

  test('is nothing if the log has no entry of it', async () => {
    lies(entry('other'), numbers('order'));
    expect(await decided(OF_ORDER)).toBeUndefined();
  });

  test('is what a renewal says, once retention has taken the first entry', async () => {
    lies(entry('order', { first: 5n }), marker, entry('order', { first: 5n, end: 2 }));
    loop.kafka.cluster.partition(LEDGER, 0).log.trim(1);
    expect(await decided(OF_ORDER)).toEqual([2, 5n]);
  });

  test('is forgotten if retention has taken what decided, and only a later copy is left', async () => {
    lies(entry('order', { first: 5n }), marker, entry('order', { first: 9n }));
    loop.kafka.cluster.partition(LEDGER, 0).log.trim(2);
    await expect(decided(OF_ORDER)).rejects.toMatchObject({ code: 'FORGOTTEN' });
  });

  test('is found behind a copy whose writer did not know the first entry', async () => {
    lies(marker, entry('order', { first: 5n }), entry('order', { first: 9n }), entry('order', { first: 5n, end: 3 }));
    loop.kafka.cluster.partition(LEDGER, 0).log.trim(2);
    expect(await decided(OF_ORDER)).toEqual([3, 5n]);
  });

  test('is not guessed from an entry that can not be read', async () => {
    lies({ key: OF_ORDER, value: Buffer.from('junk') }, entry('order', { first: 9n }));
    await expect(decided(OF_ORDER)).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
  });
});

describe('the numbers of a correlation ID', () => {
  test('are those of the record that lies where it was written for', async () => {
    lies(numbers('order', { first: 7, at: 3 }), numbers('order', { first: 8, at: 1 }));
    expect(await decided(NUMBERS_OF_ORDER)).toEqual([1, 8]);
  });

  test('are none if every record of it is void', async () => {
    lies(numbers('order', { at: 3 }), numbers('other', { at: 1 }));
    expect(await decided(NUMBERS_OF_ORDER)).toBeUndefined();
  });

  test('are those of a renewal, once retention has taken the record', async () => {
    lies(numbers('order', { first: 7, at: 0 }), marker, numbers('order', { first: 7, at: RENEWAL, end: 2 }));
    loop.kafka.cluster.partition(LEDGER, 0).log.trim(1);
    expect(await decided(NUMBERS_OF_ORDER)).toEqual([2, 7]);
  });
});

test.each(['order-4710', 'http/shop/key 1', '0xbeef', '0x', '0xno', 'ü', 'a b'])(
  'the correlation ID %s is read back from the text that is shown of it',
  (text) => {
    const id = Buffer.from(text);
    expect(idOfText(textOfId(id))).toEqual(id);
  },
);

describe('the ledger partitions in which the decision for a sequence may lie', () => {
  /** In short: the homes of `invoices`, which is in the last one of 3 partitions, and in the second one of 2. */
  async function homes(topic: number, configured: number): Promise<readonly number[]> {
    loop.kafka.cluster.growTopic(LEDGER, topic);
    const source = { cluster: loop.cluster, runtime: loop.runtime };
    const config = { topics: { ledger: LEDGER, requestPartitions: configured } };
    return await loop.runtime.until(homesOf({ source, config } as unknown as KafkaSession, 'invoices'));
  }

  test.each([
    ['is the one that workers choose', 2, 2, [1]],
    ['are two where partitions were added to the topic', 3, 2, [1, 2]],
    ['follow from the topic alone where fewer partitions are there than REQUEST_PARTITIONS says', 2, 12, [1]],
  ])('%s', async (_, topic, configured, expected) => {
    expect(await homes(topic, configured)).toEqual(expected);
  });
});
