import { setTimeout as pause } from 'node:timers/promises';
import { decodeBatches } from '../../src/kafka/records/decode.ts';
import type { NewRecord } from '../../src/kafka/records/record.ts';
import { RUNTIME } from '../../src/runtime.ts';
import type { Running } from './running.ts';
import { Requests, type Stage, type Topics } from './stage.ts';

/** Requests in one append. */
const MAX_RECORDS = 1_000;
/** Nothing more is sent to a contender with more unanswered requests than this. */
const MAX_OUTSTANDING = 300_000;
/** How long to wait for replies after the last request. */
const GRACE_MS = 10_000;
const FETCH = { maxWaitMs: 500, maxBytes: 10 * 1_048_576, isolation: 'read_committed' } as const;
const PARTITION_BYTES = 1_048_576;
const FETCH_TIMEOUT_MS = 10_000;
const TICK_MS = 1;

/** Requests of one measurement, with the time at which each is due and its latency. */
interface Phase {
  readonly name: string;
  /** When the request with this number is due (monotonic). */
  dueMs(i: number): number;
  /** By the number of the request; NaN without a reply. */
  readonly latenciesMs: Float64Array;
  sent: number;
  answered: number;
}

export interface Outcome {
  /** The numbers of the requests without a reply. */
  readonly unanswered: readonly number[];
  /** Latency of every request; for one without a reply, how long it has waited. */
  readonly latenciesMs: Float64Array;
}

export interface Percentiles {
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly unanswered: number;
}

