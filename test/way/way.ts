/**
 * What somebody has to read who wants to follow one request, or one take-over: the functions of src that run for it,
 * and the files that they are in.
 *
 * A worker that does nothing still runs a lot: it fetches, sends heartbeats, raises ceilings. So what counts of a way
 * is what runs between its first and its last event and had not run in the idle minute before. A request is so short
 * that all that runs meanwhile, the fetch and the connections included, is known as well: what each of several requests
 * passes at different times, since a timer may fire beside one of them.
 *
 * V8 counts the calls of each function, so the sources run as they are. The worker is a whole one, with its index on
 * disk. Brokers and etcd are simulated, so kafkajs' connections and the client of etcd are on no way.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { Session } from 'node:inspector';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { PartitionReading } from '../../src/cli/sequence/sequence-log.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { decodeDescriptor } from '../../src/codec/namespace-values.ts';
import { headKeysOf } from '../../src/identity/bindings.ts';
import { namespaceKeys } from '../../src/identity/keys.ts';
import { EtcdHeads } from '../../src/ledger/heads.ts';
import type { OrderLog } from '../../src/ledger/sequence-order.ts';
import { carryOut } from '../../src/ledger/sequence-order.ts';
import { createLogger } from '../../src/log.ts';
import { batchOf, type PlainRecord, recordsOf } from '../support/fake-kafka/batches.ts';
import { idFor } from '../support/home.ts';
import { config, WorkerStage } from '../support/worker-stage.ts';

/** Functions of src that were called, each as `FILE:OFFSET:NAME`, with the file relative to src. */
type Called = ReadonlySet<string>;

/** The names of the functions that were called, in the order of the file. */
type Functions = ReadonlyMap<string, readonly string[]>;

interface Way {
  /** What runs for it alone, by file. */
  readonly own: Functions;
  /** What runs for it, and when a worker is idle as well. Undefined where it takes so long that this means nothing. */
  readonly whole?: Functions;
}

/** What is measured, by name. */
export const WAYS = {
  request: 'a request for IDs, from its record to the acknowledged reply',
  numbers: 'a request for a number of a sequence, from its record to the acknowledged reply',
  takeover: 'a worker dies, until a standby has answered the requests that waited; without what any request passes',
  lease: 'the lease is revoked, until the worker has another identity and its gate is open',
} as const;
export type WayName = keyof typeof WAYS;
export type Ways = Readonly<Record<WayName, Way>>;

/** The most files that a way should pass, in its own. */
export const GOALS: Readonly<Partial<Record<WayName, number>>> = { request: 60, takeover: 40 };

/** The room of a file: its folder, or itself if it lies directly in src. */
export function folderOf(file: string): string {
  const folder = posix.dirname(file);
  return folder === '.' ? file : folder;
}

const SOURCE = pathToFileURL(join(import.meta.dirname, '../../src/')).href;
const REPLIES = 'id.replies.test';
const { requests: REQUESTS, requestPartitions: PARTITIONS } = config.topics;
const SEQUENCE = { next: 1, step: 1, max: 1_000, format: '', closed: false };
/** Its name, whose home is partition 0. */
const INVOICES = idFor('invoices', 0, PARTITIONS);
/** Longer than workers take until they share the partitions. */
const START_MS = 60_000;
/** So long that an idle worker has done what it does each minute. */
const IDLE_MS = 150_000;
/** How often an idle worker is looked at. */
const IDLE_LOOK_MS = 1_000;
/** Between two looks whether an event has come. */
const LOOK_MS = 1;
const MAX_WAIT_MS = 120_000;
/** The acknowledgement of a reply needs one message, of a millisecond. */
const ACKNOWLEDGED_MS = 2;
/** Requests that are compared, and the time from one to the next: no multiple of any interval of a worker. */
const COMPARED = 5;
const APART_MS = 337;

/** Counts the calls of the functions of src in this process. */
class Calls implements Disposable {
  readonly #session = new Session();

  constructor() {
    this.#session.connect();
    this.#session.post('Profiler.enable');
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  }

  [Symbol.dispose](): void {
    this.#session.disconnect();
  }

