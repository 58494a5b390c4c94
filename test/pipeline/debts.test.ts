import fc from 'fast-check';
import { expect, it } from 'vitest';
import { asConfluent } from '../../src/codec/framing.ts';
import { ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import {
  decodePosition,
  EVERY_RECORD,
  encodeMetadata,
  isNamed,
  type RequestPosition,
} from '../../src/codec/request-position.ts';
import { PRICES_US } from '../../src/pipeline/accounts.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { BAD_RECORDS, UNKNOWN_SCHEMAS } from '../../src/pipeline/intake.ts';
import { PART_MAX_REQUESTS } from '../../src/pipeline/parts.ts';
import type { Publisher, RequestRecord, SchemaIds } from '../../src/pipeline/ports.ts';
import { RequestSession } from '../../src/pipeline/request-session.ts';
import { inOneBatch, record, request } from '../support/memory-records.ts';
import { accountsWith } from '../support/memory-worker.ts';
import { numbersWorld } from '../support/numbers-world.ts';

/**
 * Reply topics, of which two pay together, one that begins like them does not and two are not known to exist, and what
 * pays for bad records.
 */
const KNOWN = ['id.replies.a-1', 'id.replies.a-2', 'id.replies.a-own', 'id.replies.b'] as const;
const TOPICS = [...KNOWN, 'id.replies.unknown', 'id.replies.unknown-too', BAD_RECORDS] as const;
const accountOf = (topic: string) => {
  if (topic.startsWith('id.replies.unknown')) return undefined;
  return /-\d$/.test(topic) ? topic.slice(0, -1) : topic;
};
/** Two requests at once, and one in 20 ms. */
const RATE = { usPerMs: PRICES_US.request / 20, burstUs: 2 * PRICES_US.request };
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

interface Sent {
  readonly topic: (typeof TOPICS)[number];
  /** Whether it asks for a number of a sequence. */
  readonly isNumber: boolean;
  readonly isLarge: boolean;
  /** Its schema in the registry, in place of a fingerprint: each look-up finds the IDs below the number of look-ups. */
  readonly schemaId: number | undefined;
  /** How long after the one before it is read. */
  readonly afterMs: number;
  /** The gate closes and opens again while its chunk is served, so many promises later. */
  readonly closedAfter: number | undefined;
}

/** The log of one batch, or of batches of one record each. */
type Batches = 'one' | 'each';

const LARGE = 5_001;
/** IDs of the schema of numbers are odd. */
const WIDE = 1;

function logOf(sent: readonly Sent[], batches: Batches): readonly RequestRecord[] {
  const log = sent.map(({ topic, isNumber, isLarge, schemaId }, i): RequestRecord => {
    const key = Buffer.from(`r${i}`);
    if (topic === BAD_RECORDS) return { ...record(i, Buffer.from('junk')), key };
    const asked = isNumber ? { sequence: 'invoices' } : { count: isLarge ? LARGE : 1 };
    const plain = request(i, `r${i}`, { replyTopic: topic, ...asked });
    if (schemaId === undefined) return plain;
    return { ...record(i, asConfluent(2 * schemaId + (isNumber ? WIDE : 0), plain.value as Buffer)), key };
  });
  return batches === 'one' ? inOneBatch(log) : log;
}

/** A registry that a worker may ask so seldom that some IDs count as unknown at first. */
function registry(): SchemaIds {
  let lookUps = 0;
  return {
    learn: async () => {
      lookUps += 1;
    },
    requestHeader: (id) => {
      if (id >= 2 * lookUps) return undefined;
      return id % 2 === WIDE ? WIDE_REQUEST_HEADER : ID_REQUEST_HEADER;
    },
    replyId: () => 12,
    numbersReplyId: () => 13,
  };
}

interface Given {
  readonly sent: readonly Sent[];
  readonly chunkRecords: number;
  readonly batches?: Batches;
}

/** A worker that serves one partition from a position, until all of its log is answered. */
async function serve({ sent, chunkRecords, batches = 'each' }: Given, position?: RequestPosition) {
  const log = logOf(sent, batches);
  const clock = { nowMs: 0 };
  const waits: string[] = [];
  const accounts = accountsWith(RATE, () => clock.nowMs, waits, accountOf);
  const worker = numbersWorld().worker({ homeOf: () => 0, accounts, schemas: registry() });
  /** What waits is answered so late that debts may end before. */
  const late: Publisher = {
    publish: async (records) => {
      for (let turns = 0; turns < 20; turns += 1) await turn();
      return await worker.publisher.publish(records);
    },
  };
  const deps = { ...worker.deps, largePublisher: late };
  const answered = () => worker.publisher.records.map(({ key }) => Number(String(key).slice(1)));
  const seen: { readonly position: RequestPosition; readonly answered: readonly number[] }[] = [];
  const session: RequestSession = new RequestSession({
    partition: 0,
    isOpen: true,
    handler: (partition, records, control) => processBatch(deps, partition, records, control),
    runtime: { schedule: () => ({ cancel: () => {} }) },
    position,
    readAgain: (_lane, from, deliver) => {
      let isStopped = false;
      const read = async () => {
        for (let at = from; !isStopped; at += chunkRecords) {
          await turn();
          await deliver({ records: log.slice(at, at + chunkRecords), next: Math.min(at + chunkRecords, log.length) });
        }
      };
      void read();
      return { stop: () => (isStopped = true) };
    },
    onProgress: (at) => seen.push({ position: at, answered: answered() }),
    onError: (error) => expect.fail(String(error)),
  });
  for (let at = position?.small ?? 0; at < log.length; at += chunkRecords) {
    const records = log.slice(at, at + chunkRecords);
    clock.nowMs += sent[at]?.afterMs ?? 0;
    const delivered = session.deliver({ records, next: at + records.length });
    const { closedAfter } = sent[at] as Sent;
    for (let turns = 0; turns < (closedAfter ?? 0); turns += 1) await Promise.resolve();
    if (closedAfter !== undefined) session.pause();
    clock.nowMs += 1;
    await turn();
    session.resume();
    await delivered;
  }
  for (let turns = 0; (session.position?.next ?? 0) < log.length && turns < 5_000; turns += 1) await turn();
  expect(session.position?.next ?? 0).toBe(log.length);
  session.end();
  return { answered: answered(), seen, waits };
}

const sent = fc.record({
  topic: fc.constantFrom(TOPICS[0], TOPICS[0], TOPICS[1], ...TOPICS.slice(2), BAD_RECORDS),
  afterMs: fc.constantFrom(0, 0, 5, 60),
  isNumber: fc.constantFrom(false, false, true),
  isLarge: fc.constantFrom(false, false, false, false, true),
  schemaId: fc.constantFrom(undefined, undefined, 0, 3, 10, 1_000),
  closedAfter: fc.option(fc.nat(20), { nil: undefined }),
});
const given = fc.record({
  sent: fc.array(sent, { minLength: 1, maxLength: 40 }),
  chunkRecords: fc.nat(5).map((n) => n + 1),
});

it('records that wait for debts are answered once each, and one in debt holds up nobody else', async () => {
  let waited = 0;
  await fc.assert(
    fc.asyncProperty(given, async (given) => {
      const { answered, waits } = await serve(given);
      expect(answered.toSorted((one, other) => one - other)).toEqual(given.sent.map((_, i) => i));
      waited += waits.length;
    }),
    { numRuns: 100 },
  );
  expect(waited).toBeGreaterThan(0);
});

it('a successor at any committed position answers whatever waits, and nothing again that was answered in its place', async () => {
  let again = 0;
  await fc.assert(
    fc.asyncProperty(given, async (given) => {
      const first = await serve(given);
      for (const { position, answered } of first.seen) again += await succeeded(given, position, answered);
    }),
    { numRuns: 30 },
  );
  expect(again).toBeGreaterThan(0);
});

it('whatever is behind hundreds of a batch that wait does so without a look at it, and is answered once', async () => {
  const debtor = { topic: TOPICS[0], isNumber: false, isLarge: false, schemaId: undefined, afterMs: 0 };
  const many: Sent[] = Array.from({ length: 4 * PART_MAX_REQUESTS }, () => ({ ...debtor, closedAfter: undefined }));
  const other: Sent = { ...debtor, topic: 'id.replies.b', closedAfter: undefined };
  const long = fc.record({ sent: fc.array(sent, { minLength: 1, maxLength: 40 }), chunkRecords: fc.nat(600) });
  await fc.assert(
    fc.asyncProperty(long, async ({ sent, chunkRecords }) => {
      const given = { sent: [other, ...many, ...sent], chunkRecords: 1_200 + chunkRecords, batches: 'one' } as const;
      const first = await serve(given);
      expectAll(given, first.answered);
      const isUnseen = ({ position }: (typeof first.seen)[number]) =>
        position.debtors?.some(({ topic }) => topic === EVERY_RECORD);
      const unseen = first.seen.filter(isUnseen);
      expect(unseen.length).toBeGreaterThan(0);
      for (const { position, answered } of [unseen[0], unseen.at(-1)] as typeof unseen)
        await succeeded(given, position, answered);
    }),
    { numRuns: 10 },
  );
});

/** A successor serves the rest. Returns how much of that the worker before it had left behind. */
async function succeeded(given: Given, position: RequestPosition, answered: readonly number[]): Promise<number> {
  const { sent } = given;
  const committed = decodePosition(position.next, encodeMetadata(position));
  const next = await serve(given, committed);
  const known = expectAll(given, next.answered, answered);
  const isDeferred = (offset: number) => {
    const { topic, isNumber, isLarge } = sent[offset] as Sent;
    return (isNumber || isLarge) && topic !== BAD_RECORDS;
  };
  const named = (offset: number) =>
    position.debtors?.some((span) => {
      const { topic, schemaId } = sent[offset] as Sent;
      const isOne = isNamed(span, topic) || (schemaId !== undefined && isNamed(span, UNKNOWN_SCHEMAS));
      return isOne && span.from <= offset && offset < span.until;
    });
  expect(known.filter((at) => at < position.small && !named(at) && !isDeferred(at))).toEqual([]);
  return next.answered.filter((offset) => offset < position.small).length;
}

/**
 * All is answered, and once each but for what a reader did not know at first, which may be anybody's: returns the
 * others.
 */
function expectAll({ sent }: Given, answered: readonly number[], before: readonly number[] = []): readonly number[] {
  const all = [...new Set([...before, ...answered])];
  expect(all.toSorted((one, other) => one - other)).toEqual(sent.map((_, i) => i));
  const known = answered.filter((offset) => (sent[offset]?.schemaId ?? 0) === 0);
  expect(new Set(known).size).toBe(known.length);
  return known;
}
