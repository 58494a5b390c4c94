import type { ClosableEtcd } from '../../src/adapters/etcd/etcd.ts';
import type { GateReason } from '../../src/core/gate.ts';
import { describeError, IdallocError } from '../../src/errors.ts';
import { Issuer } from '../../src/http/issuer.ts';
import { Problem } from '../../src/http/problem.ts';
import type { Log } from '../../src/log.ts';
import type { Metrics } from '../../src/metrics/metrics.ts';
import type { Allocator } from '../../src/pipeline/ports.ts';
import { LeasedAllocator } from '../../src/worker/allocator.ts';
import type { Outside } from '../../src/worker/environment.ts';
import { KAFKA_SILENCE_MS, Worker } from '../../src/worker/worker.ts';
import type { CallObserver } from '../support/fake-kafka/network.ts';
import type { Brokers } from './brokers.ts';
import { CopyWatch } from './copy-watch.ts';
import type { Store } from './etcd.ts';
import { HandOverWatch } from './hand-over.ts';
import type { History } from './history.ts';
import type { Machine, Process } from './machine.ts';
import type { Network } from './network.ts';
import { configOf } from './pairs.ts';
import { Probe } from './probe.ts';
import { runtimeOf } from './runtime.ts';
import type { Scenario } from './scenario.ts';
import { LOW_COUNT, SESSION_MS } from './setting.ts';
import type { World } from './world.ts';

/** What is around a worker: simulated servers and links, and the record of what happens to all of them. */
export interface Surroundings {
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
  readonly #around: Surroundings;
  readonly #machine: Machine;
  readonly #probe: Probe;
  /** What the HTTP API gets its IDs from, as soon as the worker has an allocator. */
  #issuer: Issuer | undefined;
  /** Why the gate is closed; undefined while it is open. */
  #gate: GateReason | undefined = 'STARTING';
  stopping = false;

  /** `onEnd` is called when the worker exits without being stopped. */
  constructor(around: Surroundings, machine: Machine, onEnd: () => void) {
    const { world, store, brokers, history } = around;
    this.#around = around;
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
    const copies = new CopyWatch(around, this.process.name, machine.pair);
    const readiness = new ReadinessProbe(around, machine, this.process);
    const environment: Outside = {
      runtime: this.#probe.watched(runtime),
      dialer: brokers.dialer(this.process, [readiness.observer, copies.observer]),
      etcd: this.#etcd(),
      indexDisk: () => undefined,
      openIndex: (binding, events) => copies.around(machine.disk.open(binding, events)),
      instanceId: () => machine.disk.instanceId(runtime.uuid),
      createAllocator: (options) => {
        const source = this.#slowed(new LeasedAllocator(this.#probe.around(options)));
        const gateReason = () => this.#gate;
        this.#issuer = new Issuer({
          ...options,
          source,
          gateReason,
          monotonicMs: runtime.monotonicMs,
          issued: nothing,
        });
        return source;
      },
    };
    this.worker = new Worker(config, {
      log: logOf(this.process.name, around),
      metrics: {
        ...NO_METRICS,
        setGate: (reason) => this.#gateIs(reason),
      },
      environment,
    });
    this.worker.done.catch((error) => this.process.deliver(() => this.#failed(error, onEnd)));
    readiness.watch(this.worker);
    new HandOverWatch(around, this.process).watch();
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

  /** Somebody wants so many IDs over HTTP. A process that is frozen gets the request later. */
  call(caller: string, count: number): void {
    this.process.deliver(() => void this.#answer(caller, count));
  }

  async #answer(caller: string, count: number): Promise<void> {
    const { history } = this.#around;
    const isClosed = this.#gate !== undefined;
    try {
      const given = await this.#issuer?.issue(caller, count);
      if (given !== undefined) history.overHttp.push({ process: this.process.name, ranges: given.ranges, isClosed });
    } catch (error) {
      if (!(error instanceof Problem)) history.defects.push(`${this.process.name} over HTTP: ${describeError(error)}`);
    }
  }

  #gateIs(reason: string): void {
    const { world, history } = this.#around;
    this.#gate = reason === 'open' ? undefined : (reason as GateReason);
    if (reason === 'RESTORED') history.alarms.push(world.tick());
  }

  #slowed(inner: Allocator): Allocator {
    return {
      holds: (allocation) => inner.holds(allocation),
      allocate: async (counts) => {
        const allocations = await inner.allocate(counts);
        const leftMs = this.process.slowUntilMs - this.#around.world.nowMs;
        if (leftMs > 0) await this.process.sleep(leftMs);
        return allocations;
      },
    };
  }

  #etcd(): ClosableEtcd {
    const { store } = this.#around;
    const port = store.port(this.process, () => {
      this.onRenewing?.();
      return this.#probe.renewing(this.#machine.read().mono);
    });
    return { ...port, lastError: undefined, statuses: async () => new Map(), close: () => {} };
  }

  #failed(error: unknown, onEnd: () => void): void {
    if (this.stopping) return;
    const { world, history } = this.#around;
    world.note(() => `${this.process.name} ends: ${describeError(error)}`);
    const code = error instanceof IdallocError ? error.code : undefined;
    if (code === 'NAMESPACE_MISMATCH') this.#machine.isMisfit = true;
    // If etcd was rolled back while a namespace was being created, it may look damaged.
    const isExpected =
      code === 'NAMESPACE_DAMAGED'
        ? history.setBacks.length > 0
        : ENDS.has(code ?? '') ||
          (code === 'CLUSTER_CHANGED' && history.replacements.length > 0) ||
          (code === 'NAMESPACE_MISMATCH' && (this.#around.scenario === 'mixed' || this.#machine.isStray));
    if (!isExpected) history.defects.push(`${this.process.name} ended: ${describeError(error)}`);
    onEnd();
  }
}

