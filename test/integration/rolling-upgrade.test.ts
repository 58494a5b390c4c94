import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { decodeReply, type Followed } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { longestWaits } from '../support/longest-wait.ts';
import { Realm, SHORT_SESSION, type TestRequest } from '../support/realm.ts';
import { lastRelease, workerOf } from '../support/released.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const WORKERS = 3;
/** Requests that are answered while the versions are mixed as they then are. */
const ANSWERED = 300;
/** Of the requests decided by one version, so many are sent again to the other. */
const REPEATED = 100;

type Program = readonly string[] | undefined;

/** Workers of two versions on one realm. Each has an index directory, which outlives its process. */
class Mixed implements AsyncDisposable {
  readonly realm: Realm;
  readonly replies: Followed;
  readonly load: Load;
  readonly repeated: TestRequest[] = [];
  readonly #dirs = Array.from({ length: WORKERS }, () => mkdtempSync(join(tmpdir(), 'idalloc-mixed-')));
  readonly #workers: WorkerProcess[] = [];

  constructor(realm: Realm, replies: Followed) {
    [this.realm, this.replies] = [realm, replies];
    // Every second burst goes to another partition than its own, so that workers forward to workers of the other version.
    this.load = new Load(realm, { partitions: PARTITIONS, misroutes: true });
  }

  async start(program: Program): Promise<void> {
    for (let i = 0; i < WORKERS; i += 1) this.#begin(i, program);
    await this.#shared();
    await this.answered();
  }

  /** Replaces one worker after another, as docs/how-to/rolling-upgrade.md says, and serves for a while after each. */
  async roll(program: Program): Promise<void> {
    for (let i = 0; i < WORKERS; i += 1) {
      await this.#workers[i]?.stop();
      expect(await this.#workers[i]?.exit).toEqual({ code: 0, signal: null });
      await this.#begin(i, program).ready();
      await this.#shared();
      await this.#repeatSome();
      await this.answered();
    }
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

  #begin(i: number, program: Program): WorkerProcess {
    const worker = this.realm.worker({ INDEX_DIR: this.#dirs[i] ?? '' }, program);
    this.#workers[i] = worker;
    return worker;
  }

  #shared(): Promise<unknown> {
    return Promise.all(this.#workers.map((worker) => worker.hasPartitions(PARTITIONS / WORKERS)));
  }

  /** Sends some of the oldest and of the newest requests again: whoever decided them, they have their batch. */
  async #repeatSome(): Promise<void> {
    const { requests } = this.load;
    const some = [...requests.slice(0, REPEATED / 2), ...requests.slice(-REPEATED / 2)];
    await this.realm.send(some);
    this.repeated.push(...some);
  }
}

/** Resolves when so many replies are marked as replays. */
async function replays(replies: Followed, count: number): Promise<void> {
  let [at, found] = [0, 0];
  await replies.until(`${count} replays`, (seen) => {
    for (const one of seen.slice(at)) if (decodeReply(one).replayed) found += 1;
    at = seen.length;
    return found >= count;
  });
}

test('workers of the last release and of this version serve side by side, upwards and back, with one batch for each request', async (context) => {
  const release = lastRelease();
  if ('missing' in release) return context.skip(release.missing);
  const old = await workerOf(release);
  const realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env: SHORT_SESSION });
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  await using mixed = new Mixed(realm, replies);
  await mixed.start(old);
  const begunMs = performance.now();
  await mixed.roll(undefined);
  const upgradedMs = performance.now();
  await mixed.roll(old);
  const endedMs = performance.now();
  const asks = await mixed.load.stop();
  await replays(replies, mixed.repeated.length);

  const history = await checkWholeHistory(realm, asks, replies, () => settledRecords(realm, realm.ledgerTopic, ledger));
  const longestMs = Math.max(...longestWaits(asks, replies, begunMs).values());
  const seconds = (fromMs: number, toMs: number) => Math.round((toMs - fromMs) / 1_000);
  await report(
    context.annotate,
    `${release.version} to this in ${seconds(begunMs, upgradedMs)} s, back in ${seconds(upgradedMs, endedMs)} s; longest wait ${Math.round(longestMs)} ms; ${mixed.repeated.length} repeated: ${JSON.stringify(history)}`,
  );
  expect(history.requests).toBeGreaterThan(2 * WORKERS * ANSWERED);
  expect(mixed.repeated.length).toBe(2 * WORKERS * REPEATED);
}, 1_200_000);
