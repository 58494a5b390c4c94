import { randomBytes, randomUUID } from 'node:crypto';
import { sleep } from './adapters/clock.ts';
import { type ClosableEtcd, connectEtcd } from './adapters/etcd/etcd.ts';
import { descriptorOf } from './codec/descriptor.ts';
import type { Config } from './config.ts';
import type { DriftSample } from './core/clock-guard.ts';
import { tickStartMs } from './core/layout.ts';
import type { Reading } from './core/units.ts';
import { describeError, IdallocError } from './errors.ts';
import type { Gatekeeper } from './gatekeeper.ts';
import type { GuardedClock } from './guarded-clock.ts';
import { Identity } from './identity/identity.ts';
import { namespaceKeys } from './identity/keys.ts';
import { type Namespace, openNamespace } from './identity/namespace.ts';
import type { WitnessPort } from './identity/ports.ts';
import { isRestored } from './identity/protocol.ts';
import { IdentityRunner } from './identity/runner.ts';
import type { Authority, IdentityState } from './identity/state.ts';
import { etcdFaultLog, type Log } from './log.ts';
import type { Metrics } from './metrics.ts';

export interface IdentityHolderOptions {
  readonly config: Config;
  readonly log: Log;
  readonly clock: GuardedClock;
  readonly gate: Gatekeeper;
  readonly metrics: Metrics;
  readonly witness: WitnessPort;
  /** Asks brokers for the time; rejects when none answers. */
  readonly askBrokers: () => Promise<readonly DriftSample[]>;
  /** Told of what no waiting mends: NAMESPACE_MISMATCH, NAMESPACE_DAMAGED, CONFIG_INVALID. */
  readonly fail: (error: unknown) => void;
}

const RELEASE_LIMIT_MS = 5_000;
const NAMESPACE_RETRY_MS = 1_000;
/** A rebuild takes somebody to decide on it. */
const RESTORED_RETRY_MS = 3_000;
/** How often the margins are shown. */
const WATCH_MS = 500;
/** What there is to allocate with before anything was acquired. */
export const UNBORN: Authority = {
  ok: false,
  code: 'NO_IDENTITY',
  message: 'the namespace in etcd has not been opened yet',
};

/**
 * Holds the worker's identity from start to stop: opens the namespace as soon as etcd answers, keeps a lease, tells the
 * gate, and gives everything back at the end.
 */
export class IdentityHolder implements AsyncDisposable {
  readonly #options: IdentityHolderOptions;
  readonly #etcd: ClosableEtcd;
  readonly #stop = new AbortController();
  readonly #watch: NodeJS.Timeout;
  readonly #running: Promise<void>;
  #identity: Identity | undefined;

  constructor(options: IdentityHolderOptions) {
    this.#options = options;
    this.#etcd = connectEtcd({ ...options.config.etcd, onFault: etcdFaultLog(options.log) });
    options.gate.close('identity', 'NO_IDENTITY');
    this.#watch = setInterval(() => this.#showMargins(), WATCH_MS);
    this.#running = this.#run();
  }

  /** What may be allocated with at `now`. */
  authority(now: Reading): Authority {
    return this.#identity?.authority(now) ?? UNBORN;
  }

  /** For the log: who this worker is. */
  describe(): { readonly datacenterId: number; readonly workerId?: number; readonly fence?: string } {
    const { workerId, fence } = this.#identity?.state ?? {};
    return {
      datacenterId: this.#options.config.datacenterId,
      ...(workerId === undefined ? {} : { workerId }),
      ...(fence === undefined ? {} : { fence: String(fence) }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    clearInterval(this.#watch);
    await this.#running;
    this.#etcd.close();
  }

  async #run(): Promise<void> {
    try {
      const namespace = await this.#openNamespace();
      if (namespace === undefined) return;
      const identity = this.#createIdentity(namespace);
      this.#identity = identity;
      const { config, clock, askBrokers } = this.#options;
      clock.onPause((now) => identity.paused(now));
      const runner = new IdentityRunner({
        identity,
        timing: config.timing,
        readClock: () => clock.read(),
        trustClockAnew: () => clock.trustAnew(),
        learnDrift: async () => {
          for (const sample of await askBrokers()) clock.recordDrift(sample);
        },
        sleep,
        random: Math.random,
        releaseLimitMs: RELEASE_LIMIT_MS,
      });
      await runner.run(this.#stop.signal);
    } catch (error) {
      this.#options.fail(error);
    }
  }

  /** Undefined when the worker stops before etcd answers. */
  async #openNamespace(): Promise<Namespace | undefined> {
    const { config, log, gate, witness } = this.#options;
    const wanted = descriptorOf(config, randomUUID());
    while (!this.#stop.signal.aborted) {
      try {
        const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
        return await openNamespace(this.#etcd, witness, keys, wanted, randomUUID);
      } catch (error) {
        const restored = isRestored(error);
        if (!restored && !(error instanceof IdallocError && error.retryable)) throw error;
        if (restored) gate.close('identity', 'RESTORED', error.message);
        else log.warn({ error: describeError(error) }, 'the namespace could not be opened, trying again');
        await sleep(restored ? RESTORED_RETRY_MS : NAMESPACE_RETRY_MS, this.#stop.signal);
      }
    }
    return undefined;
  }

  #createIdentity(namespace: Namespace): Identity {
    const { config, log, clock, witness, askBrokers } = this.#options;
    return new Identity({
      etcd: this.#etcd,
      witness,
      keys: namespaceKeys(config.etcd.prefix, config.datacenterId),
      namespace,
      layout: config.layout,
      timing: config.timing,
      readClock: () => clock.read(),
      random: Math.random,
      newNonce: randomUUID,
      newLeaseId: () => (randomBytes(8).readBigUInt64BE() >> 1n) | 1n,
      workerIp: config.workerIp ?? 'unknown',
      ...(config.workerId === undefined ? {} : { staticWorkerId: config.workerId }),
      askBrokers,
      onChange: (state) => this.#tellGate(state),
      log: (level, message, fields) => log[level](fields ?? {}, message),
    });
  }

  #tellGate({ mode, refusal }: IdentityState): void {
    const { gate } = this.#options;
    if (mode === 'held') gate.clear('identity');
    else gate.close('identity', refusal?.code ?? 'NO_IDENTITY', refusal?.message);
  }

  #showMargins(): void {
    const { metrics, clock, config } = this.#options;
    const { reading, verdict } = clock.read();
    metrics.setClockDrift(clock.drift());
    if (verdict.kind === 'eject') return; // margins by such a clock mean nothing
    const authority = this.authority(reading);
    metrics.setLeaseMargin(this.#identity?.remainingMs(reading) ?? 0);
    const ceilingMs = authority.ok ? tickStartMs(config.layout, authority.reservation.to) - reading.wall : 0;
    metrics.setCeilingMargin(ceilingMs);
  }
}
