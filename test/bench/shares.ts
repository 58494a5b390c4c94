import { statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { fillLedger } from '../support/filled-ledger.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import type { TestServers } from '../support/servers.ts';
import { SUITE } from '../support/servers.ts';
import { isJoin } from '../support/shares.ts';
import type { LogLine } from '../support/worker-process.ts';
import { CopiesFleet, type Cost, type TakenOver } from './copies-fleet.ts';
import { optionsOf } from './options.ts';

/**
 * The cost of copies of the ledger index on real servers: restores from Kafka by workers with empty index directories,
 * disk and memory of each worker, take-over of a killed worker's partitions with a standby and without, and how many
 * partitions move when workers are added, leave and restart.
 *
 * memory_bytes is what a worker uses above a worker with an empty ledger. Workers and servers share the machine.
 */
const values = optionsOf(
  'bench:shares',
  ["Measures copies of the ledger's index: restore, disk and memory per worker, take-over, and moves of partitions."],
  { entries: 1_000_000, partitions: 12, workers: [1, 2, 4], standbys: '1,all', 'moved-partitions': 60 },
  {
    entries: 'in the ledger; 10,000,000 take some 3 GB below the temporary directory',
    workers: 'fleets to measure, by their number of workers',
    standbys: 'values of INDEX_STANDBYS to measure',
    'moved-partitions': 'partitions of the topic on which moves are counted; 0 skips that',
  },
);
const { partitions, workers: counts, 'moved-partitions': movedPartitions } = values;
const perPartition = Math.ceil(values.entries / partitions);
const entries = perPartition * partitions;
const standbys = values.standbys.split(',');

/** Space needed per entry: about half of it for the ledger, the rest for copies. */
const DISK_BYTES_AN_ENTRY = 500;
const SESSION_MS = 6_000;
const ENV = { KAFKA_SESSION_TIMEOUT_MS: String(SESSION_MS) };
/** Copies that a worker began before the others joined are deleted immediately, so that they don't count. */
const NO_LINGER = { INDEX_LINGER_MS: '0' };
/**
 * Entries of each partition on the topic where partitions move: more than a copy may lag behind there, so that copies
 * count.
 */
const ENTRIES_MOVED = 200;
const MOVING_WORKERS = 4;
const say = (line: string) => process.stderr.write(`${line}\n`);

const isRead = ({ msg }: LogLine) => msg === 'reading a ledger partition';
const perSecond = (units: number, ms: number) => Math.round((units / ms) * 1_000);

interface Restored {
  readonly workers: number;
  readonly standbys: string;
  /** Time from the start of the first copy until all copies are complete. */
  readonly restore_ms: number;
  readonly entries_per_s: number;
  /** Time until the shares were balanced as well. */
  readonly settled_ms: number;
  readonly each: readonly (Cost & { readonly entries: number; readonly memory_bytes: number })[];
  /** The take-over after one of two workers was killed. */
  readonly take_over?: TakenOver & Readonly<Record<string, number>>;
}

async function restore(realm: Realm, workers: number, standbys: string, empty: Cost): Promise<Restored> {
  await using fleet = new CopiesFleet(realm, { ...NO_LINGER, INDEX_STANDBYS: standbys });
  fleet.start(workers);
  await fleet.complete();
  const completeMs = performance.now();
  const begunMs = Math.min(...fleet.workers.flatMap(({ lines }) => lines.filter(isRead).map(({ seenMs }) => seenMs)));
  await fleet.settled();
  const settledMs = performance.now() - begunMs;
  const costs = await fleet.costs();
  const each = costs.map((cost) => {
    return { ...cost, entries: cost.copies * perPartition, memory_bytes: cost.rss_bytes - empty.rss_bytes };
  });
  const all = each.reduce((sum, one) => sum + one.entries, 0);
  const restoreMs = completeMs - begunMs;
  const result = {
    workers,
    standbys,
    restore_ms: Math.round(restoreMs),
    entries_per_s: perSecond(all, restoreMs),
    settled_ms: Math.round(settledMs),
    each,
    ...(workers === 2 && { take_over: await takeOver(fleet) }),
  };
  say(`${workers} workers, standbys ${standbys}: ${JSON.stringify(result)}`);
  return result;
}

/** Kills one of two workers. Copies that the other one lacks are restored after it was assigned the partitions. */
async function takeOver(fleet: CopiesFleet): Promise<TakenOver & Readonly<Record<string, number>>> {
  const reads = () => fleet.workers.at(-1)?.lines.filter(isRead).length ?? 0;
  const before = reads();
  const taken = await fleet.takeOver();
  const restored = (reads() - before) * perPartition;
  const rate = perSecond(restored, taken.last_answer_ms - taken.joined_ms);
  return { ...taken, restored_entries: restored, entries_per_s: rate };
}

interface Moved {
  /** Partitions with another owner afterwards. */
  readonly moved: number;
  /** How often a partition was assigned to a worker meanwhile. */
  readonly given: number;
}

/** Counts the partitions that move while the fleet changes. */
async function moves(fleet: CopiesFleet, change: () => void | Promise<void>): Promise<Moved> {
  const before = fleet.owners();
  const known = new Map(fleet.workers.map((worker) => [worker, worker.lines.length]));
  await change();
  await fleet.settled();
  const after = fleet.owners();
  const joins = fleet.workers.flatMap((worker) => worker.lines.slice(known.get(worker) ?? 0).filter(isJoin));
  const given = joins.reduce((sum, { added }) => sum + (added as readonly number[]).length, 0);
  return { moved: [...after].filter(([partition, owner]) => before.get(partition) !== owner).length, given };
}

async function movesOf(servers: TestServers): Promise<object> {
  const env = { ...ENV, INDEX_ACCEPTABLE_LAG: '0' };
  await using realm = await Realm.create(servers, { partitions: movedPartitions, env });
  await fillLedger(realm, ENTRIES_MOVED);
  await using fleet = new CopiesFleet(realm);
  fleet.start(MOVING_WORKERS);
  await fleet.settled();
  const join = await moves(fleet, () => fleet.start(1));
  const leave = await moves(fleet, () => fleet.stopLast());
  const before = fleet.owners();
  const restarts: Moved[] = [];
  for (let at = 0; at < MOVING_WORKERS; at += 1) restarts.push(await moves(fleet, () => fleet.restart(at)));
  const after = fleet.owners();
  const moved = [...after].filter(([partition, owner]) => before.get(partition) !== owner).length;
  const result = { partitions: movedPartitions, workers: MOVING_WORKERS, join, leave, rolling: { moved, restarts } };
  say(`moves: ${JSON.stringify(result)}`);
  return result;
}

async function costOfNothing(servers: TestServers): Promise<Cost> {
  await using realm = await Realm.create(servers, { partitions, env: ENV });
  await using fleet = new CopiesFleet(realm);
  fleet.start(1);
  await fleet.settled();
  const [cost] = await fleet.costs();
  say(`a worker with an empty ledger: ${JSON.stringify(cost)}`);
  return cost as Cost;
}

async function main(servers: TestServers): Promise<object> {
  const empty = await costOfNothing(servers);
  await using realm = await Realm.create(servers, { partitions, env: ENV });
  const begunMs = performance.now();
  await fillLedger(realm, perPartition);
  const fillMs = performance.now() - begunMs;
  say(`${entries} entries written in ${Math.round(fillMs)} ms`);
  const restored: Restored[] = [];
  for (const count of counts) {
    // With one or two workers, one standby gives each of them every copy, as more would; two workers also run without
    // any.
    const kinds = count > 2 ? standbys : [...standbys.slice(0, 1), ...(count === 2 ? ['0'] : [])];
    for (const kind of kinds) restored.push(await restore(realm, count, kind, empty));
  }
  return {
    entries,
    partitions,
    session_ms: SESSION_MS,
    fill_entries_per_s: perSecond(entries, fillMs),
    empty,
    restored,
    ...(movedPartitions > 0 && { moves: await movesOf(servers) }),
  };
}

const { bavail, bsize } = statfsSync(tmpdir());
if (bavail * bsize < entries * DISK_BYTES_AN_ENTRY)
  throw new Error(`${tmpdir()} has too little free space for ${entries} entries: lower --entries, or set TMPDIR`);
const servers = await startProcessServers(say, SUITE, { isMeasured: true });
try {
  const result = await main(servers);
  process.stdout.write(`${JSON.stringify(result, null, values.json ? undefined : 2)}\n`);
} finally {
  await servers.stop();
}
