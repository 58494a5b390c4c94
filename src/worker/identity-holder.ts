import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import { descriptorOf } from '../codec/namespace-values.ts';
import type { Config } from '../config/config.ts';
import { type DriftSample, driftAtStart } from '../core/clock-guard.ts';
import type { GateReason } from '../core/gate.ts';
import { tickStartMs } from '../core/layout.ts';
import type { Reading } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import { type Bindings, bindingsOf } from '../identity/bindings.ts';
import { Identity } from '../identity/identity.ts';
import type { WitnessPort } from '../identity/identity-ports.ts';
import { type NamespaceKeys, namespaceKeys } from '../identity/keys.ts';
import { type Namespace, openNamespace } from '../identity/namespace.ts';
import { operatorsCode } from '../identity/protocol.ts';
import { IdentityRunner } from '../identity/runner.ts';
import type { Authority, IdentityState } from '../identity/state.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Gatekeeper } from './gatekeeper.ts';
import type { GuardedClock } from './guarded-clock.ts';

export interface IdentityHolderOptions {
  readonly config: Config;
  readonly log: Log;
  readonly runtime: Runtime;
  readonly etcd: ClosableEtcd;
  readonly clock: GuardedClock;
  readonly gate: Gatekeeper;
  readonly metrics: Metrics;
  /** For errors that waiting won't fix: NAMESPACE_MISMATCH, NAMESPACE_DAMAGED, CONFIG_INVALID. */
  readonly fail: (error: unknown) => void;
}

/** The identity's dependencies on Kafka. */
export interface IdentityPorts {
  /** The Kafka cluster that the worker is connected to. */
  readonly clusterId: string;
  readonly witness: WitnessPort;
  /** Samples the brokers' clocks; rejects when no broker answers. */
  readonly sampleBrokerClocks: () => Promise<readonly DriftSample[]>;
}

/** The time until the worker's own deadline, and from now to the ceiling; negative when past it. */
export interface Margins {
  readonly leaseMs: number;
  readonly ceilingMs: number;
}

const RELEASE_LIMIT_MS = 5_000;
const NAMESPACE_RETRY_MS = 1_000;
/** A longer interval: the namespace needs an operator's command. */
const OPERATOR_RETRY_MS = 3_000;
/** How often the margin metrics are updated. */
const WATCH_MS = 500;
const BY_ETCD: ReadonlySet<GateReason> = new Set(['RESERVATION_EXHAUSTED', 'NO_IDENTITY', 'LEASE_SUSPENDED']);
/** What an operator has to do. */
const DUE: Partial<Record<GateReason, string>> = {
  RESTORED: 'the namespace must be rebuilt',
  CLUSTER_CHANGED: 'this Kafka cluster must be adopted, or the other one configured',
};
/** The authority before the namespace is open. */
const NOT_ACQUIRED = {
  ok: false,
  code: 'NO_IDENTITY',
  message: 'the namespace in etcd has not been opened yet',
} as const satisfies Authority;

/**
 * Holds the worker's identity: opens the namespace as soon as etcd answers, keeps a lease, reports to the gate, and
 * releases the identity at the end. Before `start` every allocation is refused.
 */
export class IdentityHolder implements AsyncDisposable {
  readonly #options: IdentityHolderOptions;
  readonly #stop = new AbortController();
  #watch: Timer | undefined;
  #running: Promise<void> = Promise.resolve();
  #identity: Identity | undefined;
  #namespace: Namespace | undefined;
  /** What an operator has to end, and was logged since a worker ID was held. */
  #alarmed: GateReason | undefined;

  constructor(options: IdentityHolderOptions) {
    this.#options = options;
    this.#showMargins();
  }

  start(ports: IdentityPorts): void {
    this.#options.gate.close('identity', 'NO_IDENTITY');
    this.#running = this.#run(ports);
  }

  /** The authority to allocate at `now`. */
  authority(now: Reading): Authority {
    return this.#identity?.authority(now) ?? NOT_ACQUIRED;
  }

