import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Load } from '../support/load.ts';
import { firstAnswerMs, longestOf, longestWaits } from '../support/longest-wait.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const WORKERS = 3;
const SESSION_MS = 6_000;
/** A session longer than the start of a process on any machine. */
const LONG_SESSION_MS = 60_000;
const ANSWERED = 300;

/** Three workers that share the partitions under load, each with an index directory that outlives its process. */
class Fleet implements AsyncDisposable {
  readonly realm: Realm;
  readonly load: Load;
  readonly replies: Awaited<ReturnType<Realm['follow']>>;
  readonly workers: WorkerProcess[] = [];
  readonly #dirs: string[] = [];

  private constructor(realm: Realm, replies: Awaited<ReturnType<Realm['follow']>>) {
    this.realm = realm;
    this.replies = replies;
    this.load = new Load(realm, { partitions: PARTITIONS });
  }

  static async open(sessionMs = SESSION_MS): Promise<Fleet> {
    const env = { KAFKA_SESSION_TIMEOUT_MS: String(sessionMs) };
    const realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env });
    const fleet = new Fleet(realm, await realm.follow());
    for (let i = 0; i < WORKERS; i += 1) {
      fleet.#dirs.push(mkdtempSync(join(tmpdir(), 'idalloc-fleet-')));
      fleet.start(i);
    }
    await fleet.shared();
    await fleet.answered();
    return fleet;
  }

  start(i: number): WorkerProcess {
    const worker = this.realm.worker({ INDEX_DIR: this.#dirs[i] ?? '' });
    this.workers[i] = worker;
    return worker;
  }

  /** Resolves when each worker has its share of the partitions. */
  shared(): Promise<unknown> {
    return Promise.all(this.workers.map((worker) => worker.hasPartitions(PARTITIONS / WORKERS)));
  }

  /** Resolves when all requests sent so far, and some more, are answered. */
  answered(): Promise<unknown> {
    return this.replies.replies(this.load.requests.length + ANSWERED);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.load.stop();
    await this.realm[Symbol.asyncDispose]();
    for (const dir of this.#dirs) rmSync(dir, { recursive: true, force: true });
  }
}

test('after kill -9 of a worker its partitions are served once its session has expired, and the others all the time', async ({
  annotate,
}) => {
  await using fleet = await Fleet.open();
  const [dead, ...others] = fleet.workers;
  const lost = new Set(dead?.partitions());
  expect(lost.size).toBe(PARTITIONS / WORKERS);
  const killedMs = performance.now();
  dead?.kill('SIGKILL');
  await Promise.all(others.map((worker) => worker.hasPartitions(PARTITIONS / (WORKERS - 1))));
  await fleet.answered();
  const asks = await fleet.load.stop();
  await fleet.replies.replies(asks.length);
  const waits = longestWaits(asks, fleet.replies, killedMs - 1_000);
  const kept = [...waits.keys()].filter((partition) => !lost.has(partition));
  const [ownMs, otherMs] = [longestOf(waits, lost), longestOf(waits, kept)];
  await report(
    annotate,
    `kill -9 with a session of ${SESSION_MS} ms: its partitions waited at most ${ownMs} ms, the others ${otherMs} ms`,
  );
  // If the others had waited for the killed worker, nothing sent after the kill would be answered before its partitions are.
  const servedAgainMs = firstAnswerMs(asks, fleet.replies, { sentFromMs: killedMs, partitions: lost });
  for (const partition of kept) {
    const own = firstAnswerMs(asks, fleet.replies, { sentFromMs: killedMs, partitions: new Set([partition]) });
    expect(own, `partition ${partition}`).toBeLessThan(servedAgainMs);
  }
});

test('a worker that is killed and restarted immediately gets its partitions back without a rebalance', async ({
  annotate,
}) => {
  await using fleet = await Fleet.open(LONG_SESSION_MS);
  const [dead, ...others] = fleet.workers;
  const own = [...(dead?.partitions() ?? [])].sort();
  const rebalances = () =>
    others.map(({ lines }) => lines.filter(({ msg }) => msg === 'joined the request group').length);
  const before = rebalances();
  const killedMs = performance.now();
  dead?.kill('SIGKILL');
  await dead?.exit;
  const again = fleet.start(0);
  await again.ready();
  expect([...again.partitions()].sort()).toEqual(own);
  await fleet.answered();
  const asks = await fleet.load.stop();
  await fleet.replies.replies(asks.length);
  const waits = longestWaits(asks, fleet.replies, killedMs - 1_000);
  const kept = [...waits.keys()].filter((partition) => !own.includes(partition));
  await report(
    annotate,
    `kill -9 and restart at once: its partitions waited at most ${longestOf(waits, own)} ms, the others ${longestOf(waits, kept)} ms`,
  );
  expect(rebalances()).toEqual(before);
});

test('no partition waits for a session to expire in ten rolling restarts', async ({ annotate }) => {
  await using fleet = await Fleet.open();
  const begunMs = performance.now();
  let moved = 0;
  const owners = () => new Map(fleet.workers.flatMap((worker, i) => worker.partitions().map((at) => [at, i] as const)));
  for (let restart = 0; restart < 10; restart += 1) {
    const i = restart % WORKERS;
    const before = owners();
    await fleet.workers[i]?.stop();
    // It has left the group: nothing waits for its session to expire.
    const { groups } = await fleet.realm.admin.describeGroups([fleet.realm.groupId]);
    expect(groups[0]?.members).toHaveLength(WORKERS - 1);
    fleet.start(i);
    await fleet.shared();
    const after = owners();
    moved += [...before].filter(([partition, owner]) => after.get(partition) !== owner).length;
  }
  await fleet.answered();
  const asks = await fleet.load.stop();
  await fleet.replies.replies(asks.length);
  const longestMs = longestOf(longestWaits(asks, fleet.replies, begunMs - 1_000));
  await report(
    annotate,
    `ten rolling restarts of ${WORKERS} workers: no request waited longer than ${longestMs} ms; ${moved} of ${10 * PARTITIONS} partitions had another owner afterwards`,
  );
});

test('of two processes with one instance ID, the fenced one logs that and exits', async () => {
  await using realm = await Realm.create(suiteServers());
  const first = realm.worker();
  await first.ready();
  const copy = mkdtempSync(join(tmpdir(), 'idalloc-copy-'));
  try {
    copyFileSync(join(first.indexDir, 'instance-id'), join(copy, 'instance-id'));
    const second = realm.worker({ INDEX_DIR: copy });
    expect((await first.ended()).code).toBe(1);
    expect(first.lines.find(({ level }) => level === 60)?.msg).toMatch(/^INSTANCE_FENCED: .*INDEX_DIR/);
    await second.ready();
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
});
