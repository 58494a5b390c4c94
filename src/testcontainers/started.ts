import type { StartedNetwork, StartedTestContainer } from 'testcontainers';
import { IdallocError, type IdClient } from '../client/index.ts';
import type { StartedIdAllocContainer } from './container.ts';

/** The names of the topics of an environment. */
export interface IdAllocTopics {
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly witness: string;
  /** The reply topic of the environment's client. */
  readonly replies: string;
}

/** The parts of an environment. */
export type IdAllocParts = Pick<
  StartedIdAllocEnvironment,
  'network' | 'kafka' | 'etcd' | 'brokers' | 'endpoints' | 'topics' | 'client' | 'workers'
>;

/** The steps that remove what was started, in this order. */
export type Undo = readonly (() => Promise<void>)[];

/** Running Kafka, etcd, workers and a client; use `await using`, or call stop() at the end. */
export class StartedIdAllocEnvironment implements AsyncDisposable {
  /** For your own containers: Kafka is at kafka:19092 and etcd at http://etcd:2379. */
  readonly network: StartedNetwork;
  readonly kafka: StartedTestContainer;
  readonly etcd: StartedTestContainer;
  /** host:port for clients on this machine. */
  readonly brokers: readonly string[];
  /** URLs of etcd for clients on this machine. */
  readonly endpoints: readonly string[];
  readonly topics: IdAllocTopics;
  /** Its buffer was filled before start() resolved. */
  readonly client: IdClient;
  readonly workers: readonly StartedIdAllocContainer[];
  readonly #undo: Undo;
  #stopping: Promise<void> | undefined;

  constructor(parts: IdAllocParts, undo: Undo) {
    this.network = parts.network;
    this.kafka = parts.kafka;
    this.etcd = parts.etcd;
    this.brokers = parts.brokers;
    this.endpoints = parts.endpoints;
    this.topics = parts.topics;
    this.client = parts.client;
    this.workers = parts.workers;
    this.#undo = undo;
  }

  /**
   * Removes the lease and the worker ID of a worker, as if the lease had expired. The worker notices at its next
   * heartbeat, stops with LEASE_LOST, and acquires a worker ID again.
   *
   * @returns the worker ID that was removed
   */
  loseLease(index: number): Promise<number> {
    return this.#worker(index).loseLease();
  }

  /** Freezes a worker. If the freeze outlasts its lease, other workers have its partitions when it resumes. */
  pauseWorker(index: number): Promise<void> {
    return this.#worker(index).pause();
  }

  /** Ends the freeze; does nothing if the worker is not frozen. */
  resumeWorker(index: number): Promise<void> {
    return this.#worker(index).resume();
  }

  /** Steps the wall clock of one worker by `ms`, negative to step back. Needs the image of ops/Dockerfile.faults. */
  stepClock(index: number, ms: number): Promise<void> {
    return this.#worker(index).stepClock(ms);
  }

  /** Closes the client and removes all containers and the network; may be called twice. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    const failures = await undoAll(this.#undo);
    if (failures.length > 0) throw new AggregateError(failures, 'removing the environment failed');
  }

  #worker(index: number): StartedIdAllocContainer {
    const worker = this.workers[index];
    if (worker === undefined) {
      throw new IdallocError(
        'CONFIG_INVALID',
        `there is no worker ${index}: valid indexes are 0 to ${this.workers.length - 1}`,
      );
    }
    return worker;
  }
}

/** Runs all steps, even if some fail; returns the errors. */
export async function undoAll(undo: Undo): Promise<readonly unknown[]> {
  const failures: unknown[] = [];
  for (const step of undo) await step().catch((error: unknown) => failures.push(error));
  return failures;
}
