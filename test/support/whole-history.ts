import { expect } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { plainAvro } from '../codec/samples.ts';
import type { DecodedReply, Followed } from './followed.ts';
import type { Ask, Realm } from './realm.ts';

const SCHEMA = plainAvro('ledger-entry');
const FRAME_BYTES = 10;
const KEY_VERSION = 1;

/** A record of a topic. */
export interface RawRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
}

/** What a ledger entry that gives IDs says, as a reader sees it that knows nothing of the product but the schema. */
interface ForeignEntry {
  readonly partition: number;
  readonly correlationId: string;
  readonly ids: readonly bigint[];
  /** An append that was sent again after its answer was lost is there twice, byte for byte. */
  readonly bytes: string;
}

/** What a history shows beside being right. */
export interface History {
  readonly requests: number;
  /** Replies beyond one for each record of the request topic. */
  readonly duplicates: number;
  /** Ledger entries that came later than another one for their key, with other IDs. */
  readonly losers: number;
  /** Ledger entries that are there again, byte for byte. */
  readonly doubled: number;
}

interface WireBatch {
  readonly ranges: readonly { readonly first: bigint; readonly count: number }[];
  readonly step: bigint;
}

function toForeign({ partition, key, value }: RawRecord): ForeignEntry[] {
  if (value === null) throw new Error('a ledger entry without a value');
  const { batch } = SCHEMA.fromBuffer(value.subarray(FRAME_BYTES)) as { readonly batch: WireBatch | null };
  if (batch === null) return [];
  if (key?.[0] !== KEY_VERSION) throw new Error('a ledger entry under a key of another version');
  const ids = batch.ranges.flatMap(({ first, count }) =>
    Array.from({ length: count }, (_, i) => first + BigInt(i) * batch.step),
  );
  return [{ partition, correlationId: key.subarray(1).toString(), ids, bytes: value.toString('hex') }];
}

function expectUnique(ids: readonly bigint[]): void {
  expect(new Set(ids).size, 'IDs that were given twice').toBe(ids.length);
}

/** All replies to one request must be the same bytes, and a batch of as many IDs as were asked for. */
function idsTold({ correlationId, count }: Ask, replies: readonly DecodedReply[]): readonly bigint[] {
  const values = new Set(replies.map(({ seen }) => seen.message.value?.toString('hex')));
  expect(values.size, `different replies to ${correlationId}`).toBe(1);
  const [first] = replies;
  if (first === undefined || 'error' in first.reply) {
    throw new Error(`${correlationId}: ${first === undefined ? 'no reply' : JSON.stringify(first.reply)}`);
  }
  const ids = expandIds(first.reply.batch);
  expect(ids).toHaveLength(count);
  return ids;
}

/** Everything that a followed topic holds by now. */
export async function settledRecords(realm: Realm, topic: string, followed: Followed): Promise<readonly RawRecord[]> {
  const records = await realm.records(topic);
  await followed.until('all records', (seen) => seen.length >= records);
  return followed.seen.map(({ partition, offset, message }) => {
    return { partition, offset, key: message.key, value: message.value };
  });
}

/**
 * Waits until each request has a reply, and then looks at all that was ever written: one batch for each request, told in
 * the same bytes each time and decided by the first entry of the ledger; no ID twice, those of losing entries included.
 *
 * @param ledger all records of the ledger topic, in log order within each partition
 * @param others IDs that were given by other ways than the ledger
 */
export async function checkWholeHistory(
  realm: Realm,
  asks: readonly Ask[],
  replies: Followed,
  ledger: () => Promise<readonly RawRecord[]>,
  others: readonly bigint[] = [],
): Promise<History> {
  await replies.replies(asks.length);
  await settledRecords(realm, realm.replyTopic, replies);
  const told = await replies.replies(asks.length);
  expect(told.size, 'correlation IDs with a reply').toBe(asks.length);

  const entries = (await ledger()).flatMap(toForeign);
  const different = new Map(entries.map((entry) => [entry.bytes, entry]));
  expectUnique([...different.values()].flatMap(({ ids }) => ids).concat(others));
  const byRequest = Map.groupBy(entries, ({ correlationId }) => correlationId);
  expect(byRequest.size, 'correlation IDs in the ledger').toBe(asks.length);
  for (const ask of asks) {
    const [decision, ...losers] = byRequest.get(ask.correlationId) ?? [];
    expect(decision?.ids, ask.correlationId).toEqual(idsTold(ask, told.get(ask.correlationId) ?? []));
    for (const { partition } of losers) expect(partition).toBe(decision?.partition);
  }
  return {
    requests: asks.length,
    duplicates: replies.seen.length - (await realm.records(realm.requestTopic)),
    losers: different.size - byRequest.size,
    doubled: entries.length - different.size,
  };
}

/** Puts what was measured where both readers of the console and of the report find it. */
export async function report(annotate: (text: string) => Promise<unknown>, text: string): Promise<void> {
  process.stderr.write(`measured: ${text}\n`);
  await annotate(text);
}
