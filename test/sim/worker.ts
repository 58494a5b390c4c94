import { ReignAllocator } from '../../src/allocator.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import { describeError, IdallocError } from '../../src/errors.ts';
import { GuardedClock } from '../../src/guarded-clock.ts';
import { Identity } from '../../src/identity/identity.ts';
import { type Namespace, openNamespace } from '../../src/identity/namespace.ts';
import type { EtcdPort, WitnessPort } from '../../src/identity/ports.ts';
import { isRestored } from '../../src/identity/protocol.ts';
import { IdentityRunner } from '../../src/identity/runner.ts';
import type { Authority } from '../../src/identity/state.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { Follower } from '../../src/pipeline/follower.ts';
import { Ledger } from '../../src/pipeline/ledger.ts';
import { KafkaClient, Reader } from './clients.ts';
import { Consumer } from './consumer.ts';
import type { Store } from './etcd.ts';
import type { History } from './history.ts';
import type { Brokers } from './kafka.ts';
import type { Machine, Process } from './machine.ts';
import type { Network } from './network.ts';
import { Probe } from './probe.ts';
import { DATACENTER, DEAD_LETTERS, descriptor, keys, layout, PARTITIONS, REQUESTS, timing } from './setting.ts';
import type { World } from './world.ts';

/** Where workers live. */
export interface Surroundings {
  readonly world: World;
  readonly network: Network;
  readonly store: Store;
  readonly brokers: Brokers;
  readonly history: History;
}

/** How often a partition of the index is told where its log starts now. */
const EXPIRE_MS = 4_000;
const UNBORN: Authority = { ok: false, code: 'NO_IDENTITY', message: 'the namespace is not open yet' };

/** One process of the worker: the real parts, wired as src/worker.ts does it, over simulated servers. */
export class Worker {
  readonly process: Process;
  stopping = false;
  readonly #around: Surroundings;
  readonly #machine: Machine;
  readonly #onEnd: () => void;
  readonly #clock: GuardedClock;
  readonly #probe: Probe;
  readonly #client: KafkaClient;
  readonly #consumer: Consumer;
  readonly #follower: Follower;
  readonly #readers: readonly Reader[];
  readonly #stopping = new AbortController();
  readonly #running: Promise<void>;
  readonly #witness: WitnessPort;
  #identity: Identity | undefined;

