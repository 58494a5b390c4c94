import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import { fillLedger } from '../support/filled-ledger.ts';
import type { Followed } from '../support/followed.ts';
import { Load, partitionOf } from '../support/load.ts';
import { longestOf, longestWaits } from '../support/longest-wait.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { completeCopies, copiesOf, isJoin, shareIn, shareOf, sharesOfGroup } from '../support/shares.ts';
import { report } from '../support/whole-history.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const SESSION_MS = 6_000;
const LINGER_MS = 1_000;
/** So many in each partition that a restore takes a moment. */
const ENTRIES = 15_000;
const ANSWERED = 300;
const WAIT = { timeout: 60_000, interval: 50 };
/** Partitions that are not to wait: whoever waited for a session to end, or for a restore of all, would wait longer. */
const UNANSWERED_MS = SESSION_MS / 2;
const NUMBERS = Array.from({ length: PARTITIONS }, (_, partition) => partition);

type Env = Readonly<Record<string, string>>;

const isRead = ({ msg }: LogLine) => msg === 'reading a ledger partition';
const isDeleted = ({ msg }: LogLine) => msg?.startsWith('deleting the copy of a ledger partition') === true;
const sorted = (partitions: Iterable<number>) => [...partitions].sort((one, other) => one - other);

interface Readiness {
  readonly status: string;
  readonly reason?: string;
  readonly detail?: string;
}

async function readiness(worker: WorkerProcess): Promise<Readiness> {
  return (await (await worker.ops('/readyz')).json()) as Readiness;
}

/** Workers that share the partitions. */
class Fleet implements AsyncDisposable {
  readonly realm: Realm;
  readonly replies: Followed;
  readonly workers: WorkerProcess[] = [];
  #load: Load | undefined;

  private constructor(realm: Realm, replies: Followed) {
    this.realm = realm;
    this.replies = replies;
  }

  /** Resolves when so many workers have equal shares of the partitions, each with `entries` in the ledger, and no copies else. */
  static async open(size: number, { entries = 0, env = {} }: { entries?: number; env?: Env } = {}): Promise<Fleet> {
    const always = { KAFKA_SESSION_TIMEOUT_MS: String(SESSION_MS), INDEX_LINGER_MS: '0' };
    const realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env: { ...always, ...env } });
    const fleet = new Fleet(realm, await realm.follow());
    if (entries > 0) await fillLedger(realm, entries);
    for (let i = 0; i < size; i += 1) fleet.start();
    await fleet.balanced();
    await fleet.inOrder();
    return fleet;
  }

  start(env: Env = {}): WorkerProcess {
    const worker = this.realm.worker(env);
    this.workers.push(worker);
    return worker;
  }

  /** Kills one as a power cut would. */
  async kill(worker: WorkerProcess): Promise<void> {
    this.workers.splice(this.workers.indexOf(worker), 1);
    worker.kill('SIGKILL');
    await worker.exit;
  }

  balanced(): Promise<unknown> {
    return Promise.all(this.workers.map((worker) => worker.hasPartitions(PARTITIONS / this.workers.length)));
  }

  /** Resolves when the metrics of all workers tell of the copies that follow from their shares, and of no others. */
  async inOrder(): Promise<void> {
    const differing = async () => {
      const pairs = await Promise.all(
        this.workers.map(async (worker) => [await copiesOf(worker), completeCopies(shareOf(worker))] as const),
      );
      return pairs.filter(([found, expected]) => !isDeepStrictEqual(found, expected));
    };
    await expect.poll(differing, WAIT).toEqual([]);
  }

  /** Requests from now on. */
  get load(): Load {
    this.#load ??= new Load(this.realm, { partitions: PARTITIONS });
    return this.#load;
  }

  /** Resolves when all that was asked by now, and some more, has been answered. */
  answered(): Promise<unknown> {
    return this.replies.replies(this.load.requests.length + ANSWERED);
  }

  /** How long a request of each partition waited at the most, of those since then; all are answered first. */
  async longestWaits(fromMs: number): Promise<ReadonlyMap<number, number>> {
    const asks = await this.load.stop();
    await this.replies.replies(asks.length);
    return longestWaits(asks, this.replies, fromMs - 1_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#load?.stop();
    await this.realm[Symbol.asyncDispose]();
  }
}

