import { IdClient } from '../../src/client/index.ts';
import { encodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { encodeStatementKey } from '../../src/codec/ledger-key.ts';
import { statementHeaders } from '../../src/codec/sequence-entry.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { SUITE } from '../support/servers.ts';
import { closedLoop } from './closed-loop.ts';
import { type EtcdLoad, measureEtcd } from './etcd-load.ts';
import { optionsOf } from './options.ts';
import { type PostgresNumbers, startNumbers } from './postgres.ts';
import { median } from './stage.ts';

/**
 * What numbers of sequences cost beside IDs, and beside the usual gapless way in a database: requests a second of one
 * worker through the client, and latency at half of that, in one run on the same topics. All numbers of a sequence come
 * from one partition, so one sequence has the rate of a partition. IDs are also measured while numbers of many
 * sequences are taken from the same partitions, which must not hold them up.
 *
 * Each draft of numbers is a transaction in etcd. So what etcd does is measured with the highest rate, and with half of
 * it.
 *
 * PostgreSQL commits the document with its number, which idalloc leaves to the service, and syncs each commit to its
 * disk, for which Kafka relies on its replicas, here one.
 */
const values = optionsOf(
  'bench:sequence',
  [
    'Measures requests for numbers of one sequence, and of many over 12 partitions, beside requests for IDs and beside PostgreSQL',
    '(UPDATE … RETURNING in a transaction with the insert of the document), as ratios in one run. Without PostgreSQL, the rest.',
    'Also what etcd does meanwhile, with the highest rate and with half of it, and IDs while numbers are taken.',
  ],
  { seconds: 8, rounds: 3, 'in-flight': 500, sequences: 1_000, count: 1, connections: 32 },
  {
    'in-flight': 'requests that wait for replies at a time, for the highest rate',
    count: 'IDs or numbers in each request',
    connections: 'to PostgreSQL',
  },
);
const PARTITIONS = 12;
const { seconds, rounds, count, 'in-flight': inFlight } = values;
const names = Array.from({ length: values.sequences }, (_, i) => `s${i}`);
const say = (line: string) => process.stderr.write(`${line}\n`);
const anyOf = (nth: number) => names[nth % names.length] ?? 's0';

type Ask = (nth: number) => Promise<unknown>;
/** Distinguishes the requests of each measurement. */
let run = 0;

/** Requests a second with that many in flight. */
async function highestRate(ask: Ask): Promise<number> {
  run += 1;
  return (await closedLoop(ask, inFlight, seconds)).perSecond;
}

/** The p99 latency at a rate, from when each request was due, in ms. */
async function p99At(perSecond: number, ask: Ask): Promise<number> {
  const beganMs = performance.now();
  const total = Math.ceil(perSecond * seconds);
  const latencies: number[] = [];
  run += 1;
  const asked: Promise<void>[] = [];
  const timed = async (nth: number, dueMs: number) => {
    await ask(nth);
    latencies.push(performance.now() - dueMs);
  };
  while (asked.length < total) {
    const due = Math.min(total, Math.floor(((performance.now() - beganMs) * perSecond) / 1_000));
    while (asked.length < due) asked.push(timed(asked.length, beganMs + (asked.length * 1_000) / perSecond));
    await new Promise<void>((resolve) => setTimeout(resolve, 1));
  }
  await Promise.all(asked);
  latencies.sort((a, b) => a - b);
  return latencies[Math.floor(0.99 * latencies.length)] ?? Number.NaN;
}

/**
 * Creates the sequences as `idalloc sequence create` does, but all at once: the ledger is empty, and nobody else writes
 * to it.
 */
async function createSequences(realm: Realm): Promise<void> {
  const ends = Array.from({ length: PARTITIONS }, () => 0);
  const records = names.map((name) => {
    const partition = partitionFor(Buffer.from(name), PARTITIONS, () => 0);
    const at = ends[partition] ?? 0;
    ends[partition] = at + 1;
    const what = { next: 1, step: 1, max: Number.MAX_SAFE_INTEGER - 1, format: '', closed: false, edition: 1 };
    const place = { end: 0, through: -1, at, first: undefined, isLoss: false };
    const entry = { kind: 'statement', ...place, ...what } as const;
    return {
      ...{ partition, key: encodeStatementKey(name), value: encodeLedgerEntry(entry) },
      headers: statementHeaders(entry),
    };
  });
  await realm.sendRaw(records, realm.ledgerTopic);
}

function kindsOf(client: IdClient, database: PostgresNumbers | undefined): Readonly<Record<string, Ask>> {
  const numbers = (name: string, nth: number) =>
    client.sequence(name).take(count, { correlationId: `${run}-${name}-${nth}` });
  const own = {
    ids: () => client.request({ count }),
    one_sequence: (nth: number) => numbers('s0', nth),
    many_sequences: (nth: number) => numbers(anyOf(nth), nth),
  };
  if (database === undefined) return own;
  return {
    ...own,
    postgres_one: (nth) => database.take('s0', count, `${run}-${nth}`),
    postgres_many: (nth) => database.take(anyOf(nth), count, `${run}-${nth}`),
  };
}

/** What each kind is compared with: the usual way in a database. */
const RIVALS: Readonly<Record<string, string>> = { one_sequence: 'postgres_one', many_sequences: 'postgres_many' };

/**
 * The share of their highest rates at which IDs are asked for alone, and then beside numbers at the same share of
 * theirs.
 */
const SHARED_LOAD = 0.25;

/** The medians over the rounds, in which the kinds alternate. */
async function measureAll(kinds: Readonly<Record<string, Ask>>, etcdEndpoints: readonly string[]) {
  const rates: Record<string, number[]> = {};
  const p99s: Record<string, number[]> = {};
  const besides: Record<string, number[]> = {};
  const etcd: Record<string, { highest: EtcdLoad; half: EtcdLoad }> = {};
  const [alone, beside]: [number[], number[]] = [[], []];
  for (const ask of Object.values(kinds)) await highestRate(ask); // so that all is compiled
  for (let round = 1; round <= rounds; round += 1) {
    for (const [kind, ask] of Object.entries(kinds)) {
      const ofHighest = await measureEtcd(etcdEndpoints);
      const perSecond = await highestRate(ask);
      const highest = await ofHighest();
      rates[kind] = [...(rates[kind] ?? []), perSecond];
      const ofHalf = await measureEtcd(etcdEndpoints);
      const p99Ms = await p99At(median(rates[kind]) / 2, ask);
      etcd[kind] = { highest, half: await ofHalf() };
      p99s[kind] = [...(p99s[kind] ?? []), p99Ms];
      say(`${kind}: ${Math.round(perSecond)} requests/s, p99 ${p99Ms.toFixed(1)} ms at half of that`);
    }
    for (const [kind, rival] of Object.entries(RIVALS)) {
      const [ask, rivalRates] = [kinds[kind], rates[rival]];
      if (ask === undefined || rivalRates === undefined) continue;
      const p99Ms = await p99At(median(rivalRates) / 2, ask);
      besides[kind] = [...(besides[kind] ?? []), p99Ms];
      say(`${kind}: p99 ${p99Ms.toFixed(1)} ms at half of ${rival}`);
    }
    const { ids, many_sequences } = kinds;
    if (ids === undefined || many_sequences === undefined) continue;
    const shareOf = (kind: string) => SHARED_LOAD * median(rates[kind] ?? []);
    alone.push(await p99At(shareOf('ids'), ids));
    const [p99Ms] = await Promise.all([p99At(shareOf('ids'), ids), p99At(shareOf('many_sequences'), many_sequences)]);
    beside.push(p99Ms);
    say(`ids: p99 ${alone.at(-1)?.toFixed(1)} ms alone, ${p99Ms.toFixed(1)} ms beside numbers`);
  }
  const idsBesideNumbers = {
    p99_ms_alone: ratio(median(alone)),
    p99_ms_beside_numbers: ratio(median(beside)),
    p99_to_alone: ratio(median(beside) / median(alone)),
  };
  const of = (kind: string) => ({
    perSecond: median(rates[kind] ?? []),
    p99Ms: median(p99s[kind] ?? []),
    /** At half of the rival's rate. */
    p99BesideMs: median(besides[kind] ?? []),
    /** In the last round. */
    etcd: etcd[kind],
  });
  return { of, idsBesideNumbers };
}

const ratio = (value: number) => Number(value.toFixed(2));

const servers = await startProcessServers(say, SUITE, { isMeasured: true });
try {
  await using database = await startNumbers(names, values.connections);
  say(
    database === undefined
      ? 'PostgreSQL is not installed, so it is left out (Debian: postgresql)'
      : `PostgreSQL ${database.version}`,
  );
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  await createSequences(realm);
  await realm.worker().ready();
  const { replyTopic, requestTopic } = realm;
  await using client = await IdClient.connect({ brokers: servers.brokers, replyTopic, requestTopic, prefetch: false });
  const kinds = kindsOf(client, database);
  const { of, idsBesideNumbers } = await measureAll(kinds, servers.etcdEndpoints);
  const result = Object.keys(kinds).map((kind) => {
    const { perSecond, p99Ms, p99BesideMs, etcd } = of(kind);
    const rival = RIVALS[kind];
    const beside = rival === undefined || database === undefined ? undefined : of(rival);
    const figures = {
      requests_per_second: Math.round(perSecond),
      numbers_per_second: Math.round(perSecond * count),
      p99_ms_at_half_load: ratio(p99Ms),
      rate_to_ids: ratio(perSecond / of('ids').perSecond),
      ...(beside && {
        rate_to_postgres: ratio(perSecond / beside.perSecond),
        p99_ms_at_half_load_of_postgres: ratio(p99BesideMs),
        p99_to_postgres: ratio(p99BesideMs / beside.p99Ms),
      }),
      ...(kind.startsWith('postgres') ? {} : { etcd }),
    };
    return [kind, figures] as const;
  });
  if (database !== undefined) {
    const { numbers, documents } = await database.taken();
    if (numbers !== documents * count)
      throw new Error(`PostgreSQL gave out ${numbers} numbers for ${documents} documents`);
  }
  const figures = { ...Object.fromEntries(result), ids_beside_numbers: idsBesideNumbers };
  process.stdout.write(`${JSON.stringify(figures, null, values.json ? undefined : 2)}\n`);
} finally {
  await servers.stop();
}
