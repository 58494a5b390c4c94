import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isDeepStrictEqual } from 'node:util';
import { expect, test } from 'vitest';
import { fillLedger } from '../support/filled-ledger.ts';
import type { Followed } from '../support/followed.ts';
import { Load, partitionOf } from '../support/load.ts';
import { firstAnswerMs, longestOf, longestWaits } from '../support/longest-wait.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { completeCopies, copiesOf, isJoin, shareIn, shareOf, sharesOfGroup } from '../support/shares.ts';
import { report } from '../support/whole-history.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const SESSION_MS = 6_000;
const LINGER_MS = 1_000;
/** Entries of each partition, enough that a restore takes a moment. */
const ENTRIES = 15_000;
const ANSWERED = 300;
const WAIT = { timeout: 120_000, interval: 50 };
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

/** Workers that share the partitions of a realm. */
class Fleet implements AsyncDisposable {
  readonly realm: Realm;
  readonly replies: Followed;
  readonly workers: WorkerProcess[] = [];
  #load: Load | undefined;

  private constructor(realm: Realm, replies: Followed) {
    this.realm = realm;
    this.replies = replies;
  }

  /**
   * Opens workers; resolves when they have equal shares of the partitions, with `entries` each, and no other copies.
   */
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

  /** Kills a worker with SIGKILL. */
  async kill(worker: WorkerProcess): Promise<void> {
    this.workers.splice(this.workers.indexOf(worker), 1);
    worker.kill('SIGKILL');
    await worker.exit;
  }

  balanced(): Promise<unknown> {
    return Promise.all(this.workers.map((worker) => worker.hasPartitions(PARTITIONS / this.workers.length)));
  }

  /** Resolves when all workers have exactly the copies of their shares, by their metrics. */
  async inOrder(): Promise<void> {
    const differing = async () => {
      const pairs = await Promise.all(
        this.workers.map(async (worker) => [await copiesOf(worker), completeCopies(shareOf(worker))] as const),
      );
      return pairs.filter(([found, expected]) => !isDeepStrictEqual(found, expected));
    };
    await expect.poll(differing, WAIT).toEqual([]);
  }

  /** The load. */
  get load(): Load {
    this.#load ??= new Load(this.realm, { partitions: PARTITIONS });
    return this.#load;
  }

  /** Resolves when all requests sent so far, and some more, are answered. */
  answered(): Promise<unknown> {
    return this.replies.replies(this.load.requests.length + ANSWERED);
  }

  /** The longest wait of a request since `fromMs`, for each partition; waits until all are answered. */
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

/** The partitions of which an unused index directory has a copy. */
function partitionsOnDisk(directory: string): readonly number[] {
  using db = new DatabaseSync(join(directory, 'ledger-index.sqlite'), { readOnly: true });
  const tables = db
    .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'run!_%' ESCAPE '!'")
    .all();
  return sorted(tables.map(({ name }) => Number(/^run_(\d+)$/.exec(String(name))?.[1])));
}

test('with one standby a worker keeps copies of what it owns and stands by for, and deletes others after INDEX_LINGER_MS', async () => {
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
    const reported = await sharesOfGroup(fleet.realm);
    expect(reported).toHaveLength(shares.length);
    expect(reported).toEqual(expect.arrayContaining(shares));
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

test('after kill -9 the standbys serve the partitions of the killed worker, without a restore and with its batches', async ({
  annotate,
}) => {
  await using fleet = await Fleet.open(3, { env: { ...SHORT_SESSION, INDEX_ACCEPTABLE_LAG: '0' } });
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
    `kill -9 with a session of ${SHORT_SESSION.KAFKA_SESSION_TIMEOUT_MS} ms: partitions with a standby waited at most ${longestOf(waits, lost)} ms`,
  );
  await fleet.realm.send(known);
  for (const { correlationId } of known) {
    const first = await fleet.replies.reply(correlationId);
    const again = await fleet.replies.reply(correlationId, 1);
    expect(again.replayed).toBe(true);
    expect(again.seen.message.value).toEqual(first.seen.message.value);
  }
});

test('a worker with an empty index that joins under load gets partitions once its copies are complete, and nothing waits', async ({
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
    if (performance.now() > untilMs) throw new Error('the worker that joined got no partition in time');
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
});

test("without standbys a killed worker's partitions wait for a restore, which /readyz reports; others and HTTP do not wait", async ({
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
  const refusals: unknown[] = [];
  for (let last = await readiness(heir); last.status !== 'ready'; last = await readiness(heir)) {
    seen.push(last);
    const response = await fetch(`${api}/api/v1/id`, { method: 'POST' });
    if (response.status !== 200) refusals.push(((await response.json()) as { code: unknown }).code);
  }
  const restoredMs = performance.now();
  const isOther = (reason: unknown) => reason !== 'PROCESS_PAUSED'; // true now and then on a busy machine
  const restoring = seen.filter(({ reason }) => isOther(reason));
  expect(new Set(restoring.map(({ reason }) => reason))).toEqual(new Set(['INDEX_RESTORING']));
  const details = restoring.flatMap(({ detail = '' }) => detail.split('; '));
  expect(details.filter((text) => !/^ledger partition \d+: (at \d+ of \d+|not started)$/.test(text))).toEqual([]);
  expect(details.every((text) => lost.includes(Number(/\d+/.exec(text)?.[0])))).toBe(true);
  expect(refusals.filter(isOther)).toEqual([]);
  await fleet.answered();
  const waits = await fleet.longestWaits(killedMs);
  await report(
    annotate,
    `a restore of ${lost.length * 4 * ENTRIES} entries in ${Math.round(restoredMs - joinedMs)} ms, HTTP served ${seen.length - refusals.length} times meanwhile; the dead worker's partitions waited ${longestOf(waits, lost)} ms at the most, the others ${longestOf(waits, kept)} ms`,
  );
  for (const partition of kept) {
    const only = { sentFromMs: killedMs, partitions: new Set([partition]) };
    const answeredMs = firstAnswerMs(fleet.load.requests, fleet.replies, only);
    expect(answeredMs, `partition ${partition}`).toBeLessThan(restoredMs);
  }
});
