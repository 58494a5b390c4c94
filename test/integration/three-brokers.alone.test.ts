import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { type DecodedReply, decodeReply, type Followed } from '../support/followed.ts';
import { idFor } from '../support/home.ts';
import { KafkaCluster } from '../support/kafka-cluster.ts';
import { Load } from '../support/load.ts';
import { Realm, type RealmOptions, type TestRequest } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { Watchers } from '../support/watchers.ts';
import { checkWholeHistory, type History, report, settledRecords } from '../support/whole-history.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 3;
const REPLICAS = 3;
const ANSWERED = 200;
const ASKS = 20;
const ERROR_LEVEL = 50;
const UNCLEAN = 'unclean.leader.election.enable';
const WAIT_MS = 60_000;
/** A silent broker loses its leaderships after 6 s here; calls to it end at deadlines of seconds. */
const FROZEN_LIMIT_MS = 15_000;
const HTTP_PACE_MS = 100;
const REQUEST_PACE_MS = 20;
const POLL_MS = 50;
const noKafka = whyNoProcesses('kafka');

let cluster: KafkaCluster;

const annotateNothing = async () => undefined;

beforeAll(async () => {
  if (noKafka !== undefined) return;
  const begunMs = performance.now();
  cluster = await KafkaCluster.start();
  await report(annotateNothing, `three brokers serve after ${Math.round(performance.now() - begunMs)} ms`);
});

afterAll(() => cluster?.[Symbol.asyncDispose]());

const servers = () => ({ ...suiteServers(), brokers: cluster.brokers });
const bytesOf = ({ seen }: DecodedReply) => seen.message.value?.toString('hex');

/** A realm on the three brokers, with a worker. */
class Scene implements AsyncDisposable {
  readonly realm: Realm;
  readonly worker: WorkerProcess;
  readonly replies: Followed;
  readonly ledger: Followed;

  private constructor(realm: Realm, worker: WorkerProcess, replies: Followed, ledger: Followed) {
    this.realm = realm;
    this.worker = worker;
    this.replies = replies;
    this.ledger = ledger;
  }

  static async open(options: RealmOptions = {}): Promise<Scene> {
    const realm = await Realm.create(servers(), { partitions: PARTITIONS, replicas: REPLICAS, ...options });
    const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
    const worker = realm.worker();
    return new Scene(realm, worker, replies, ledger);
  }

  /** Leader and in-sync replicas of each partition, by its number. */
  async places(topic: string): Promise<ReadonlyMap<number, { leader: number; isr: readonly number[] }>> {
    const { topics } = await this.realm.admin.fetchTopicMetadata({ topics: [topic] });
    return new Map(topics.flatMap(({ partitions }) => partitions.map((one) => [one.partitionId, one])));
  }

  async allInSync(): Promise<void> {
    const topics = [this.realm.requestTopic, this.realm.ledgerTopic, this.realm.replyTopic, '__consumer_offsets'];
    for (const topic of topics) {
      const inSync = async () => [...(await this.places(topic)).values()].every(({ isr }) => isr.length === REPLICAS);
      await expect.poll(inSync, { timeout: WAIT_MS, interval: POLL_MS }).toBe(true);
    }
  }

  history(asks: readonly TestRequest[]): Promise<History> {
    return checkWholeHistory(this.realm, asks, this.replies, () =>
      settledRecords(this.realm, this.realm.ledgerTopic, this.ledger),
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.realm[Symbol.asyncDispose]();
  }
}

/** A load that does not wait for replies, by the client library, which finds other brokers when one is frozen. */
class RequestLoad implements AsyncDisposable {
  readonly sent: TestRequest[] = [];
  longestMs = 0;
  readonly #client: IdClient;
  readonly #running: Promise<void>;
  readonly #under = new Set<Promise<void>>();
  readonly #watchers = new Watchers();
  #answered = 0;
  #stopping = false;

  private constructor(client: IdClient) {
    this.#client = client;
    this.#running = this.#run();
  }

  static async start({ requestTopic, replyTopic }: Realm, brokers: readonly string[]): Promise<RequestLoad> {
    return new RequestLoad(await IdClient.connect({ brokers, requestTopic, replyTopic, prefetch: false }));
  }