const nothing = (): void => {};

/** Counts nothing. */
const NO_METRICS: Metrics = {
  addIds: nothing,
  addNumbers: nothing,
  addSwap: nothing,
  addSequenceLoss: nothing,
  addRequests: nothing,
  addReplies: nothing,
  addDeadLetters: nothing,
  addForwarded: nothing,
  addForeignOffset: nothing,
  addLedgerLoss: nothing,
  addDeferred: nothing,
  addSkippedReplies: nothing,
  addIndebted: nothing,
  addQuotaExceeded: nothing,
  addError: nothing,
  setGate: nothing,
  setLeaseMargin: nothing,
  setCeilingMargin: nothing,
  setClockDrift: nothing,
  observeBatch: nothing,
  observeStep: nothing,
  observeEtcdCall: nothing,
  setLag: nothing,
  addHttpRequest: nothing,
  observeHttpLedger: nothing,
  addShedConnection: nothing,
  render: async () => ({ contentType: '', body: '' }),
};

/** Error lines that the faults of a simulation cause. */
const EXPECTED_ERRORS: readonly RegExp[] = [
  /^no worker ID can be acquired: .*"RESTORED"/,
  /"KAFKA_REFUSED".* a consumer that is not a worker/,
  /^partitions were added to a topic /,
];
/** A worker states a loss only after there was one. */
const LOST_TAIL = /^a ledger partition has lost its tail/;
/**
 * Appends that come late, and twice, behind a lost tail look like a copy of the log; nothing is decided until an
 * operator has looked.
 */
const COPIED = /LEDGER_COPIED/;
/** What an operator ends by adopting the cluster. */
const OTHER_CLUSTER = /CLUSTER_CHANGED|LEDGER_COPIED/;
/** Where etcd lost heads, a rebuild ends it. */
const STOPPED = /SEQUENCE_STOPPED|stopped until a rebuild/;
/** A partition is not served while its requests end below what is known: expected once they lost their tail. */
const SHORTER_REQUESTS = /REQUESTS_RECREATED/;
/** An index whose disk is damaged again and again ends its worker, which may be serving requests. */
const UNUSABLE = /INDEX_UNUSABLE/;
const LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const;

