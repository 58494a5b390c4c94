import { v7 } from 'uuid';
import { type CapacityData, type Crash, type Door, IN_FLIGHT } from '../../../ops/capacity/data.ts';
import { IdClient } from '../../../src/client/index.ts';
import { loadHttp } from '../../support/http-load.ts';
import { Realm } from '../../support/realm.ts';
import { closedLoop } from '../closed-loop.ts';
import { startPostgres } from '../postgres.ts';
import { Redis } from './redis.ts';
import type { ReportServers } from './servers.ts';
import type { Effort } from './serving.ts';

/** IDs in each request. */
const COUNTS = [1, 100, 1_000] as const;
const PARTITIONS = 12;
/** To PostgreSQL; one to Redis, whose client sends without waiting for answers. */
const CONNECTIONS = 32;
const SECONDS = 4;
const WARM_UP_SECONDS = 1;
/** The broker and the worker have just been started, and compile their code meanwhile. */
const YOUNG_SECONDS = 15;
/** For the HTTP API, whose load is a number of requests. */
const HTTP_REQUESTS: Readonly<Record<number, number>> = { 1: 60_000, 100: 30_000, 1000: 6_000 };
const DRAWN = 1_000_000;

interface Result {
  readonly doors: readonly Door[];
  readonly crashes: readonly Crash[];
  /** Names and versions of the servers. */
  readonly servers: readonly string[];
}

/** What a door's requests reach with IN_FLIGHT of them at a time, after a warm-up. */
async function measure(
  name: string,
  count: number,
  { scale, say }: Effort,
  ask: () => Promise<unknown>,
): Promise<Door> {
  await closedLoop(ask, IN_FLIGHT, WARM_UP_SECONDS * scale);
  return told(say, name, count, await closedLoop(ask, IN_FLIGHT, SECONDS * scale));
}

function told(
  say: Effort['say'],
  name: string,
  count: number,
  { perSecond, p50Ms, p99Ms }: { perSecond: number; p50Ms: number; p99Ms: number },
): Door {
  const rounded = (value: number) => Number(value.toFixed(2));
  const door = { name, count, requestsPerS: Math.round(perSecond), p50Ms: rounded(p50Ms), p99Ms: rounded(p99Ms) };
  say(JSON.stringify(door));
  return door;
}

/** The two doors of a worker: requests over Kafka through the client library, and the HTTP API. */
async function ownDoors({ servers }: ReportServers, effort: Effort): Promise<readonly Door[]> {
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  const worker = realm.worker({ LOG_LEVEL: 'info' });
  await worker.ready();
  const url = await worker.api();
  const { replyTopic, requestTopic } = realm;
  await using client = await IdClient.connect({ brokers: servers.brokers, replyTopic, requestTopic, prefetch: false });
  const doors: Door[] = [];
  await closedLoop(() => client.request({ count: 1 }), IN_FLIGHT, YOUNG_SECONDS * effort.scale);
  for (const count of COUNTS) {
    doors.push(await measure('idalloc over Kafka', count, effort, () => client.request({ count })));
    const requests = Math.max(IN_FLIGHT, Math.round(effort.scale * (HTTP_REQUESTS[count] ?? 0)));
    const asked = { count, requests, connections: IN_FLIGHT, encoding: 'ranges' } as const;
    const { requestsPerSecond, failures, ...latency } = await loadHttp({ url, ...asked });
    if (failures > 0) throw new Error(`${failures} of ${requests} HTTP requests failed`);
    doors.push(told(effort.say, 'idalloc over HTTP', count, { perSecond: requestsPerSecond, ...latency }));
  }
  return doors;
}

/** A block of numbers is one increment. */
async function redisDoors(name: string, settings: readonly string[], effort: Effort): Promise<Result> {
  await using redis = await Redis.start(settings);
  if (redis === undefined) return missing('redis-server', effort);
  const { client } = redis;
  const doors: Door[] = [];
  for (const count of COUNTS) doors.push(await measure(name, count, effort, () => client.incrBy('ids', count)));
  const last = await client.incr('ids');
  await redis.crash();
  const crash = { name, last, next: await redis.client.incr('ids') };
  return { doors, crashes: [crash], servers: [`Redis ${await redis.version()}`] };
}

const POSTGRES = 'PostgreSQL nextval';
const sequenceOf = (count: number) => `ids_${count}`;

/** A block of numbers is one step of a sequence that counts in blocks, as object mappers use it. */
async function postgresDoors(effort: Effort): Promise<Result> {
  await using server = await startPostgres(CONNECTIONS);
  if (server === undefined) return missing('postgresql', effort);
  const { sql, version } = server;
  const doors: Door[] = [];
  const nextOf = async (name: string) => Number((await sql`select nextval(${name}) as id`)[0]?.id);
  for (const count of COUNTS) {
    const name = sequenceOf(count);
    await sql.unsafe(`create sequence ${name} increment by ${count}`);
    doors.push(await measure(POSTGRES, count, effort, () => sql`select nextval(${name})`));
  }
  const last = await nextOf(sequenceOf(1));
  await server.crash();
  const crash = { name: POSTGRES, last, next: await nextOf(sequenceOf(1)) };
  return { doors, crashes: [crash], servers: [`PostgreSQL ${version.split(' ')[0]}`] };
}

function missing(name: string, { say }: Effort): Result {
  say(`${name} is not installed, so it is left out (apt-get install ${name})`);
  return { doors: [], crashes: [], servers: [] };
}

/** What a user may call for unique numbers, each through its usual client. */
export async function doors(report: ReportServers, effort: Effort): Promise<Result> {
  const own = await ownDoors(report, effort);
  const others = [
    await redisDoors('Redis INCRBY, as installed', [], effort),
    await redisDoors('Redis INCRBY, fsync always', ['--appendonly', 'yes', '--appendfsync', 'always'], effort),
    await postgresDoors(effort),
  ];
  return {
    doors: [...own, ...others.flatMap((one) => one.doors)],
    crashes: others.flatMap((one) => one.crashes),
    servers: [...new Set(others.flatMap((one) => one.servers))],
  };
}

/** IDs from memory: UUIDs, and the client's buffer, which a worker fills beforehand. */
export async function inProcess({ servers }: ReportServers, { scale }: Effort): Promise<CapacityData['inProcess']> {
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  await realm.worker().ready();
  const { replyTopic, requestTopic } = realm;
  const drawn = Math.round(DRAWN * scale);
  const buffer = { idsPerSecond: drawn, coverSeconds: 2 };
  await using client = await IdClient.connect({ brokers: servers.brokers, replyTopic, requestTopic, ...buffer });
  await client.ready(drawn);
  const nsPerId = (draw: () => unknown) => {
    let last: unknown;
    const begunMs = performance.now();
    for (let i = 0; i < drawn; i += 1) last = draw();
    const tookMs = performance.now() - begunMs;
    if (last === undefined) throw new Error('nothing was drawn');
    return Number(((tookMs * 1e6) / drawn).toFixed(1));
  };
  return [
    { name: 'UUIDv7, in process', nsPerId: nsPerId(() => v7()) },
    { name: 'idalloc client, next()', nsPerId: nsPerId(() => client.next()) },
  ];
}
