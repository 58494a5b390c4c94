import { expect } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { plainAvro } from '../codec/samples.ts';
import type { DecodedReply, Followed } from './followed.ts';
import type { Realm, TestRequest } from './realm.ts';

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

/** A ledger entry with IDs, decoded with nothing but the schema: it shares no code with the product. */
interface ForeignEntry {
  readonly partition: number;
  readonly correlationId: string;
  readonly ids: readonly bigint[];
}

/** Figures about a correct history. */
export interface History {
  readonly requests: number;
  /** Replies beyond one for each record of the request topic. */
  readonly duplicates: number;
  /** Ledger entries that lost: an earlier entry has their key, with other IDs. */
  readonly losers: number;
  /**
   * Ledger entries with the IDs of an earlier one of their key: an append that was repeated after a lost response, or
   * the entry of a request's copy, as a producer's retry writes it.
   */
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
  if (key?.[0] !== KEY_VERSION) throw new Error('a ledger key of an unknown version');
  const ids = batch.ranges.flatMap(({ first, count }) =>
    Array.from({ length: count }, (_, i) => first + BigInt(i) * batch.step),
  );
  return [{ partition, correlationId: key.subarray(1).toString(), ids }];
}

function expectUnique(ids: readonly bigint[]): void {
  expect(new Set(ids).size, 'number of different IDs: fewer means an ID was allocated twice').toBe(ids.length);
}

/** The IDs of one request, after checks that all its replies are the same bytes, with as many IDs as requested. */
function checkedIds({ correlationId, count }: TestRequest, replies: readonly DecodedReply[]): readonly bigint[] {
  const values = new Set(replies.map(({ seen }) => seen.message.value?.toString('hex')));
  expect(values.size, `different replies to ${correlationId}`).toBe(1);
  const [first] = replies;
  if (first === undefined || !('batch' in first.reply)) {
    throw new Error(`${correlationId}: ${first === undefined ? 'no reply' : JSON.stringify(first.reply)}`);
  }
  const ids = expandIds(first.reply.batch);
  expect(ids).toHaveLength(count);
  return ids;
}

/** All records of a followed topic up to its present end. */
export async function settledRecords(realm: Realm, topic: string, followed: Followed): Promise<readonly RawRecord[]> {
  const records = await realm.records(topic);
  await followed.until('all records', (seen) => seen.length >= records);
  return followed.seen.map(({ partition, offset, message }) => {
    return { partition, offset, key: message.key, value: message.value };
  });
}

/**
 * Waits until each request has a reply, then checks all records: each request has one batch, the same bytes in each
 * reply, decided by the first entry of the ledger; no ID occurs twice, those of losing entries included.
 *
 * @param ledger all records of the ledger topic, in log order within each partition
 * @param others IDs that were allocated without the ledger, as over HTTP
 */
export async function checkWholeHistory(
  realm: Realm,
  requests: readonly TestRequest[],
  replies: Followed,
  ledger: () => Promise<readonly RawRecord[]>,
  others: readonly bigint[] = [],
): Promise<History> {
  await replies.replies(requests.length);
  await settledRecords(realm, realm.replyTopic, replies);
  const byId = await replies.replies(requests.length);
  expect(byId.size, 'correlation IDs with a reply').toBe(requests.length);

  const entries = (await ledger()).flatMap(toForeign);
  const different = new Map(entries.map((entry) => [`${entry.correlationId} ${entry.ids.join()}`, entry]));
  expectUnique([...different.values()].flatMap(({ ids }) => ids).concat(others));
  const byRequest = Map.groupBy(entries, ({ correlationId }) => correlationId);
  expect(byRequest.size, 'correlation IDs in the ledger').toBe(requests.length);
  for (const request of requests) {
    const [decision, ...losers] = byRequest.get(request.correlationId) ?? [];
    expect(decision?.ids, request.correlationId).toEqual(checkedIds(request, byId.get(request.correlationId) ?? []));
    for (const { partition } of losers) expect(partition).toBe(decision?.partition);
  }
  return {
    requests: requests.length,
    duplicates: replies.seen.length - (await realm.records(realm.requestTopic)),
    losers: different.size - byRequest.size,
    doubled: entries.length - different.size,
  };
}

/** Writes a measurement to both the console and the test report. */
export async function report(annotate: (text: string) => Promise<unknown>, text: string): Promise<void> {
  process.stderr.write(`measured: ${text}\n`);
  await annotate(text);
}