  /** The UUID of the namespace. Throws NO_IDENTITY before it is open. */
  get namespaceUuid(): string {
    if (this.#namespace !== undefined) return this.#namespace.descriptor.uuid;
    throw new IdallocError(NOT_ACQUIRED.code, NOT_ACQUIRED.message);
  }

  /** The identity of this worker, for the log. */
  describe(): {
    readonly datacenterId: number;
    readonly workerId?: number | undefined;
    readonly fence?: string | undefined;
  } {
    const { workerId, fence } = this.#identity?.state ?? {};
    return {
      datacenterId: this.#options.config.datacenterId,
      workerId,
      fence: fence?.toString(),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#watch?.cancel();
    await this.#running;
    this.#options.etcd.close();
  }

  async #run(ports: IdentityPorts): Promise<void> {
    try {
      const namespace = await this.#openNamespace(ports);
      if (namespace === undefined) return;
      this.#namespace = namespace;
      const identity = this.#createIdentity(namespace, ports);
      this.#identity = identity;
      const { config, clock, runtime } = this.#options;
      clock.onPause((now) => identity.paused(now));
      const runner = new IdentityRunner({
        identity,
        timing: config.timing,
        readClock: () => clock.read(),
        resetClockAnchor: () => clock.resetAnchor(),
        measureDrift: async () => {
          for (const sample of await ports.sampleBrokerClocks()) clock.recordDrift(sample);
        },
        sleep: runtime.sleep,
        random: runtime.random,
        releaseLimitMs: RELEASE_LIMIT_MS,
      });
      await runner.run(this.#stop.signal);
    } catch (error) {
      this.#options.fail(error);
    }
  }

  /** Undefined when the worker stops before etcd answers. */
  async #openNamespace({ witness, clusterId }: IdentityPorts): Promise<Namespace | undefined> {
    const { config, log, etcd, runtime } = this.#options;
    const wanted = descriptorOf(config, runtime.uuid());
    while (!this.#stop.signal.aborted) {
      try {
        return await openNamespace({ etcd, witness, wanted, ...this.#place(clusterId), newNonce: runtime.uuid });
      } catch (error) {
        if (!(error instanceof IdallocError && error.retryable)) throw error;
        const code = operatorsCode(error);
        if (code !== undefined) this.#refuse(code, error.message);
        else log.warn({ error: describeError(error) }, 'could not open the namespace; retrying');
        await runtime.sleep(code === undefined ? NAMESPACE_RETRY_MS : OPERATOR_RETRY_MS, this.#stop.signal);
      }
    }
    return undefined;
  }

  #place(clusterId: string): { readonly keys: NamespaceKeys; readonly bindings: Bindings } {
    const { config } = this.#options;
    const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
    return { keys, bindings: bindingsOf(keys, { ...config, clusterId }) };
  }

  /**
   * The samples of a clock that may start a term count in it, so that the first broker which answers is not judged
   * alone.
   */
  async #sampleAtStart({ sampleBrokerClocks }: IdentityPorts): Promise<readonly DriftSample[]> {
    const samples = await sampleBrokerClocks();
    if (driftAtStart(samples) === undefined) for (const sample of samples) this.#options.clock.recordDrift(sample);
    return samples;
  }

  #createIdentity(namespace: Namespace, ports: IdentityPorts): Identity {
    const { config, log, clock, etcd, runtime } = this.#options;
    return new Identity({
      etcd,
      witness: ports.witness,
      ...this.#place(ports.clusterId),
      namespace,
      layout: config.layout,
      timing: config.timing,
      readClock: () => clock.read(),
      random: runtime.random,
      newNonce: runtime.uuid,
      newLeaseId: () => leaseIdOf(runtime.uuid()),
      workerIp: config.workerIp ?? 'unknown',
      staticWorkerId: config.workerId,
      sampleBrokerClocks: () => this.#sampleAtStart(ports),
      onChange: (state) => this.#reportToGate(state),
      log: (level, message, fields) => log[level](fields ?? {}, message),
    });
  }

  #reportToGate({ mode, refusal }: IdentityState): void {
    if (mode === 'held') {
      this.#alarmed = undefined;
      this.#options.gate.clear('identity');
    } else this.#refuse(refusal?.code ?? 'NO_IDENTITY', refusal?.message);
  }

  /** What only an operator's command ends is logged as an error, once. */
  #refuse(code: GateReason, message?: string): void {
    const { gate, log } = this.#options;
    const due = DUE[code];
    if (due !== undefined && this.#alarmed !== code) {
      this.#alarmed = code;
      log.error({ code, error: message }, `no worker ID can be acquired: ${due}`);
    }
    const cause = this.detail(code);
    gate.close('identity', code, cause === undefined ? message : `${message ?? 'etcd'} (${cause})`);
  }

  /** What etcd answered, or that it did not, if that may be the cause of this reason. */
  detail(reason: GateReason): string | undefined {
    return BY_ETCD.has(reason) ? this.#options.etcd.lastError?.message : undefined;
  }

  /** Undefined by a clock that is wrong: then they mean nothing. */
  margins(): Margins | undefined {
    const { clock, config } = this.#options;
    const { reading, verdict } = clock.read();
    if (verdict.kind === 'eject') return undefined;
    const authority = this.authority(reading);
    return {
      leaseMs: this.#identity?.remainingMs(reading) ?? 0,
      ceilingMs: authority.ok ? tickStartMs(config.layout, authority.reservation.to) - reading.wall : 0,
    };
  }

  #showMargins(): void {
    const { metrics, clock, runtime } = this.#options;
    this.#watch = runtime.schedule(WATCH_MS, () => this.#showMargins());
    metrics.setClockDrift(clock.drift());
    const margins = this.margins();
    if (margins === undefined) return;
    metrics.setLeaseMargin(margins.leaseMs);
    metrics.setCeilingMargin(margins.ceilingMs);
  }
}

/** 63 bits of a random UUID, never 0, by which etcd would choose an ID itself. */
function leaseIdOf(uuid: string): bigint {
  return (BigInt(`0x${uuid.slice(19).replaceAll('-', '')}`) & 0x7fff_ffff_ffff_ffffn) | 1n;
}