export function percentilesOf({ latenciesMs, unanswered }: Outcome): Percentiles {
  const sorted = latenciesMs.toSorted();
  const at = (share: number) => Number((sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(2));
  return { p50_ms: at(0.5), p99_ms: at(0.99), unanswered: unanswered.length };
}

/**
 * Sends requests and reads the replies, both on our own wire: kafkajs' producer and consumer would be slower than the
 * worker that they measure.
 *
 * Open loop: each request is due at a time of a fixed schedule, and its latency counts from then. So a stall counts in
 * the latency of all requests that were due meanwhile, whether or not they could be sent. Each partition has one append
 * in flight; requests that become due meanwhile share the next one.
 */
export class Load implements AsyncDisposable {
  readonly #stage: Stage;
  readonly #topics: Topics;
  readonly #running: Running;
  readonly #requests: Requests;
  readonly #queues: NewRecord[][];
  readonly #sending = new Set<number>();
  readonly #phases = new Map<string, Phase>();
  readonly #reading: Promise<void>;
  #fault: unknown;
  #closed = false;

  /** `ids`: of each request. */
  constructor(stage: Stage, topics: Topics, running: Running, ids: number) {
    this.#stage = stage;
    this.#topics = topics;
    this.#running = running;
    this.#requests = new Requests(topics, ids);
    this.#queues = Array.from({ length: topics.partitions }, () => []);
    this.#reading = this.#readAll();
    this.#reading.catch((error: unknown) => this.#fail(error));
  }

  /**
   * Resolves with the first reply. One request is sent at a time, so that nothing piles up while the contender starts.
   */
  async firstReply(timeoutMs: number): Promise<void> {
    const deadlineMs = performance.now() + timeoutMs;
    const phase = this.#phase('begin', 100_000, () => performance.now());
    while (phase.answered === 0) {
      if (performance.now() > deadlineMs)
        throw new Error(`no reply within ${timeoutMs / 1_000} s of the start of the contender`);
      this.#send(phase);
      await this.#tick(200);
    }
    this.#phases.delete(phase.name);
  }

  /** Sends `total` requests at a rate. */
  async atRate(name: string, total: number, perSecond: number): Promise<Outcome> {
    const startMs = performance.now();
    const phase = this.#phase(name, total, (i) => startMs + (i * 1_000) / perSecond);
    while (phase.sent < total && phase.sent - phase.answered < MAX_OUTSTANDING) {
      const due = Math.min(total, Math.ceil(((performance.now() - startMs) * perSecond) / 1_000));
      while (phase.sent < due) this.#send(phase);
      await this.#tick(TICK_MS);
    }
    return this.#outcome(phase);
  }

  /**
   * Replies per second over `durationMs` with `outstanding` requests in flight, after a warm-up of a quarter of that
   * time.
   */
  async maximum(outstanding: number, durationMs: number): Promise<number> {
    const [startMs, phase] = [performance.now(), this.#phase('maximum', 0, () => 0)];
    let from: { readonly atMs: number; readonly answered: number } | undefined;
    for (;;) {
      const nowMs = performance.now();
      if (from === undefined && nowMs - startMs > durationMs / 4) from = { atMs: nowMs, answered: phase.answered };
      if (from !== undefined && nowMs - from.atMs > durationMs) {
        const rate = (1_000 * (phase.answered - from.answered)) / (nowMs - from.atMs);
        await this.#outcome(phase);
        return rate;
      }
      while (phase.sent - phase.answered < outstanding) this.#send(phase);
      await this.#tick(TICK_MS);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    await this.#reading.catch(() => undefined);
  }

  #phase(name: string, total: number, dueMs: (i: number) => number): Phase {
    const latenciesMs = new Float64Array(total).fill(Number.NaN);
    const phase = { name, dueMs, latenciesMs, sent: 0, answered: 0 };
    this.#phases.set(name, phase);
    return phase;
  }

  async #outcome(phase: Phase): Promise<Outcome> {
    const deadlineMs = performance.now() + GRACE_MS;
    while (phase.answered < phase.sent && performance.now() < deadlineMs) await this.#tick(10);
    this.#phases.delete(phase.name);
    const [nowMs, latenciesMs] = [performance.now(), phase.latenciesMs.slice(0, phase.sent)];
    const unanswered: number[] = [];
    for (const [i, latencyMs] of latenciesMs.entries()) {
      if (!Number.isNaN(latencyMs)) continue;
      unanswered.push(i);
      latenciesMs[i] = nowMs - phase.dueMs(i);
    }
    return { unanswered, latenciesMs };
  }

  async #tick(delayMs: number): Promise<void> {
    await pause(delayMs);
    if (this.#fault !== undefined) throw this.#fault;
    this.#running.check();
  }

  #send(phase: Phase): void {
    const { record, partition } = this.#requests.make(`${phase.name}-${phase.sent}`);
    phase.sent += 1;
    this.#queues[partition]?.push(record);
    if (this.#sending.has(partition)) return;
    this.#sending.add(partition);
    this.#flush(partition).then(
      () => this.#sending.delete(partition),
      (error: unknown) => this.#fail(error),
    );
  }

  async #flush(partition: number): Promise<void> {
    const queue = this.#queues[partition] ?? [];
    await RUNTIME.nextTurn(); // so that all requests that are due now share an append
    while (queue.length > 0) {
      await this.#stage.append(this.#topics.requests, partition, queue.splice(0, MAX_RECORDS));
    }
  }

  async #readAll(): Promise<void> {
    const { replies, partitions } = this.#topics;
    const leaders = await this.#stage.leaders(replies, partitions);
    await Promise.all([...leaders].map(([node, its]) => this.#read(node, its)));
  }

  async #read(node: number, partitions: readonly number[]): Promise<void> {
    const topic = this.#topics.replies;
    const positions = new Map(partitions.map((partition) => [partition, 0]));
    while (!this.#closed) {
      const asked = [...positions].map(([partition, offset]) => ({
        topic,
        partition,
        offset,
        maxBytes: PARTITION_BYTES,
      }));
      const answer = await this.#stage.cluster.call(node, 'replies', FETCH_TIMEOUT_MS, (link) =>
        link.call('fetch', { ...FETCH, partitions: asked }),
      );
      for (const fetched of answer.partitions) {
        if (fetched.errorCode !== undefined) throw new Error(`replies can't be read: ${fetched.errorCode}`);
        const from = positions.get(fetched.partition) ?? 0;
        const { records, next } = await decodeBatches(fetched, from, FETCH.isolation, RUNTIME.nextTurn);
        positions.set(fetched.partition, next);
        const nowMs = performance.now();
        for (const { key } of records) if (key !== null) this.#answered(key, nowMs);
      }
    }
  }

  /** Counts a reply once, even if it is repeated. */
  #answered(correlationId: Buffer, nowMs: number): void {
    const [name = '', number = ''] = correlationId.toString('latin1').split('-');
    const phase = this.#phases.get(name);
    if (phase === undefined) return;
    const i = Number(number);
    if (i < phase.latenciesMs.length) {
      if (!Number.isNaN(phase.latenciesMs[i])) return;
      phase.latenciesMs[i] = nowMs - phase.dueMs(i);
    }
    phase.answered += 1;
  }

  #fail(error: unknown): void {
    if (!this.#closed) this.#fault ??= error;
  }
}