  /** The functions that were called since the last call of this one. */
  take(): Called {
    const called = new Set<string>();
    // The answer comes before `post` returns.
    this.#session.post('Profiler.takePreciseCoverage', (error, { result }) => {
      if (error !== null) throw error;
      for (const { url, functions } of result) {
        if (!url.startsWith(SOURCE)) continue;
        for (const { functionName, ranges } of functions) {
          const [whole] = ranges;
          // What has no name of its own, such as a callback or a field, is read with the function around it.
          if (whole === undefined || whole.count === 0 || /^$|^</.test(functionName)) continue;
          called.add([url.slice(SOURCE.length), whole.startOffset, functionName].join(':'));
        }
      }
    });
    return called;
  }
}

function byFile(called: Called): Functions {
  const parts = [...called].map((one) => {
    const [file = '', offset, name = ''] = one.split(':');
    return { file, offset: Number(offset), name };
  });
  const inOrder = parts.sort((a, b) => (a.file === b.file ? a.offset - b.offset : a.file < b.file ? -1 : 1));
  const files = Map.groupBy(inOrder, ({ file }) => file);
  return new Map([...files].map(([file, own]) => [file, own.map(({ name }) => name)]));
}

/** Whole workers with their indexes on disk. */
class Scene implements AsyncDisposable {
  readonly stage: WorkerStage;
  readonly #directory = mkdtempSync(join(tmpdir(), 'idalloc-way-'));
  readonly #calls = new Calls();

