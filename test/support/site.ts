import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { wholeTopic } from '../../src/adapters/kafka/topics/spans.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import { answerIn } from './documents.ts';
import type { Followed } from './followed.ts';
import { Realm, type RealmOptions, SHORT_SESSION, type TestRequest } from './realm.ts';
import { type SuiteServers, suiteServers } from './servers.ts';
import { runIdalloc, type WorkerProcess } from './worker-process.ts';

export const PARTITIONS = 3;

/**
 * The workers of a site, with disks that outlive them. They may be started again on another cluster, with the same
 * etcd.
 */
export class Site implements AsyncDisposable {
  readonly realm: Realm;
  readonly replies: Followed;
  readonly workers: WorkerProcess[] = [];
  readonly #options: RealmOptions;
  /** By the number of the disk. */
  readonly #dirs: Map<number, string>;

  private constructor(realm: Realm, replies: Followed, options: RealmOptions, dirs: Map<number, string>) {
    this.realm = realm;
    this.replies = replies;
    this.#options = options;
    this.#dirs = dirs;
  }

  static async open(
    servers: SuiteServers,
    options: RealmOptions = {},
    dirs = new Map<number, string>(),
  ): Promise<Site> {
    const all = { partitions: PARTITIONS, ...options, env: { ...SHORT_SESSION, ...options.env } };
    const realm = await Realm.create(servers, all);
    return new Site(realm, await realm.follow(), all, dirs);
  }

  /** The same site on another cluster, whose topics are created and empty. No worker runs yet. */
  on(servers: Pick<SuiteServers, 'brokers'>): Promise<Site> {
    const elsewhere = { ...suiteServers(), brokers: servers.brokers };
    return Site.open(elsewhere, { ...this.#options, id: this.realm.id }, this.#dirs);
  }

  /** Starts a worker with the n-th disk. */
  start(nth: number): WorkerProcess {
    const dir = this.#dirs.get(nth) ?? mkdtempSync(join(tmpdir(), 'idalloc-site-'));
    this.#dirs.set(nth, dir);
    const worker = this.realm.worker({ INDEX_DIR: dir });
    this.workers[nth] = worker;
    return worker;
  }

  /** All processes end at once, as those of a site do. */
  async die(): Promise<void> {
    for (const worker of this.workers) worker.kill('SIGKILL');
    await Promise.all(this.workers.map((worker) => worker.exit));
  }

  /** Workers that are started from now on have empty disks. */
  loseDisks(): void {
    for (const dir of this.#dirs.values()) rmSync(dir, { recursive: true, force: true });
    this.#dirs.clear();
  }

  /** Sends a request, and returns the first number or ID of the next reply to it, or the code of the error. */
  async asked(request: TestRequest): Promise<unknown> {
    const nth = this.replies.seen.filter(({ message }) => String(message.key) === request.correlationId).length;
    await this.realm.send([request]);
    return this.answer(request.correlationId, nth);
  }

  async answer(correlationId: string, nth = 0): Promise<unknown> {
    const decoded = await this.replies.reply(correlationId, nth);
    return 'batch' in decoded.reply ? String(decoded.reply.batch.ranges[0]?.first) : answerIn(decoded);
  }

  async command(...args: readonly string[]) {
    const { code, stdout, stderr } = await runIdalloc(args, this.realm.env);
    return { code, view: stdout.startsWith('{') ? JSON.parse(stdout) : stdout, stderr };
  }

  /** Resolves when `/readyz` of every worker names this reason for not being ready. */
  async refuses(reason: string): Promise<void> {
    const readiness = async (worker: WorkerProcess) => {
      const answer = await worker.ops('/readyz');
      return [answer.status, ((await answer.json()) as { reason?: string }).reason];
    };
    for (const worker of this.workers) await expect.poll(() => readiness(worker)).toEqual([503, reason]);
  }

  /** Resolves when etcd remembers how far each ledger partition has gone. */
  remembered(): Promise<void> {
    return remembered(this.realm);
  }

  /**
   * The operator looks, then agrees. Worker IDs of killed workers are held until their leases end, and prevent that.
   */
  async adopt(): Promise<unknown> {
    const unasked = async () => (await this.command('namespace', 'adopt-cluster')).stderr;
    await expect.poll(unasked, { interval: 500 }).toContain('NOT_CONFIRMED');
    const { code, view, stderr } = await this.command('namespace', 'adopt-cluster', '--yes', '--json');
    expect([code, view.adopted], stderr).toEqual([0, true]);
    return view;
  }

  async audited(): Promise<void> {
    const { code, view, stderr } = await this.command('audit', '--json');
    expect(view.findings, stderr).toEqual([]);
    expect(code).toBe(0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.realm[Symbol.asyncDispose]();
    this.loseDisks();
  }
}

/** Resolves when etcd remembers how far each ledger partition has gone; workers write that each second. */
async function remembered({ env, datacenterId, ledgerTopic, etcd, source }: Realm): Promise<void> {
  for (const { partition, to } of await wholeTopic(source, ledgerTopic)) {
    const key = ledgerHeadKeys(env.ETCD_PREFIX ?? '', datacenterId, ledgerTopic, partition).end;
    const end = async () => {
      const stored = (await etcd.get([key])).get(key);
      return stored === undefined ? 0 : (JSON.parse(String(stored.value)) as { end: number }).end;
    };
    await expect.poll(end).toBeGreaterThanOrEqual(to);
  }
}