/** The partitions of which an index directory that nobody uses has a copy. */
function partitionsOnDisk(directory: string): readonly number[] {
  using db = new DatabaseSync(join(directory, 'ledger-index.sqlite'), { readOnly: true });
  const tables = db
    .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'run!_%' ESCAPE '!'")
    .all();
  return sorted(tables.map(({ name }) => Number(/^run_(\d+)$/.exec(String(name))?.[1])));
}

test('with one standby a worker keeps copies of what it owns and stands by for, and deletes others after a while', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'idalloc-shares-'));
  try {
    await using fleet = await Fleet.open(1, { env: { INDEX_LINGER_MS: String(LINGER_MS) } });
    const first = fleet.start({ INDEX_DIR: directory });
    await fleet.balanced();
    await expect.poll(() => copiesOf(first), WAIT).toHaveProperty('size', PARTITIONS);
    fleet.start();
    await fleet.balanced();

    await fleet.inOrder();
    const shares = fleet.workers.map(shareOf);
    const told = await sharesOfGroup(fleet.realm);
    expect(told).toHaveLength(shares.length);
    expect(told).toEqual(expect.arrayContaining(shares));
    const all = shares.flatMap(({ partitions, standbys }) => [...partitions, ...standbys]);
    expect(sorted(all)).toEqual(sorted([...NUMBERS, ...NUMBERS]));

    const kept = sorted((await copiesOf(first)).keys());
    const gone = NUMBERS.filter((partition) => !kept.includes(partition));
    expect(gone).toHaveLength(PARTITIONS / 3);
    for (const partition of gone) {
      const deleted = await first.line((line) => isDeleted(line) && line.partition === partition);
      const needed = (line: LogLine) => [...shareIn(line).partitions, ...shareIn(line).standbys].includes(partition);
      const joins = first.lines.filter(isJoin);
      const last = joins.findLastIndex(needed);
      // By the worker's own clock: when a test sees a line depends on what else the machine does.
      expect(Number(deleted.time) - Number(joins[last + 1]?.time)).toBeGreaterThan(0.9 * LINGER_MS);
    }
    await first.stop();
    expect(partitionsOnDisk(directory)).toEqual(kept);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test('kill -9: those who stand by answer for the partitions of the dead, without a restore and with its batches', async ({
  annotate,
}) => {
  await using fleet = await Fleet.open(3, { env: { INDEX_ACCEPTABLE_LAG: '0' } });
  const [dead, ...others] = fleet.workers as [WorkerProcess, ...WorkerProcess[]];
  await fleet.answered();
  const lost = shareOf(dead).partitions;
  const known = fleet.load.requests.filter(({ correlationId }) => lost.includes(partitionOf(correlationId)));
  const before = others.map((worker) => ({ worker, ...shareOf(worker), from: worker.lines.length }));
  const killedMs = performance.now();
  await fleet.kill(dead);
  await Promise.all(before.map(({ worker, from }) => worker.line(isJoin, from)));
  await fleet.answered();
  const heirs = before.flatMap(({ worker, standbys, from }) => {
    const at = worker.lines.findIndex((line, i) => i >= from && isJoin(line));
    const restored = worker.lines.slice(from, at).filter(isRead);
    expect(restored).toEqual([]);
    return shareIn(worker.lines[at]).partitions.filter((partition) => standbys.includes(partition));
  });
  expect(sorted(heirs)).toEqual(lost);
  const waits = await fleet.longestWaits(killedMs);
  await report(
    annotate,
    `kill -9 with a session of ${SESSION_MS} ms: partitions with a standby waited ${longestOf(waits, lost)} ms at the most`,
  );
  await fleet.realm.send(known);
  for (const { correlationId } of known) {
    const first = await fleet.replies.reply(correlationId);
    const again = await fleet.replies.reply(correlationId, 1);
    expect(again.replayed).toBe(true);
    expect(again.seen.message.value).toEqual(first.seen.message.value);
  }
});

test('a worker with nothing joins under load: it gets partitions when its copies are complete, and nobody waits', async ({
  annotate,
}) => {
  await using fleet = await Fleet.open(2, { entries: ENTRIES, env: { INDEX_ACCEPTABLE_LAG: '0' } });
  await fleet.answered();
  const begunMs = performance.now();
  const joiner = fleet.start();
  const warmUp = shareIn(await joiner.line(isJoin));
  expect(warmUp).toMatchObject({ partitions: [], warmups: { length: PARTITIONS / 3 } });
  let looks = 0;
  let restoring = 0;
  const untilMs = performance.now() + WAIT.timeout;
  for (; joiner.partitions().length === 0; looks += 1) {
    if (performance.now() > untilMs) throw new Error('the worker that joined got no partition');
    const { reason } = await readiness(joiner);
    expect(reason).not.toBe('INDEX_RESTORING');
    const copies = [...(await copiesOf(joiner)).values()];
    if (copies.some(({ state }) => state === 'restoring')) restoring += 1;
  }
  const joinedMs = performance.now() - begunMs;
  expect(restoring).toBeGreaterThan(0);
  const { partitions } = shareOf(joiner);
  const copies = await copiesOf(joiner);
  for (const partition of partitions) expect(copies.get(partition)?.state).toBe('serving');
  await fleet.balanced();
  await fleet.answered();
  const longestMs = longestOf(await fleet.longestWaits(begunMs));
  await report(
    annotate,
    `a worker joins ${PARTITIONS * ENTRIES} entries: partitions after ${Math.round(joinedMs)} ms, ${restoring} of ${looks} looks saw a restore; no request waited longer than ${longestMs} ms`,
  );
  expect(longestMs).toBeLessThan(UNANSWERED_MS);
});

test("without standbys a dead worker's partitions wait for their restore, others and HTTP do not, and /readyz says so", async ({
  annotate,
}) => {
  await using fleet = await Fleet.open(2, { entries: 4 * ENTRIES, env: { INDEX_STANDBYS: '0' } });
  const [dead, heir] = fleet.workers as [WorkerProcess, WorkerProcess];
  const lost = shareOf(dead).partitions;
  const kept = shareOf(heir).partitions;
  await fleet.answered();
  const killedMs = performance.now();
  await fleet.kill(dead);
  await fleet.balanced();
  const joinedMs = performance.now();
  const api = await heir.api();
  const seen: Readiness[] = [];
  let ids = 0;
  for (let last = await readiness(heir); last.status !== 'ready'; last = await readiness(heir)) {
    seen.push(last);
    const { status } = await fetch(`${api}/api/v1/id`, { method: 'POST' });
    if (status === 200) ids += 1;
  }
  const restoredMs = performance.now();
  expect(new Set(seen.map(({ reason }) => reason))).toEqual(new Set(['INDEX_RESTORING']));
  const told = seen.flatMap(({ detail = '' }) => detail.split('; '));
  expect(told.filter((text) => !/^ledger partition \d+: (at \d+ of \d+|not started)$/.test(text))).toEqual([]);
  expect(told.every((text) => lost.includes(Number(/\d+/.exec(text)?.[0])))).toBe(true);
  expect(ids).toBe(seen.length);
  await fleet.answered();
  const waits = await fleet.longestWaits(killedMs);
  await report(
    annotate,
    `a restore of ${lost.length * 4 * ENTRIES} entries in ${Math.round(restoredMs - joinedMs)} ms, HTTP served ${ids} times meanwhile; the dead worker's partitions waited ${longestOf(waits, lost)} ms at the most, the others ${longestOf(waits, kept)} ms`,
  );
  expect(longestOf(waits, kept)).toBeLessThan(UNANSWERED_MS);
});