  /** Resolves once every request sent so far, and `more` others, have a batch. */
  async answered(more: number): Promise<void> {
    const wanted = this.sent.length + more;
    const look = () => (this.#answered >= wanted ? true : undefined);
    await this.#watchers.wait({ what: () => `${wanted} answers; ${this.#answered} came`, look, timeoutMs: WAIT_MS });
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#running;
    await Promise.all(this.#under);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.close();
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const ask = { correlationId: `asked-${this.sent.length}`, count: 3 };
      this.sent.push(ask);
      const asked = this.#ask(ask).finally(() => this.#under.delete(asked));
      this.#under.add(asked);
      await pause(REQUEST_PACE_MS);
    }
  }

  async #ask(ask: TestRequest): Promise<void> {
    const sentMs = performance.now();
    await this.#client.request({ ...ask, timeoutMs: WAIT_MS });
    this.longestMs = Math.max(this.longestMs, Math.round(performance.now() - sentMs));
    this.#answered += 1;
    this.#watchers.changed();
  }
}

/** Requests an ID over HTTP continuously, and records the requests that did not get one. */
class HttpLoad {
  readonly refused: string[] = [];
  answered = 0;
  readonly #ended: Promise<void>;
  #stopping = false;

  constructor(api: string) {
    this.#ended = this.#run(api);
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#ended;
  }

  async #run(api: string): Promise<void> {
    while (!this.#stopping) {
      const response = await fetch(`${api}/api/v1/id`, { method: 'POST' });
      if (response.status === 200) this.answered += 1;
      else this.refused.push(`${response.status}: ${await response.text()}`);
      await pause(HTTP_PACE_MS);
    }
  }
}

/** The time from `sinceMs` to the first decision in one of the partitions, by the brokers' clock, which is ours. */
async function firstDecision(ledger: Followed, partitions: ReadonlySet<number>, sinceMs: number): Promise<number> {
  const timesOf = (seen: Followed['seen']) =>
    seen
      .filter(({ partition, message }) => partitions.has(partition) && message.key !== null)
      .map(({ message }) => Number(message.timestamp))
      .filter((timeMs) => timeMs > sinceMs);
  await ledger.until('a decision after the fault', (seen) => timesOf(seen).length > 0);
  return Math.min(...timesOf(ledger.seen)) - sinceMs;
}

