import type { ClosableEtcd } from '../../src/adapters/etcd/etcd.ts';
import { describeError, IdallocError } from '../../src/errors.ts';
import type { Allocator } from '../../src/pipeline/ports.ts';
import { LeasedAllocator } from '../../src/worker/allocator.ts';
import type { Outside } from '../../src/worker/environment.ts';
import { Worker } from '../../src/worker/worker.ts';
import type { Brokers } from './brokers.ts';
import { CopyWatch } from './copy-watch.ts';
import type { Store } from './etcd.ts';
import { HandOverWatch } from './hand-over.ts';
import type { History } from './history.ts';
import { logOf } from './host-log.ts';
import type { Machine, Process } from './machine.ts';
import type { Network } from './network.ts';
import { NO_METRICS } from './no-metrics.ts';
import { configOf } from './pairs.ts';
import { Probe } from './probe.ts';
import { ReadinessProbe } from './readiness.ts';
import { runtimeOf } from './runtime.ts';
import type { Scenario } from './scenario.ts';
import { LOW_COUNT } from './setting.ts';
import type { World } from './world.ts';

/** The machine that a worker runs on. */
export interface Place {
  readonly world: World;
  readonly network: Network;
  readonly store: Store;
  readonly brokers: Brokers;
  readonly history: History;
  readonly scenario: Scenario | undefined;
}

/** Errors with which a worker may exit, after which it is restarted. */
const ENDS = new Set(['INSTANCE_FENCED', 'INDEX_UNUSABLE']);

/** One process that runs the real worker over simulated servers. */
export class Host {
  readonly process: Process;
  /** Called when it sends a heartbeat, or requests a lease. */
  onRenewing: (() => void) | undefined;
  readonly worker: Worker;
  readonly #place: Place;
  readonly #machine: Machine;
  readonly #probe: Probe;
  stopping = false;

  /** `onEnd` is called when the worker exits without being stopped. */
  constructor(place: Place, machine: Machine, onEnd: () => void) {
    const { world, store, brokers, history } = place;
    this.#place = place;
    this.#machine = machine;
    this.process = machine.start();
    const runtime = runtimeOf(world, machine, this.process);
    const config = {
      ...configOf(brokers.config, machine.pair),
      workerIp: `10.0.0.${machine.number}`,
      pool: machine.pool,
      ...(world.isCountLow && { maxCount: LOW_COUNT }),
    };
    this.#probe = new Probe(world, history, store, this.process, JSON.stringify(machine.pool));
    const copies = new CopyWatch(place, this.process.name, machine.pair);
    const readiness = new ReadinessProbe(place, machine, this.process);
    const environment: Outside = {
      runtime: this.#probe.watched(runtime),
      dialer: brokers.dialer(this.process, [readiness.observer, copies.observer]),
      etcd: this.#etcd(),
      openIndex: (binding, events) => copies.around(machine.disk.open(binding, events)),
      instanceId: () => machine.disk.instanceId(runtime.uuid),
      createAllocator: (options) => this.#slowed(new LeasedAllocator(this.#probe.around(options))),
    };
    this.worker = new Worker(config, {
      log: logOf(this.process.name, place),
      metrics: {
        ...NO_METRICS,
        setGate: (reason) => void (reason === 'RESTORED' && history.alarms.push(world.tick())),
      },
      environment,
    });
    this.worker.done.catch((error) => this.process.deliver(() => this.#failed(error, onEnd)));
    readiness.watch(this.worker);
    new HandOverWatch(place, this.process).watch();
  }

  get isReady(): boolean {
    return this.process.running && this.worker.unready === undefined;
  }

  /** Stops the worker gracefully; false if it exited in another way meanwhile. */
  async stop(): Promise<boolean> {
    this.stopping = true;
    await this.worker[Symbol.asyncDispose]();
    if (this.process.dead) return false;
    this.process.crash();
    return true;
  }

  #slowed(inner: Allocator): Allocator {
    return {
      holds: (allocation) => inner.holds(allocation),
      allocate: async (counts) => {
        const allocations = await inner.allocate(counts);
        const leftMs = this.process.slowUntilMs - this.#place.world.nowMs;
        if (leftMs > 0) await this.process.sleep(leftMs);
        return allocations;
      },
    };
  }

  #etcd(): ClosableEtcd {
    const { store } = this.#place;
    const port = store.port(this.process, () => {
      this.onRenewing?.();
      return this.#probe.renewing(this.#machine.read().mono);
    });
    return { ...port, lastError: undefined, statuses: async () => new Map(), close: () => {} };
  }

  #failed(error: unknown, onEnd: () => void): void {
    if (this.stopping) return;
    const { world, history } = this.#place;
    world.note(() => `${this.process.name} ends: ${describeError(error)}`);
    const code = error instanceof IdallocError ? error.code : undefined;
    if (code === 'NAMESPACE_MISMATCH') this.#machine.isMisfit = true;
    // If etcd was rolled back while a namespace was being created, it may look damaged.
    const isExpected =
      code === 'NAMESPACE_DAMAGED'
        ? history.setBacks.length > 0
        : ENDS.has(code ?? '') ||
          (code === 'CLUSTER_CHANGED' && history.replacements.length > 0) ||
          (code === 'NAMESPACE_MISMATCH' && (this.#place.scenario === 'mixed' || this.#machine.isStray));
    if (!isExpected) history.defects.push(`${this.process.name} ended: ${describeError(error)}`);
    onEnd();
  }
}
