import { expect, test } from 'vitest';
import { decodeLedgerEntry, encodeLedgerEntry, encodeLedgerKey, requestHash } from '../../src/codec/ledger-entry.ts';
import { BATCH } from '../codec/samples.ts';
import type { Followed, Seen } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { isFetchOf, type KafkaRequest, TcpProxy } from '../support/tcp-proxy.ts';
import { report } from '../support/whole-history.ts';
import type { LogLine } from '../support/worker-process.ts';

/** So many that reading them takes more than `FETCHES_BEFORE` fetches. */
const ENTRIES = 40_000;
/** What the worker has read of them when retention comes. */
const FETCHES_BEFORE = 2;
const SEND_AT_ONCE = 5_000;
const COUNT = 5;

/** By the log's start, or by an entry behind the gap: the worker's own question for the brokers' time, if it comes first. */
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

/** Every fetch of this topic behind the first `times`. */
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

test('a restore that retention overtakes begins anew and ends, though the ledger has nothing left', async ({
  annotate,
}) => {
  await using proxy = await TcpProxy.start(suiteServers().proxied);
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  await realm.send([{ correlationId: 'the first one', count: COUNT }]); // which the entries say to have decided
  await fillLedger(realm, ENTRIES);
  const emptied = Promise.withResolvers<void>();
  const hasReadSome = proxy.holdRequest(laterFetchOf(realm.ledgerTopic, FETCHES_BEFORE), emptied.promise);
  const worker = realm.worker({ KAFKA_BROKERS: `127.0.0.1:${suiteServers().proxied.port}` });
  await hasReadSome;
  await realm.trimLedger();
  emptied.resolve();
  const sinceMs = performance.now();
  const { cause } = await worker.line(wasOvertaken);
  await report(annotate, `${cause}; seen after ${Math.round(performance.now() - sinceMs)} ms`);
  const ledger = await realm.follow(realm.ledgerTopic);
  await ledger.until('the marker that tells what may be decided', (seen) => seen.some(isAnchor));
  expect(await ask(realm, replies, 'new')).toHaveProperty('batch');
});

test('a worker that serves is restored when retention takes entries that it had not read', async () => {
  await using proxy = await TcpProxy.start(suiteServers().proxied);
  await using realm = await Realm.create(suiteServers(), { partitions: 1 });
  const replies = await realm.follow();
  const worker = realm.worker({ KAFKA_BROKERS: `127.0.0.1:${suiteServers().proxied.port}` });
  await worker.ready();
  expect(await ask(realm, replies, 'first')).toHaveProperty('batch');
  // A fetch that waits at the broker may bring all that is written meanwhile, so the next one is kept from it.
  const trimmed = Promise.withResolvers<void>();
  await proxy.holdRequest(isFetchOf(realm.ledgerTopic), trimmed.promise);
  await fillLedger(realm, 1);
  await realm.trimLedger();
  trimmed.resolve();
  await worker.line(wasOvertaken);
  // Nobody can tell whether what the worker had not read has decided this one.
  expect(await ask(realm, replies, 'second')).toMatchObject({ error: { code: 'FORGOTTEN' } });
  expect(await ask(realm, replies, 'third')).toHaveProperty('batch');
});