/** Writes to the trace. An `error` line needs an operator, which nothing here should. */
function logOf(name: string, { world, history }: { readonly world: World; readonly history: History }): Log {
  return logTo((level, fields, message) => {
    const text = () => `${message} ${typeof fields === 'string' ? fields : shown(fields)}`;
    world.note(() => `${name} ${level}: ${text()}`);
    if (level !== 'error' && level !== 'fatal') return;
    if (history.requestLosses.length > 0 && SHORTER_REQUESTS.test(text())) return;
    if (history.losses.length > 0 && (LOST_TAIL.test(message) || COPIED.test(text()))) return;
    if (history.replacements.length > 0 && OTHER_CLUSTER.test(text())) return;
    if (history.setBacks.length > 0 && STOPPED.test(text())) return;
    if (history.damaged.includes(name) && UNUSABLE.test(text())) return;
    if (!EXPECTED_ERRORS.some((one) => one.test(text()))) history.defects.push(`${name}: ${text()}`);
  });
}

function logTo(write: (level: (typeof LEVELS)[number], fields: object | string, message: string) => void): Log {
  const line = (level: (typeof LEVELS)[number]) => (fields: object | string, message?: string) =>
    write(level, fields, message ?? '');
  const log = Object.fromEntries(LEVELS.map((level) => [level, line(level)]));
  return Object.assign(log, { child: () => log }) as unknown as Log;
}

function shown(fields: object): string {
  return JSON.stringify(fields, (_, value) => {
    if (value instanceof Error) return describeError(value);
    return typeof value === 'bigint' ? String(value) : value;
  });
}

const LOOK_MS = 250;
/** Time after which a removed member must know it: by its next heartbeat, or when none was answered for a session. */
const GRACE_MS = SESSION_MS + 2_000;

/**
 * Checks the readiness that a worker reports: brokers must have answered it recently, and the coordinator must list it
 * as a member.
 */
class ReadinessProbe {
  readonly #around: Surroundings;
  readonly #machine: Machine;
  readonly #process: Process;
  #answeredMs = Number.NEGATIVE_INFINITY;
  /** How long the process has run since the coordinator last listed it as a member. */
  #outMs = 0;

  constructor(around: Surroundings, machine: Machine, process: Process) {
    this.#around = around;
    this.#machine = machine;
    this.#process = process;
  }

  /** Sees the answers that the process gets. */
  readonly observer: CallObserver = {
    sent: () => {},
    ended: (_call, _request, isAnswered) => {
      if (isAnswered) this.#answeredMs = this.#machine.read().mono;
    },
  };

  watch(worker: Worker): void {
    this.#process.after(LOOK_MS, () => {
      this.#look(worker);
      this.watch(worker);
    });
  }

  #look(worker: Worker): void {
    const { brokers, history, world } = this.#around;
    const members = brokers.cluster.groups.get(this.#machine.pair.group)?.members ?? [];
    const isMember = members.some(({ clientId }) => clientId === this.#process.name);
    this.#outMs = isMember ? 0 : this.#outMs + LOOK_MS;
    if (worker.unready !== undefined) return;
    if (this.#machine.isStray) history.strays.push(`${this.#process.name} was ready at ${world.nowMs.toFixed(0)} ms`);
    const silentMs = this.#machine.read().mono - this.#answeredMs;
    const when = `${this.#process.name} at ${world.nowMs.toFixed(0)} ms was ready`;
    if (silentMs > KAFKA_SILENCE_MS)
      history.falselyReady.push(`${when} after ${silentMs.toFixed(0)} ms without an answer from a broker`);
    if (this.#outMs > GRACE_MS) history.falselyReady.push(`${when} and had not been a member for ${this.#outMs} ms`);
  }
}
