import { expect, test } from 'vitest';
import type { Followed } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { takenOver } from '../support/takeover.ts';
import { isProduceTo, TcpProxy } from '../support/tcp-proxy.ts';
import { checkWholeHistory, type History, report, settledRecords } from '../support/whole-history.ts';

const PARTITIONS = 3;
/** Longer than the pace of requests, so that appends overlap with late answers. */
const SLOW_ANSWER_MS = 2_000;
const DELAYS = 3;
/** Number of cut connections, some with several calls in flight. */
const CUTS = 12;
const ANSWERED = 100;

/** A realm whose workers may connect through a proxy; the test's own clients do not. */
class Scene implements AsyncDisposable {
  readonly proxy: TcpProxy;
  readonly realm: Realm;
  readonly replies: Followed;
  readonly ledger: Followed;

  private constructor(proxy: TcpProxy, realm: Realm, replies: Followed, ledger: Followed) {
    this.proxy = proxy;
    this.realm = realm;
    this.replies = replies;
    this.ledger = ledger;
  }

  static async open(env: Readonly<Record<string, string>> = {}): Promise<Scene> {
    const realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env });
    const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
    return new Scene(await TcpProxy.start(suiteServers()), realm, replies, ledger);
  }

  proxiedWorker() {
    return this.realm.worker({ KAFKA_BROKERS: this.proxy.address });
  }

  /** Injects the fault under load, and checks everything once all requests are answered. */
  async underLoad(fault: (load: Load) => Promise<unknown>): Promise<History> {
    const load = new Load(this.realm, { partitions: PARTITIONS });
    try {
      await this.replies.replies(ANSWERED);
      await fault(load);
      await this.replies.replies(load.requests.length + ANSWERED);
    } finally {
      await load.stop();
    }
    return checkWholeHistory(this.realm, load.requests, this.replies, () =>
      settledRecords(this.realm, this.realm.ledgerTopic, this.ledger),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.realm[Symbol.asyncDispose]();
    await this.proxy[Symbol.asyncDispose]();
  }
}

const topics = { ledger: (realm: Realm) => realm.ledgerTopic, reply: (realm: Realm) => realm.replyTopic } as const;

test.for(['ledger', 'reply'] as const)(
  'late answers of the %s topic cause no second append and no second reply',
  async (which, { annotate }) => {
    await using scene = await Scene.open();
    await scene.proxiedWorker().ready();
    const matches = isProduceTo(topics[which](scene.realm));
    const history = await scene.underLoad(() => scene.proxy.delayAnswers(matches, DELAYS, SLOW_ANSWER_MS));
    await report(
      annotate,
      `${DELAYS} answers of the ${which} topic ${SLOW_ANSWER_MS} ms late: ${JSON.stringify(history)}`,
    );
    expect(history).toMatchObject({ duplicates: 0, losers: 0, doubled: 0 });
  },
);

test('after lost answers of the ledger topic the written entries are read back and decide, and nothing is appended again', async ({
  annotate,
}) => {
  await using scene = await Scene.open();
  const worker = scene.proxiedWorker();
  await worker.ready();
  const history = await scene.underLoad(() => scene.proxy.cutAnswers(isProduceTo(scene.realm.ledgerTopic), CUTS));
  await report(annotate, `${CUTS} answers of the ledger topic lost: ${JSON.stringify(history)}`);
  expect(worker.lines.some(({ code }) => code === 'APPEND_UNANSWERED')).toBe(true);
  expect(history).toMatchObject({ losers: 0, doubled: 0 });
});

test('after lost answers of the reply topic the same replies are sent again, byte for byte', async ({ annotate }) => {
  await using scene = await Scene.open();
  await scene.proxiedWorker().ready();
  const history = await scene.underLoad(() => scene.proxy.cutAnswers(isProduceTo(scene.realm.replyTopic), CUTS));
  await report(annotate, `${CUTS} answers of the reply topic lost: ${JSON.stringify(history)}`);
  expect(history.duplicates).toBeGreaterThan(0);
});

test('an append that arrives after another worker decided the same requests loses, for its writer too', async ({
  annotate,
}) => {
  await using scene = await Scene.open(SHORT_SESSION);
  const { proxy, realm, replies } = scene;
  const victim = scene.proxiedWorker();
  await victim.hasPartitions(PARTITIONS);
  const release = Promise.withResolvers<void>();
  const history = await scene.underLoad(async () => {
    await proxy.holdRequest(isProduceTo(realm.ledgerTopic), release.promise);
    victim.kill('SIGSTOP');
    try {
      const partitions = new Set(victim.partitions());
      const ms = await takenOver({ partitions, successor: realm.worker(), replies, atLeast: 10 * ANSWERED });
      await report(annotate, `${ms} ms from SIGSTOP to the first reply of a worker started then`);
    } finally {
      release.resolve();
      victim.kill('SIGCONT');
    }
  });
  await report(annotate, `a zombie's append: ${JSON.stringify(history)}`);
  expect(history.losers).toBeGreaterThan(0);
});
