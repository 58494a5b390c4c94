import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { encodeBatch } from '../../src/kafka/records/encode.ts';
import { type NewRecord, partitionFor } from '../../src/kafka/records/record.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../../src/kafka/wire/kafka-error.ts';
import type { ListOffsetsResponse } from '../../src/kafka/wire/record-apis.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { type ProcessServers, startProcessServers } from '../support/process-servers.ts';
import { SUITE } from '../support/servers.ts';
import { unique } from '../support/unique.ts';
import { type Contender, Running } from './running.ts';

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const SCRIPTS = { copy: path('copy-loop.ts'), wire: path('wire-loop.ts') } as const;
/** The main.ts of this tree's worker. */
export const MAIN = path('../../src/main.ts');

const CALL_TIMEOUT_MS = 10_000;
const REPLICATION_TIMEOUT_MS = 5_000;
const LED_TIMEOUT_MS = 30_000;
const LED_POLL_MS = 50;
const TOPICS_AT_ONCE = 100;
/** What metadata says of a topic that has just been created. */
const UNKNOWN_YET: ReadonlySet<string> = new Set(['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE']);

/** The topics of one run, created for it. */
export interface Topics {
  readonly env: Readonly<Record<string, string>>;
  readonly requests: string;
  readonly ledger: string;
  readonly replies: string;
  /** Further reply topics, of one partition each. */
  readonly moreReplies: readonly string[];
  readonly partitions: number;
}

/** What the benchmarks of requests share: servers, fresh topics for each run, and the processes that are measured. */
export class Stage implements AsyncDisposable {
  readonly cluster: Cluster;
  readonly #servers: ProcessServers;

  /** On servers that end with the stage. */
  constructor(servers: ProcessServers) {
    this.#servers = servers;
    const dialer = kafkaDialer({ clientId: 'bench', tls: false });
    this.cluster = new Cluster({ dialer, seeds: seedsOf(servers.brokers), runtime: RUNTIME });
  }

  static async open(say: (line: string) => void): Promise<Stage> {
    return new Stage(await startProcessServers(say, SUITE, { isMeasured: true }));
  }

  /** The addresses of the brokers, each as `host:port`. */
  get brokers(): readonly string[] {
    return this.#servers.brokers;
  }

  /**
   * `main`: the main.ts that creates the topics, which may be that of another checkout. Of `replyTopics` all but one
   * have one partition.
   */
  async topics(partitions: number, main = MAIN, replyTopics = 1): Promise<Topics> {
    const id = unique();
    const replies = `b${id}.replies.main`;
    const env = {
      KAFKA_BROKERS: this.#servers.brokers.join(','),
      ETCD_ENDPOINTS: this.#servers.etcdEndpoints.join(','),
      ETCD_PREFIX: `/bench-${id}`,
      KAFKA_GROUP_ID: `bench-${id}`,
      REQUEST_TOPIC: `b${id}.requests`,
      LEDGER_TOPIC: `b${id}.ledger`,
      DEAD_LETTER_TOPIC: `b${id}.dlt`,
      ID_SPACE: `b${id}`,
      WITNESS_TOPIC: `b${id}.witness`, // where the other checkout's workers don't derive it
      REPLY_TOPIC_PREFIX: `b${id}.replies.`,
      REQUEST_PARTITIONS: String(partitions),
      TOPIC_REPLICATION_FACTOR: '1',
      ALLOW_WEAK_LEDGER: '1',
      DATACENTER_ID: '0',
      OPS_PORT: '0',
      API_PORT: 'off',
      LOG_LEVEL: 'warn',
    };
    const init = this.#run([main, 'topics', 'init', '--reply-topic', replies], env);
    const [code] = await once(init, 'exit');
    if (code !== 0) throw new Error('idalloc topics init failed: its error is above');
    const [requests, ledger] = [env.REQUEST_TOPIC, env.LEDGER_TOPIC];
    for (const topic of [requests, ledger, replies]) await this.#led([topic], partitions);
    const moreReplies = Array.from({ length: replyTopics - 1 }, (_, i) => `b${id}.replies.more${i}`);
    for (let at = 0; at < moreReplies.length; at += TOPICS_AT_ONCE) {
      await this.#create(moreReplies.slice(at, at + TOPICS_AT_ONCE));
    }
    return { env, requests, ledger, replies, moreReplies, partitions };
  }

