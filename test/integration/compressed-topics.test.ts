import { expect, test } from 'vitest';
import { claimKey } from '../../src/identity/bindings.ts';
import { AT, CODEC_MASK } from '../../src/kafka/records/format.ts';
import type { FetchResponse } from '../../src/kafka/wire/record-apis.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

/** The codes of compression in the header of a record batch. */
const CODECS = { gzip: 1, snappy: 2, lz4: 3, zstd: 4 } as const;

/** A realm whose topics don't set compression, on brokers whose default is this codec. */
async function compressedRealm(codec: keyof typeof CODECS): Promise<Realm> {
  const realm = await Realm.create(suiteServers(), { partitions: 1 });
  for (const topic of topicsOf(realm)) await realm.setTopicConfig(topic, 'compression.type', codec);
  return realm;
}

/** All topics but the request topic: a worker refuses to start if that is compressed. */
function topicsOf({ ledgerTopic, witnessTopic, deadLetterTopic, replyTopic }: Realm): readonly string[] {
  return [ledgerTopic, witnessTopic, deadLetterTopic, replyTopic];
}

/** The codec of the last record batch that the broker has stored. */
async function storedCodec({ source }: Realm, topic: string): Promise<number> {
  const { cluster } = source;
  const partitions = [{ topic, partition: 0, offset: 0, maxBytes: 1_000_000 }];
  const request = { maxWaitMs: 1_000, maxBytes: 1_000_000, isolation: 'read_uncommitted', partitions } as const;
  const leader = await cluster.leader(topic, 0);
  const answer = await cluster.call<FetchResponse>(leader, 'requests', 5_000, (link) => link.call('fetch', request));
  const records = answer.partitions[0]?.records ?? Buffer.alloc(0);
  return records.readInt16BE(AT.attributes) & CODEC_MASK;
}

/** Requests a batch over Kafka, with the command `idalloc request`. */
async function request(realm: Realm, correlationId: string) {
  const args = ['request', '--count', '500', '--reply-topic', realm.replyTopic, '--correlation-id', correlationId];
  const { ids, replayed } = await realm.command(args);
  return { ids: ids.map((id: { value_string: string }) => id.value_string), replayed };
}

test.for(['snappy', 'lz4', 'zstd', 'gzip'] as const)(
  'workers serve, replay and refuse as usual on brokers that compress all topics with %s',
  async (codec) => {
    await using realm = await compressedRealm(codec);
    const { faults, differences, fixes } = await realm.command(['topics', 'check']);
    const planned = topicsOf(realm).filter((topic) => topic !== realm.replyTopic);
    expect(faults).toEqual([]);
    const expected = planned.map((topic) => `${topic}: compression.type is ${codec}, not uncompressed`);
    expect(differences.toSorted()).toEqual(expected.toSorted());
    expect(fixes).toHaveLength(planned.length);

    const first = realm.worker();
    await first.ready();
    const given = await request(realm, 'first');
    expect(given).toMatchObject({ replayed: false });
    expect(new Set(given.ids).size).toBe(500);
    await realm.sendRaw([{ key: 'poison', value: 'no request' }]);
    const letters = async () => (await realm.command(['deadletters', 'list'])).letters;
    await expect.poll(letters).toMatchObject([{ code: 'MALFORMED_REQUEST', value_bytes: 10 }]);
    for (const topic of topicsOf(realm)) {
      expect([topic, await storedCodec(realm, topic)]).toEqual([topic, CODECS[codec]]);
    }

    // The next worker's index is empty, so it knows decisions from the ledger alone.
    await first.stop();
    const second = realm.worker();
    await second.ready();
    expect(await request(realm, 'first')).toEqual({ ids: given.ids, replayed: true });
    const audit = await realm.command(['audit', '--reply-topic', realm.replyTopic]);
    expect(audit).toMatchObject({ decisions: 1, findings: [] });

    // With an empty etcd, only the witness topic shows what was allocated.
    const { ID_SPACE = '', DATACENTER_ID } = realm.env;
    await realm.etcd.transact([], [{ delete: claimKey(ID_SPACE, Number(DATACENTER_ID)) }]);
    const late = realm.worker({ ETCD_PREFIX: `/wiped-${realm.groupId}` });
    await late.line(({ reason }) => reason === 'RESTORED');
    const answer = await fetch(`${await late.api()}/api/v1/ids`).then(
      ({ status }) => status,
      () => 'refused',
    );
    expect(answer).not.toBe(200);
    expect((await late.ops('/readyz')).status).toBe(503);
  },
);
