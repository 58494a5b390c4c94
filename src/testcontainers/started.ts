import type { StartedNetwork, StartedTestContainer } from 'testcontainers';
import type { IdClient } from '../client/client.ts';
import { IdallocError } from '../errors.ts';
import type { StartedIdAllocContainer } from './container.ts';

/** The names of the topics of an environment. */
export interface IdAllocTopics {
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly witness: string;
  /** Made for the client of the environment. */
  readonly replies: string;
}

/** What an environment is made of. */
export interface IdAllocParts {
  readonly network: StartedNetwork;
  readonly kafka: StartedTestContainer;
  readonly etcd: StartedTestContainer;
  readonly brokers: readonly string[];
  readonly endpoints: readonly string[];
  readonly topics: IdAllocTopics;
  readonly client: IdClient;
  readonly workers: readonly StartedIdAllocContainer[];
}

/** What has to be done to be rid of what was started, in this order. */
export type Undo = readonly (() => Promise<void>)[];

/** Kafka, etcd, workers and a client that run; `await using`, or stop() at the end. */
export class StartedIdAllocEnvironment implements AsyncDisposable {
  /** For containers of yours: in it Kafka is kafka:19092 and etcd http://etcd:2379. */
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
   * Takes the lease and the worker ID of a worker away, as if the lease had run out. The worker notices at its next
   * heartbeat, stops with LEASE_LOST, and takes a worker ID anew.
   *
   * @returns the worker ID that was taken away
   */
  loseLease(index: number): Promise<number> {
    return this.#worker(index).loseLease();
  }

  /** Freezes a worker. Paused for longer than its lease, it finds when it wakes that others have its partitions. */
  pauseWorker(index: number): Promise<void> {
    return this.#worker(index).pause();
  }

  /** Ends the freeze; harmless when there is none. */
  resumeWorker(index: number): Promise<void> {
    return this.#worker(index).resume();
  }

  /** Steps the wall clock of one worker by so many ms; negative: back. Needs the image of ops/Dockerfile.faults. */
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
    if (failures.length > 0) throw new AggregateError(failures, 'not all of the environment was removed');
  }

  #worker(index: number): StartedIdAllocContainer {
    const worker = this.workers[index];
    if (worker === undefined) {
      throw new IdallocError('CONFIG_INVALID', `there is no worker ${index}; they are 0 to ${this.workers.length - 1}`);
    }
    return worker;
  }
}

/** Does each, whatever becomes of the others; returns what failed. */
export async function undoAll(undo: Undo): Promise<readonly unknown[]> {
  const failures: unknown[] = [];
  for (const step of undo) await step().catch((error: unknown) => failures.push(error));
  return failures;
}