  /** Creates a topic that nobody writes to. */
  async topic(partitions: number): Promise<string> {
    const name = `b${unique()}.idle`;
    await this.#create([name], partitions);
    return name;
  }

  /** Creates topics, and waits until they have leaders. */
  async #create(names: readonly string[], partitions = 1): Promise<void> {
    const topics = names.map((name) => ({ name, partitions, replicas: 1, configs: {} }));
    const { controllerId } = await this.cluster.metadata([], CALL_TIMEOUT_MS);
    const { topics: created } = await this.cluster.call(controllerId, 'control', CALL_TIMEOUT_MS, (link) =>
      link.call('createTopics', { topics, timeoutMs: CALL_TIMEOUT_MS }),
    );
    const refused = created.find(({ errorCode }) => errorCode !== undefined);
    if (refused !== undefined) throw new Error(`topic ${refused.name} was not created: ${refused.errorCode}`);
    await this.#led(names, partitions);
  }

  /**
   * Starts a contender. Without INDEX_DIR in `more` it gets a new index directory, which is removed when it is stopped.
   * `main`: the main.ts of another checkout's worker, on topics of this one.
   */
  start(contender: Contender, topics: Topics, more: Readonly<Record<string, string>> = {}, main = MAIN): Running {
    const own = more.INDEX_DIR === undefined ? mkdtempSync(join(tmpdir(), 'idalloc-bench-')) : undefined;
    const { requests, replies, ledger } = topics;
    const env = { ...topics.env, ...(own === undefined ? {} : { INDEX_DIR: own }), ...more };
    const addresses = [this.#servers.brokers.join(','), requests, replies];
    const copied = [...addresses, `${topics.env.KAFKA_GROUP_ID}-copy`];
    if (typeof contender === 'object') {
      const { name, command, args, runsInFirstThread } = contender;
      return new Running(name, this.#run([...args, ...copied], env, command), own, runsInFirstThread);
    }
    const args = {
      worker: [main, 'worker'],
      // kafkajs sets timers in the past, of which Node would warn.
      copy: ['--disable-warning=TimeoutNegativeWarning', SCRIPTS.copy, ...copied],
      wire: [SCRIPTS.wire, ...addresses, ledger],
    }[contender];
    return new Running(contender, this.#run(args, env), own);
  }

  /** Appends to one partition of a topic; rejects if the broker refuses. */
  async append(topic: string, partition: number, records: readonly NewRecord[]): Promise<void> {
    const batch = encodeBatch(records, RUNTIME.wallMs());
    const node = await this.cluster.leader(topic, partition, CALL_TIMEOUT_MS);
    const request = { topic, partition, batch, acks: -1, timeoutMs: REPLICATION_TIMEOUT_MS } as const;
    const { errorCode } = await this.cluster.call(node, 'append', CALL_TIMEOUT_MS, (link) =>
      link.call('produce', request),
    );
    if (errorCode !== undefined) throw new Error(`partition ${partition} of ${topic} refused an append: ${errorCode}`);
  }

  /**
   * The number of records ever appended to the topic, without those of transactions that are not committed yet, and
   * with a mark for each transaction that was.
   */
  async written(topic: string, partitions: number): Promise<number> {
    return sumOf(await this.#ends([topic], partitions));
  }

  /** The number of replies ever written. */
  async replied({ replies, moreReplies, partitions }: Topics): Promise<number> {
    return (await this.written(replies, partitions)) + sumOf(await this.#ends(moreReplies, 1));
  }

  async #ends(topics: readonly string[], partitions: number): Promise<ListOffsetsResponse['partitions']> {
    const all = topics.flatMap((topic) => Array.from({ length: partitions }, (_, partition) => ({ topic, partition })));
    const nodes = await Promise.all(
      all.map(({ topic, partition }) => this.cluster.leader(topic, partition, CALL_TIMEOUT_MS)),
    );
    const answers = await Promise.all(
      [...Map.groupBy(all, (_, i) => nodes[i] ?? -1)].map(([node, its]) => {
        const asked = its.map((one) => ({ ...one, timestampMs: -1 }));
        const request = { isolation: 'read_committed', partitions: asked } as const;
        return this.cluster.call(node, 'control', CALL_TIMEOUT_MS, (link) => link.call('listOffsets', request));
      }),
    );
    return answers.flatMap((answer) => answer.partitions);
  }

  /**
   * Waits until the brokers serve the topic: they may not know a new one yet, and metadata may name the leader of a
   * partition before that broker knows.
   */
  async #led(topics: readonly string[], partitions: number): Promise<void> {
    for (const deadlineMs = performance.now() + LED_TIMEOUT_MS; ; await pause(LED_POLL_MS)) {
      const errorCode = await this.#refusal(topics, partitions);
      if (errorCode === undefined) return;
      if (performance.now() > deadlineMs)
        throw new Error(
          `topic ${topics[0]} was created, but its leaders do not serve it after ${LED_TIMEOUT_MS / 1_000} s: ${errorCode}`,
        );
    }
  }

  /** The first error with which the brokers answer for one of the topics; undefined if they serve them all. */
  async #refusal(topics: readonly string[], partitions: number): Promise<string | undefined> {
    try {
      const ends = await this.#ends(topics, partitions);
      return ends.find((end) => end.errorCode !== undefined)?.errorCode;
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (errorCode === undefined || !UNKNOWN_YET.has(errorCode)) throw error;
      return errorCode;
    }
  }

  async leaders(topic: string, partitions: number): Promise<Map<number, number[]>> {
    const all = Array.from({ length: partitions }, (_, partition) => partition);
    const nodes = await Promise.all(all.map((partition) => this.cluster.leader(topic, partition, CALL_TIMEOUT_MS)));
    return Map.groupBy(all, (partition) => nodes[partition] ?? -1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster.close();
    await this.#servers.stop();
  }

  #run(args: readonly string[], env: Readonly<Record<string, string>>, command = process.execPath): ChildProcess {
    const stdio = ['ignore', 'ignore', 'inherit'] as const;
    return spawn(command, [...args], { env: { ...process.env, ...env }, stdio: [...stdio] });
  }
}

/** Builds requests for `ids` IDs each. */
export class Requests {
  readonly #topics: Topics;
  readonly #value: Buffer;
  readonly #replyTopics: readonly Buffer[];
  #made = 0;
  readonly #headers: Readonly<Record<string, string>>;

  /** `headers`: what each has besides those that address its reply. */
  constructor(topics: Topics, ids: number, headers: Readonly<Record<string, string>> = {}) {
    this.#headers = headers;
    this.#topics = topics;
    this.#value = encodeIdRequest({ count: ids });
    this.#replyTopics = [topics.replies, ...topics.moreReplies].map((topic) => Buffer.from(topic));
  }

  /** The record of a request, which asks for its reply in the next reply topic, and its home partition. */
  make(correlationId: string): { readonly record: NewRecord; readonly partition: number } {
    const key = Buffer.from(correlationId);
    const replyTopic = this.#replyTopics[this.#made++ % this.#replyTopics.length] as Buffer;
    const headers = { ...this.#headers, kafka_correlationId: key, kafka_replyTopic: replyTopic };
    const record = { key, value: this.#value, headers };
    return { record, partition: partitionFor(key, this.#topics.partitions, () => 0) };
  }
}

/** Resolves when `isDone` resolves to true; rejects after `timeoutMs`, and when the contender has exited. */
export async function until(
  running: Pick<Running, 'check'>,
  timeoutMs: number,
  pollMs: number,
  isDone: () => Promise<boolean>,
): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  while (!(await isDone())) {
    running.check();
    if (performance.now() > deadlineMs)
      throw new Error(`the contender did not answer every request within ${Math.round(timeoutMs / 1_000)} s`);
    await pause(pollMs);
  }
}

function sumOf(ends: ListOffsetsResponse['partitions']): number {
  return ends.reduce((sum, { offset }) => sum + offset, 0);
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
