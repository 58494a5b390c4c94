import { expect, test } from 'vitest';
import { decodeLedgerEntry, encodeLedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { BATCH } from '../codec/samples.ts';
import type { Followed, Seen } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { isFetchOf, type KafkaRequest, TcpProxy } from '../support/tcp-proxy.ts';
import { report } from '../support/whole-history.ts';
import type { LogLine } from '../support/worker-process.ts';

/** Enough entries that reading them takes more than `FETCHES_BEFORE` fetches. */
const ENTRIES = 40_000;
/** Fetches that the worker has made when retention deletes the rest. */
const FETCHES_BEFORE = 2;
const SEND_AT_ONCE = 5_000;
const COUNT = 5;

/**
 * Whether the cause names the log's start, or an entry after the gap, as the worker's own marker if that is read first.
 */
const wasOvertaken = ({ cause }: LogLine) =>
  /^(the log now starts at offset|reading continued at offset|offset \d+ was expected)/.test(String(cause));

/** Entries as workers with an empty index would write them, in ledger partition 0. */
async function fillLedger(realm: Realm, entries: number): Promise<void> {
  for (let from = 0; from < entries; from += SEND_AT_ONCE) {
    const messages = Array.from({ length: Math.min(SEND_AT_ONCE, entries - from) }, (_, i) => ({
      key: encodeLedgerKey(Buffer.from(`request-${from + i}`)),
      value: encodeLedgerEntry({
        kind: 'batch',
        requestHash: requestHash(COUNT, realm.replyTopic),
        count: COUNT,
        replyTopic: realm.replyTopic,
        requestOffset: 0,
        batch: { ...BATCH, ranges: [{ first: BigInt(from + i) * 10n, count: COUNT }] },
        framing: 'SINGLE_OBJECT',
        schemaFingerprint: Buffer.alloc(8),
        end: 0,
        through: -1,
      }),
      partition: 0,
    }));
    await realm.sendRaw(messages, realm.ledgerTopic);
  }
}

/** Matches every fetch of this topic after the first `times`. */
function laterFetchOf(topic: string, times: number): (request: KafkaRequest) => boolean {
  const isFetch = isFetchOf(topic);
  let seen = 0;
  return (request) => {
    if (!isFetch(request)) return false;
    seen += 1;
    return seen > times;
  };
}

/** An entry whose writer had read everything before it. */
function isAnchor({ offset, message }: Seen): boolean {
  return message.value !== null && decodeLedgerEntry(message.value).end === offset;
}

async function ask(realm: Realm, replies: Followed, correlationId: string) {
  await realm.send([{ correlationId, count: COUNT }]);
  return (await replies.reply(correlationId)).reply;
}

test('a restore that retention overtakes starts again and completes, though the ledger has nothing left', async ({
  annotate,
}) => {
  await using proxy = await TcpProxy.start(suiteServers());
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  await realm.send([{ correlationId: 'the first one', count: COUNT }]); // the entries claim to have decided it
  await fillLedger(realm, ENTRIES);
  const emptied = Promise.withResolvers<void>();
  const hasReadSome = proxy.holdRequest(laterFetchOf(realm.ledgerTopic, FETCHES_BEFORE), emptied.promise);
  const worker = realm.worker({ KAFKA_BROKERS: proxy.address });
  await hasReadSome;
  await realm.trimLedger();
  emptied.resolve();
  const sinceMs = performance.now();
  const { cause } = await worker.line(wasOvertaken);
  await report(annotate, `${cause}; seen after ${Math.round(performance.now() - sinceMs)} ms`);
  const ledger = await realm.follow(realm.ledgerTopic);
  await ledger.until('the marker after which decisions are allowed', (seen) => seen.some(isAnchor));
  expect(await ask(realm, replies, 'new')).toHaveProperty('batch');
});

test('a serving worker restores its index when retention deletes entries that it had not read', async () => {
  await using proxy = await TcpProxy.start(suiteServers());
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  const worker = realm.worker({ KAFKA_BROKERS: proxy.address });
  await worker.ready();
  expect(await ask(realm, replies, 'first')).toHaveProperty('batch');
  // A fetch that waits at the broker may return everything written meanwhile, so the next fetch is delayed.
  const trimmed = Promise.withResolvers<void>();
  await proxy.holdRequest(isFetchOf(realm.ledgerTopic), trimmed.promise);
  await fillLedger(realm, 1);
  await realm.trimLedger();
  trimmed.resolve();
  await worker.line(wasOvertaken);
  // A deleted entry that the worker had not read may have decided this request.
  expect(await ask(realm, replies, 'second')).toMatchObject({ error: { code: 'FORGOTTEN' } });
  expect(await ask(realm, replies, 'third')).toHaveProperty('batch');
});
