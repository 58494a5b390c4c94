import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Kafka, logLevel, Partitioners } from 'kafkajs';
import { initTopics } from '../../src/adapters/kafka/topics.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { loadKafkaConfig } from '../../src/config.ts';
import { startProcessServers } from '../support/process-servers.ts';

/**
 * Requests per second of one worker, as a ratio to a bare kafkajs copy loop (consume, produce, commit) over the same
 * records, the two alternating on the same servers. Absolute figures depend on the machine; the ratio much less.
 *
 * Each run starts with all requests on the topic, and is timed from its first tenth of replies to its last reply, so
 * that start-up does not count.
 */
const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '200000' },
    partitions: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '3' },
    count: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write('npm run bench -- [--requests 200000] [--partitions 8] [--rounds 3] [--count 1] [--json]\n');
  process.exit(0);
}
const requests = Number(values.requests);
const partitions = Number(values.partitions);
const ids = Number(values.count);

const SEND_CHUNK = 2_000;
const POLL_MS = 20;
const TIMEOUT_MS = 180_000;
const say = (line: string) => process.stderr.write(`${line}\n`);
const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

const servers = await startProcessServers(say);
const kafka = new Kafka({ brokers: [...servers.brokers], logLevel: logLevel.NOTHING });
const admin = kafka.admin();
await admin.connect();

interface Round {
  readonly env: Record<string, string>;
  readonly replies: string;
}

/** Fresh topics with all requests on them. */
async function prepare(): Promise<Round> {
  const id = randomUUID().slice(0, 8);
  const env = {
    KAFKA_BROKERS: servers.brokers.join(','),
    ETCD_ENDPOINTS: servers.etcdEndpoints.join(','),
    ETCD_PREFIX: `/bench-${id}`,
    KAFKA_GROUP_ID: `bench-${id}`,
    REQUEST_TOPIC: `b${id}.requests`,
    LEDGER_TOPIC: `b${id}.ledger`,
    DEAD_LETTER_TOPIC: `b${id}.dlt`,
    WITNESS_TOPIC: `b${id}.witness`,
    REPLY_TOPIC_PREFIX: `b${id}.replies.`,
    REQUEST_PARTITIONS: String(partitions),
    TOPIC_REPLICATION_FACTOR: '1',
    ALLOW_WEAK_LEDGER: '1',
    DATACENTER_ID: '0',
    OPS_PORT: '0',
    API_PORT: 'off',
    LOG_LEVEL: 'warn',
  };
  const replies = `b${id}.replies.main`;
  await initTopics(admin, loadKafkaConfig(env).topics);
  const topics = [{ topic: replies, numPartitions: partitions, replicationFactor: 1 }];
  await admin.createTopics({ topics, waitForLeaders: true });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  for (let at = 0; at < requests; at += SEND_CHUNK) {
    const messages = Array.from({ length: Math.min(SEND_CHUNK, requests - at) }, () => {
      const key = randomUUID();
      return {
        key,
        value: encodeIdRequest({ count: ids }),
        headers: { kafka_correlationId: key, kafka_replyTopic: replies },
      };
    });
    await producer.send({ topic: env.REQUEST_TOPIC, messages });
  }
  await producer.disconnect();
  return { env, replies };
}

async function repliesOn(topic: string): Promise<number> {
  const offsets = await admin.fetchTopicOffsets(topic);
  return offsets.reduce((sum, { high }) => sum + Number(high), 0);
}

/** Replies per second between the first tenth and the last, while `child` works. */
async function measure(replies: string, child: ChildProcess): Promise<number> {
  let ended = false;
  child.once('exit', () => {
    ended = true;
  });
  const deadline = performance.now() + TIMEOUT_MS;
  let from: { at: number; seen: number } | undefined;
  try {
    while (performance.now() < deadline && !ended) {
      const seen = await repliesOn(replies);
      const at = performance.now();
      if (from === undefined && seen >= requests / 10) from = { at, seen };
      if (from !== undefined && seen >= requests) return ((seen - from.seen) / (at - from.at)) * 1000;
      await sleep(POLL_MS);
    }
  } finally {
    const exited = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    if (!ended) await exited;
  }
  throw new Error('the run did not answer every request in time');
}

async function workerRate(): Promise<number> {
  const { env, replies } = await prepare();
  const index = mkdtempSync(join(tmpdir(), 'idalloc-bench-'));
  const child = spawn(process.execPath, [path('../../src/main.ts'), 'worker'], {
    env: { ...process.env, ...env, INDEX_DIR: index },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  try {
    return await measure(replies, child);
  } finally {
    rmSync(index, { recursive: true, force: true });
  }
}

async function copyRate(): Promise<number> {
  const { env, replies } = await prepare();
  const args = [servers.brokers.join(','), env.REQUEST_TOPIC ?? '', replies, `${env.KAFKA_GROUP_ID}-copy`];
  const child = spawn(process.execPath, [path('copy-loop.ts'), ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
  return await measure(replies, child);
}

const rounds: { worker: number; copy: number }[] = [];
try {
  for (let round = 1; round <= Number(values.rounds); round += 1) {
    const rates = { worker: Math.round(await workerRate()), copy: Math.round(await copyRate()) };
    rounds.push(rates);
    say(
      `round ${round}: worker ${rates.worker}/s, copy loop ${rates.copy}/s, ratio ${(rates.worker / rates.copy).toFixed(2)}`,
    );
  }
} finally {
  await admin.disconnect();
  await servers.stop();
}
const ratios = rounds.map(({ worker, copy }) => worker / copy).sort((a, b) => a - b);
const median = ratios[Math.floor(ratios.length / 2)] ?? Number.NaN;
const result = { requests, partitions, ids, rounds, medianRatio: Number(median.toFixed(3)) };
process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : `median ratio ${result.medianRatio}\n`);