  constructor() {
    this.stage = new WorkerStage((binding, events, host) => {
      const directory = join(this.#directory, host);
      mkdirSync(directory, { recursive: true });
      // Nothing here is to wait for a real disk.
      return new SqliteIndex(directory, binding, events, { syncFile: async () => {} });
    });
    this.stage.kafka.cluster.createTopic(REPLIES, { partitions: 1, replicas: 3 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stage.stop();
    this.#calls[Symbol.dispose]();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** What idle workers call, what `look` calls, and how a line of the log is written: that is on no way. */
  async idle(look: () => unknown): Promise<Called> {
    this.#calls.take();
    createLogger({ level: 'info', destination: { write: () => {} } }).info('idle');
    for (let ms = 0; ms < IDLE_MS; ms += IDLE_LOOK_MS) {
      await this.stage.pass(IDLE_LOOK_MS);
      look();
    }
    return this.#calls.take();
  }

  /** What is called by `begin` and from then on, until `isOver` is true. */
  async during(begin: () => void, isOver: () => boolean): Promise<Called> {
    this.#calls.take();
    begin();
    for (let ms = 0; !isOver(); ms += LOOK_MS) {
      if (ms > MAX_WAIT_MS) throw new Error(`it is not over after ${MAX_WAIT_MS} ms of the workers' time`);
      await this.stage.pass(LOOK_MS);
    }
    await this.stage.pass(ACKNOWLEDGED_MS);
    return this.#calls.take();
  }

  /** What is called until a request is answered; its record is made before. */
  async answered(name: string, sequence?: string): Promise<Called> {
    const batch = this.#batch(name, 0, sequence);
    const before = this.replies;
    return await this.during(
      () => this.stage.kafka.cluster.sendBatch(REQUESTS, 0, batch),
      () => this.replies > before,
    );
  }

  /** What each of some requests calls. */
  async answeredOften(name: string, sequence?: string): Promise<Called> {
    let called: Called | undefined;
    for (let i = 0; i < COMPARED; i += 1) {
      await this.stage.pass(APART_MS);
      const own = await this.answered(`${name}-${i}`, sequence);
      called = called?.intersection(own) ?? own;
    }
    return called ?? new Set();
  }

  /** The call sends a request to each of these partitions; its records are made before. */
  requestsTo(name: string, partitions: readonly number[]): () => void {
    const batches = partitions.map((partition) => ({ partition, batch: this.#batch(name, partition) }));
    return () => {
      for (const { partition, batch } of batches) this.stage.kafka.cluster.sendBatch(REQUESTS, partition, batch);
    };
  }

  /** The number of replies so far. */
  get replies(): number {
    return this.stage.kafka.cluster.partition(REPLIES, 0).log.end;
  }

  /** Creates the sequence, as an operator does. */
  async createSequence(): Promise<void> {
    const { etcd, runtime } = this.stage;
    const descriptor = etcd.peek(namespaceKeys(config.etcd.prefix, config.datacenterId).descriptor);
    if (descriptor === undefined) throw new Error('no worker has created the namespace');
    const options = {
      heads: new EtcdHeads({ etcd: etcd.port(), keysOf: headKeysOf(config) }),
      log: new HomeLog(this.stage),
      partition: 0,
      sequence: INVOICES,
      namespace: decodeDescriptor(descriptor.value).uuid,
      runtime,
    };
    await runtime.until(carryOut(options, () => SEQUENCE));
  }

  #batch(name: string, partition: number, sequence?: string): Buffer {
    const correlationId = Buffer.from(sequence === undefined ? idFor(name, partition, PARTITIONS) : name);
    const value = encodeIdRequest({ count: 1, correlationId, replyTopic: REPLIES, ...(sequence && { sequence }) });
    return batchOf([{ key: correlationId, value }], { timestampMs: this.stage.runtime.wallMs() });
  }
}

/** The ledger partition 0, for an order. */
class HomeLog implements OrderLog {
  readonly #stage: WorkerStage;
  reading: PartitionReading;

  constructor(stage: WorkerStage) {
    this.#stage = stage;
    this.reading = this.#read();
  }

  async readOn(): Promise<void> {
    this.reading = this.#read();
  }

  async readWhole(): Promise<void> {
    this.reading = this.#read();
  }

  async append(records: readonly unknown[]): Promise<void> {
    this.#stage.kafka.cluster.send(config.topics.ledger, 0, records as readonly PlainRecord[]);
  }

  async requestEnd(known: number): Promise<number> {
    return Math.max(known, this.#stage.kafka.cluster.partition(config.topics.requests, 0).log.end);
  }

  #read(): PartitionReading {
    const { log } = this.#stage.kafka.cluster.partition(config.topics.ledger, 0);
    const reading = new PartitionReading({ partition: 0, from: 0 }, { isWhole: true });
    for (const { offset, key = null, value = null, headers = {}, timestampMs } of log.batches().flatMap(recordsOf)) {
      reading.take({ partition: 0, offset, key, value, headers, timestampMs } as never, undefined);
    }
    reading.end = log.end;
    return reading;
  }
}

/** Measures all of them, one after the other. */
export async function measureWays(): Promise<Ways> {
  const { usual, ...ways } = await waysOfOne();
  return { ...ways, takeover: await takeover(usual) };
}

async function waysOfOne() {
  await using scene = new Scene();
  const { stage } = scene;
  const worker = stage.start();
  await stage.pass(START_MS);
  await scene.createSequence();
  // The first ones load what is loaded once: the reply topic, and the head of the sequence.
  await scene.answered('first');
  await scene.answered('first-number', INVOICES);
  const idle = await scene.idle(() => worker.unready);
  const wayOf = (whole: Called): Way => ({ own: byFile(whole.difference(idle)), whole: byFile(whole) });
  const usual = await scene.answeredOften('request');
  const numbers = wayOf(await scene.answeredOften('number', INVOICES));
  const [lease] = stage.etcd.range('').kvs.flatMap(({ leaseId }) => (leaseId === 0n ? [] : [leaseId]));
  if (lease === undefined) throw new Error('the worker has no lease');
  let wasShut = false;
  const acquired = await scene.during(
    () => stage.etcd.revokeLease(lease),
    () => {
      wasShut ||= worker.unready !== undefined;
      return wasShut && worker.unready === undefined;
    },
  );
  return { usual, request: wayOf(usual), numbers, lease: { own: byFile(acquired.difference(idle)) } };
}

/** `usual`: what a request calls in a worker that serves. */
async function takeover(usual: Called): Promise<Way> {
  await using scene = new Scene();
  const { stage } = scene;
  const workers = { a: stage.start({}, 'a'), b: stage.start({}, 'b') };
  await stage.pass(START_MS);
  const lost = workers.a.vitals().copies.flatMap(({ partition, state }) => (state === 'serving' ? [partition] : []));
  if (lost.length === 0) throw new Error('the first worker serves no partition');
  // Both workers have served requests before: the first one finds the reply topic, and the second one who pays for it.
  const all = [...Array(PARTITIONS).keys()];
  for (const name of ['first', 'second']) {
    const due = scene.replies + all.length;
    await scene.during(scene.requestsTo(name, all), () => scene.replies === due);
  }
  const idle = await scene.idle(() => {});
  const before = scene.replies;
  const send = scene.requestsTo('waits', lost);
  const called = await scene.during(
    () => {
      stage.kill('a');
      send();
    },
    () => scene.replies === before + lost.length,
  );
  return { own: byFile(called.difference(idle).difference(usual)) };
}