  /** `onEnd` is called when the process ends by itself, as it does in a namespace that is damaged. */
  constructor(around: Surroundings, machine: Machine, onEnd: () => void) {
    const { world, network, store, brokers, history } = around;
    this.#around = around;
    this.#onEnd = onEnd;
    this.#machine = machine;
    this.process = machine.start();
    this.#clock = new GuardedClock(machine.read);
    this.#probe = new Probe(world, history, store);
    const client = new KafkaClient(world, network, brokers, this.process);
    this.#client = client;
    this.#witness = client.witness();
    this.#readers = Array.from({ length: PARTITIONS }, (_, at) => new Reader(client, at, this.#sink()));
    this.#follower = new Follower({
      index: machine.disk,
      partitions: PARTITIONS,
      setTimer: (run, delayMs) => {
        const timer = this.process.after(delayMs, run);
        return { cancel: () => (timer.cancelled = true) };
      },
      onRestart: (partition, cause) => {
        world.note(() => `${this.process.name}: ledger ${partition} read anew, ${cause}`);
        this.#readers[partition]?.restart();
      },
      onChange: () => {},
    });
    const ledger = new Ledger(client.ledgerLog(this.#clock, history), machine.disk, this.#follower);
    const deps = this.#pipeline(client, ledger);
    this.#consumer = new Consumer({
      world,
      process: this.process,
      client,
      history,
      isOpen: () => this.#identity?.state.mode === 'held' && this.#follower.caughtUp(),
      onJoin: (partitions) => {
        for (const partition of partitions) ledger.mark(partition).catch(this.#passing);
      },
      handler: (partition, records, control) => processBatch(deps, partition, records, control),
    });
    for (const reader of this.#readers) reader.restart();
    void this.#expire(client);
    this.#consumer.run();
    this.#running = this.#reign();
  }

  /** Whether its index of a ledger partition is behind. */
  restores(partition: number): boolean {
    return this.#follower.refusal(partition)?.code === 'INDEX_RESTORING';
  }

  /** The reader's group is balanced anew. */
  rejoinLedger(): void {
    for (const reader of this.#readers) reader.rejoin();
  }

  /** Finishes what is in hand, leaves the group and gives the identity back. */
  async stop(): Promise<void> {
    this.stopping = true;
    await this.#consumer.stop();
    this.#stopping.abort();
    await this.#running;
    this.process.crash();
  }

  /** Lets go of what the runtime holds for a process that never ended: a signal that somebody waits for is kept alive. */
  discard(): void {
    this.process.crash();
    this.#stopping.abort();
  }

  /** The follower, which does not exist yet when the readers are made. */
  #sink() {
    return {
      begin: (...args: Parameters<Follower['begin']>) => this.#follower.begin(...args),
      resume: (partition: number) => this.#follower.resume(partition),
      deliver: (...args: Parameters<Follower['deliver']>) => this.#follower.deliver(...args),
    };
  }

  /** Forgets what the ledger has lost, now and then. */
  async #expire(client: KafkaClient): Promise<void> {
    for (let partition = 0; !this.process.dead; partition = (partition + 1) % PARTITIONS) {
      await this.process.sleep(EXPIRE_MS);
      const bounds = await client.call('bounds', ({ ledger }) => ledger.bounds(partition)).catch(() => undefined);
      while (bounds !== undefined && this.#follower.expire(partition, bounds.low, bounds.high)); // else asked again
    }
  }

  readonly #passing = (error: unknown): void => {
    this.#around.world.note(() => `${this.process.name}: ${describeError(error)}`);
    if (error instanceof IdallocError && error.retryable) return;
    this.#around.history.defects.push(describeError(error));
  };

  async #reign(): Promise<void> {
    const { world, store, history } = this.#around;
    const { process } = this;
    const etcd = store.port(process, () => {
      const sentMs = this.#machine.read().mono;
      return () => {
        this.#probe.renewedMs = Math.max(this.#probe.renewedMs, sentMs);
      };
    });
    let names = 0;
    const newNonce = (): string => `${process.name.replace('.', '-')}-${++names}`;
    const readClock = () => this.#clock.read();
    try {
      const namespace = await this.#openNamespace(etcd, newNonce);
      if (namespace === undefined) return;
      this.#identity = new Identity({
        etcd,
        witness: this.#witness,
        keys,
        namespace,
        layout,
        timing,
        readClock,
        random: world.rng.next,
        newNonce,
        newLeaseId: () => BigInt(world.tick()),
        workerIp: this.#machine.name,
        askBrokers: () => this.#client.askClocks(this.#clock),
        onChange: ({ mode, refusal, workerId }) => {
          world.note(() => `${process.name}: ${mode} ${workerId ?? ''} ${refusal?.code ?? ''}`);
          if (refusal?.code !== 'RESTORED' || history.setBacks.length > 0) return;
          history.defects.push(`RESTORED though etcd was never set back: ${refusal.message}`);
        },
        log: () => {},
      });
      const identity = this.#identity;
      this.#clock.onPause((now) => identity.paused(now));
      const runner = new IdentityRunner({
        identity,
        timing,
        readClock,
        trustClockAnew: () => this.#clock.trustAnew(),
        sleep: process.sleep,
        random: world.rng.next,
        releaseLimitMs: 5_000,
      });
      await runner.run(this.#stopping.signal);
    } catch (error) {
      // Whoever meets an etcd that was set back in the middle of a namespace's beginnings may find it damaged.
      const damaged = error instanceof IdallocError && error.code === 'NAMESPACE_DAMAGED';
      if (damaged && this.#around.history.setBacks.length > 0) this.#onEnd();
      else this.#passing(error);
    }
  }

  async #openNamespace(etcd: EtcdPort, newNonce: () => string): Promise<Namespace | undefined> {
    while (!this.#stopping.signal.aborted) {
      try {
        return await openNamespace(etcd, this.#witness, keys, descriptor, newNonce);
      } catch (error) {
        if (!isRestored(error) && !(error instanceof IdallocError && error.retryable)) throw error;
        await this.process.sleep(1_000, this.#stopping.signal);
      }
    }
    return undefined;
  }

  #pipeline(client: KafkaClient, ledger: Ledger) {
    const allocator = new ReignAllocator({
      layout,
      datacenterId: DATACENTER,
      readClock: this.#probe.clock(() => this.#clock.read()),
      authority: this.#probe.authority((now) => this.#identity?.authority(now) ?? UNBORN),
      random: this.#around.world.rng.next,
      sleep: this.#probe.sleep(this.process.sleep),
    });
    return {
      layout,
      datacenterId: DATACENTER,
      maxCount: layout.maxCount,
      index: this.#machine.disk,
      ledger,
      allocator: this.#probe.allocator(allocator),
      now: () => this.#machine.read().wall,
      names: DEFAULT_HEADER_NAMES,
      requestTopic: REQUESTS,
      deadLetterTopic: DEAD_LETTERS,
      replyPolicy: { prefix: 'id.replies.', requestTopic: REQUESTS, ownTopics: [] },
      publisher: client.publisher(),
      observe: { served: () => {}, failed: () => {}, deadLettered: () => {} },
    };
  }
}