describe.skipIf(noKafka !== undefined)(`three brokers${noKafka === undefined ? '' : `: ${noKafka}`}`, () => {
  test('after kill -9 of a broker that leads ledger partitions under load the worker continues, with one batch per request', async ({
    annotate,
  }) => {
    await using scene = await Scene.open();
    const { worker, replies, ledger } = scene;
    await worker.ready();
    const load = new Load(scene.realm, { partitions: PARTITIONS });
    try {
      await replies.replies(ANSWERED);
      await scene.allInSync();
      const led = [...(await scene.places(scene.realm.ledgerTopic))].filter(([, { leader }]) => leader === 2);
      const partitions = new Set(led.map(([partition]) => partition));
      expect(partitions.size).toBeGreaterThan(0);
      await cluster.kill(2);
      const ms = await firstDecision(ledger, partitions, Date.now());
      await report(annotate, `${ms} ms from kill -9 of a leader to the next decision in its partitions`);
      await replies.replies(load.requests.length);
    } finally {
      await load.stop();
      await cluster.startNode(2);
    }
    await report(annotate, `a leader killed: ${JSON.stringify(await scene.history(load.requests))}`);
    expect(worker.gate()).toBe('open');
  });

  test('while the leader of ledger and witness is frozen under load, decisions continue and HTTP never stops', async ({
    annotate,
  }) => {
    await using scene = await Scene.open();
    const { realm, worker, replies, ledger } = scene;
    // The controller can't be frozen, so another broker must lead the witness topic; it is then frozen.
    const placeWitness = async (replicas: number[]) => {
      const partitionAssignment = [{ partition: 0, replicas }];
      await realm.admin.alterPartitionReassignments({ topics: [{ topic: realm.witnessTopic, partitionAssignment }] });
      const inSync = async () => (await witness())?.isr.toSorted();
      await expect.poll(inSync, { timeout: WAIT_MS, interval: POLL_MS }).toEqual(replicas.toSorted());
    };
    const witness = async () => (await scene.places(realm.witnessTopic)).get(0);
    await placeWitness([2, 3]);
    const node = (await witness())?.leader === 2 ? 2 : 3;
    await placeWitness([node, 5 - node, 1]);
    await worker.ready();
    await using requests = await RequestLoad.start(realm, cluster.brokers);
    const http = new HttpLoad(await worker.api());
    const partitions = new Set<number>();
    let frozenMs = Number.NaN;
    try {
      await replies.replies(ANSWERED);
      await scene.allInSync();
      for (const [at, { leader }] of await scene.places(realm.ledgerTopic)) if (leader === node) partitions.add(at);
      expect(partitions.size).toBeGreaterThan(0);
      frozenMs = Date.now();
      cluster.freeze(node);
      await requests.answered(ANSWERED);
    } finally {
      cluster.thaw(node);
      await http.stop();
      await requests.stop();
    }
    // The test's consumers may be stuck until the broker is back; append times in the ledger show when decisions were made.
    const ms = await firstDecision(ledger, partitions, frozenMs);
    await report(annotate, `${ms} ms from SIGSTOP of a leader to the next decision in its partitions`);
    await report(annotate, `a leader frozen: no request waited longer than ${requests.longestMs} ms`);
    expect(ms).toBeLessThan(FROZEN_LIMIT_MS);
    expect(http.refused).toEqual([]);
    await report(
      annotate,
      `a leader frozen: ${http.answered} IDs over HTTP; ${JSON.stringify(await scene.history(requests.sent))}`,
    );
    expect(worker.gate()).toBe('open');
  });

  test('while two of three brokers are down nothing is decided or replied; nothing is lost, and all is answered after that', async ({
    annotate,
  }) => {
    await using scene = await Scene.open();
    const { realm, worker, replies, ledger } = scene;
    await worker.ready();
    const load = new Load(realm, { partitions: PARTITIONS, burst: 6 }); // continues through the outage
    const dark = [0, 1, 2].map((partition) => ({ correlationId: `dark-${partition}`, count: 1, partition }));
    let backMs = 0;
    try {
      await replies.replies(ANSWERED);
      await scene.allInSync();
      await Promise.all([cluster.kill(2), cluster.kill(3)]);
      const alone = async () => [...(await scene.places(realm.ledgerTopic)).values()].map(({ isr }) => isr.join());
      await expect.poll(alone, { timeout: WAIT_MS, interval: POLL_MS }).toEqual(['1', '1', '1']);
      const from = worker.lines.length;
      await realm.send(dark);
      // A leader without enough replicas may not return its last entries: then a known request waits for its entry.
      await worker.line(
        ({ code, error }) =>
          code === 'LEDGER_UNANSWERED' || (code === 'APPEND_UNANSWERED' && /NOT_ENOUGH_REPLICAS/.test(String(error))),
        from,
      );
      expect(replies.seen.filter(({ message }) => String(message.key).startsWith('dark-'))).toEqual([]);
      backMs = Date.now();
    } finally {
      await Promise.all([cluster.startNode(2), cluster.startNode(3)]);
      await load.stop();
    }
    const ms = await firstDecision(ledger, new Set([0, 1, 2]), backMs);
    await report(annotate, `${ms} ms from the start of two brokers to the next decision`);
    const history = await scene.history([...load.requests, ...dark]);
    await report(annotate, `two of three brokers killed: ${JSON.stringify(history)}`);
    for (const { message } of ledger.seen.filter(({ message }) => String(message.key).includes('dark-'))) {
      expect(Number(message.timestamp)).toBeGreaterThan(backMs);
    }
  });

  test('a known request waits while the ledger partition of its entry has no leader, and then gets its batch', async ({
    annotate,
  }) => {
    await using scene = await Scene.open();
    const { realm, worker, replies } = scene;
    const [known, other] = [0, 1].map((at) => ({ correlationId: idFor('known', at, PARTITIONS), count: 3 })) as [
      TestRequest,
      TestRequest,
    ];
    await worker.ready();
    await realm.send([known, other]);
    const first = await replies.reply(known.correlationId);
    await scene.allInSync();
    const partitionAssignment = [{ partition: 0, replicas: [2] }];
    await realm.admin.alterPartitionReassignments({ topics: [{ topic: realm.ledgerTopic, partitionAssignment }] });
    const leader = async () => (await scene.places(realm.ledgerTopic)).get(0);
    await expect.poll(leader, { timeout: WAIT_MS, interval: POLL_MS }).toMatchObject({ leader: 2, isr: [2] });
    await realm.setTopicConfig(realm.ledgerTopic, 'min.insync.replicas', '1'); // with two, it would have no leader after a crash
    const from = worker.lines.length;
    await cluster.kill(2);
    let backMs = 0;
    try {
      await realm.send([known, other]);
      await worker.line(({ partition, code }) => partition === 0 && code === 'LEDGER_UNANSWERED', from);
      expect((await replies.reply(other.correlationId, 1)).replayed).toBe(true);
      expect(replies.seen.filter(({ message }) => String(message.key) === known.correlationId)).toHaveLength(1);
      backMs = performance.now();
    } finally {
      await cluster.startNode(2);
    }
    const again = await replies.reply(known.correlationId, 1);
    await report(
      annotate,
      `a known request was answered ${Math.round(again.seen.atMs - backMs)} ms from its leader's start`,
    );
    expect(again.replayed).toBe(true);
    expect(bytesOf(again)).toBe(bytesOf(first));
  });

  test('a reply topic without a leader fails alone: others get replies meanwhile, and it gets its replies once it is back', async ({
    annotate,
  }) => {
    await using scene = await Scene.open();
    const { realm, worker, replies } = scene;
    const letters = await realm.follow(realm.deadLetterTopic);
    const lonely = `${realm.env.REPLY_TOPIC_PREFIX}lonely`;
    await realm.createTopic(lonely, { on: 3 });
    const idOf = (name: string, partition: number) => idFor(name, partition, PARTITIONS);
    const ask = (name: string, partition: number, replyTopic = realm.replyTopic) => {
      return { correlationId: idOf(name, partition), count: 2, replyTopic };
    };
    await worker.ready();
    await realm.send([ask('before', 0, lonely)]);
    await expect.poll(() => realm.records(lonely), { timeout: WAIT_MS }).toBe(1);
    await scene.allInSync();
    await cluster.kill(3);
    try {
      const leaders = async () => [...(await scene.places(realm.ledgerTopic)).values()].map(({ isr }) => isr.length);
      await expect.poll(leaders, { timeout: WAIT_MS, interval: POLL_MS }).toEqual([2, 2, 2]);
      for (const round of [0, 1]) {
        const begunMs = performance.now();
        await realm.send([ask(`lonely-${round}`, 0, lonely), ...[0, 1, 2].map((p) => ask(`well-${round}-${p}`, p))]);
        const wellReplies = await Promise.all([0, 1, 2].map((p) => replies.reply(idOf(`well-${round}-${p}`, p))));
        const letterOf = () => letters.seen.find(({ message }) => String(message.key) === idOf(`lonely-${round}`, 0));
        await letters.until('a dead letter', () => letterOf() !== undefined);
        const letter = letterOf();
        expect(String(letter?.message.headers?.['kafka_dlt-exception-fqcn'])).toBe('REPLY_UNDELIVERABLE');
        expect(String(letter?.message.headers?.['kafka_dlt-exception-message'])).toContain('no leader');
        const [own = 0, ...others] = wellReplies.map(({ seen }) => Math.round(seen.atMs - begunMs));
        const letterMs = Math.round((letter?.atMs ?? 0) - begunMs);
        await report(
          annotate,
          `leaderless reply topic, round ${round}: given up after ${letterMs} ms; other topics got replies after ${own} ms in its partition, after ${others} ms in other partitions`,
        );
        // In the first round the worker waits for the leader; later it gives up immediately, and delays nothing.
        if (round === 0) for (const { seen } of wellReplies) expect(seen.atMs).toBeLessThan(letter?.atMs ?? 0);
      }
    } finally {
      await cluster.startNode(3);
    }
    const takesAgain = async () => {
      await realm.send([ask('lonely-0', 0, lonely)]);
      return realm.records(lonely);
    };
    await expect.poll(takesAgain, { timeout: WAIT_MS, interval: 500 }).toBeGreaterThan(1);
    const { reply } = await (await realm.follow(lonely)).reply(idOf('lonely-0', 0));
    expect('batch' in reply && expandIds(reply.batch)).toHaveLength(2);
    expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  });

  test('a ledger whose leader may be elected uncleanly is refused at the start', async () => {
    await using realm = await Realm.create(servers(), { partitions: 1, replicas: REPLICAS });
    await realm.setTopicConfig(realm.ledgerTopic, UNCLEAN, 'true');
    const worker = realm.worker();
    expect(await worker.ended()).toEqual({ code: 1, signal: null });
    const last = worker.lines.find(({ level }) => level === 60)?.msg;
    expect(last).toMatch(/^LEDGER_WEAK: .*unclean\.leader\.election\.enable=false, not true/);
  });

  test('a ledger truncated by an unclean election is restored: decisions that it still has are replied again, no ID twice', async ({
    annotate,
  }) => {
    await using scene = await Scene.open({ partitions: 1, env: { ALLOW_WEAK_LEDGER: '1' } });
    const { realm, worker, replies } = scene;
    const asks = (name: string) =>
      Array.from({ length: ASKS }, (_, i) => ({ correlationId: `${name}-${i}`, count: 3 }));
    const answered = async (name: string, nth = 0) => {
      await realm.send(asks(name));
      return Promise.all(asks(name).map(({ correlationId }) => replies.reply(correlationId, nth)));
    };
    const inSync = async () => (await scene.places(realm.ledgerTopic)).get(0)?.isr.toSorted();
    const becomes = (isr: readonly number[]) =>
      expect.poll(inSync, { timeout: WAIT_MS, interval: POLL_MS }).toEqual(isr);
    const partitionAssignment = [{ partition: 0, replicas: [2, 3] }];
    await realm.admin.alterPartitionReassignments({ topics: [{ topic: realm.ledgerTopic, partitionAssignment }] });
    await becomes([2, 3]);
    await realm.setTopicConfig(realm.ledgerTopic, 'min.insync.replicas', '1');
    await worker.ready();
    await realm.setTopicConfig(realm.ledgerTopic, UNCLEAN, 'true');

    await answered('kept');
    await cluster.kill(3);
    await becomes([2]);
    await answered('lost');
    await cluster.kill(2);
    const from = worker.lines.length;
    await cluster.startNode(3);
    const begunMs = performance.now();
    await answered('after');
    const afterMs = Math.round(performance.now() - begunMs);
    const { cause } = await worker.line(({ msg }) => msg === 'restoring a ledger partition from the log', from);
    await cluster.startNode(2);
    await answered('kept', 1);
    await answered('lost', 1);
    await answered('end'); // so that all earlier requests of the one partition have replies
    await report(
      annotate,
      `a truncated ledger: ${cause}; new requests answered ${afterMs} ms after the stale leader came`,
    );

    const batches = (name: string) => {
      const replies = seen.filter(({ message }) => String(message.key).startsWith(`${name}-`)).map(decodeReply);
      return [...new Map(replies.map((one) => [bytesOf(one), one])).values()];
    };
    const { seen } = scene.replies;
    for (const name of ['kept', 'after', 'end']) expect(batches(name), name).toHaveLength(ASKS);
    const all = ['kept', 'lost', 'after', 'end'].flatMap(batches);
    const ids = all.flatMap(({ reply }) => ('batch' in reply ? expandIds(reply.batch) : []));
    expect(new Set(ids).size).toBe(ids.length);
    const errors = all.flatMap(({ reply }) => ('error' in reply ? [reply.error.code] : []));
    expect(new Set(errors).difference(new Set(['FORGOTTEN']))).toEqual(new Set());
    await report(annotate, `of ${ASKS} lost decisions ${errors.length} are forgotten; all ${ASKS} kept ones stand`);
  });
});
