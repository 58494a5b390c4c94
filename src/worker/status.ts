import { decodeLeaseRecord } from '../codec/lease-record.ts';
import type { Config } from '../config/config.ts';
import type { GateReason, UnreadyReason } from '../core/gate.ts';
import { tickStartMs } from '../core/layout.ts';
import { describeError } from '../errors.ts';
import type { GateChange, PartitionStatus, Status, WorkerIdStatus } from '../http/status.ts';
import { namespaceKeys } from '../identity/keys.ts';
import type { KeyValue } from '../identity/ports.ts';
import { readSnapshot, type Snapshot } from '../identity/snapshot.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Vitals } from '../metrics/vitals.ts';
import type { QuotaUse } from '../pipeline/quotas.ts';
import type { WorkerContext } from './context.ts';
import type { Margins } from './identity-holder.ts';
import { REMEDIES } from './remedies.ts';

/** What a worker knows of itself. */
export interface StatusSource {
  readonly readiness: () => {
    readonly reason: UnreadyReason | undefined;
    readonly detail: string | undefined;
    readonly warning: string | undefined;
  };
  readonly vitals: () => Vitals;
  readonly identity: () => {
    readonly datacenterId: number;
    readonly workerId?: number | undefined;
    readonly fence?: string | undefined;
    readonly margins: Margins | undefined;
  };
  readonly owned: () => readonly number[];
  readonly since: (partition: number) => number | undefined;
  readonly quotas: () => readonly QuotaUse[];
}

const HISTORY_MS = 3_600_000;
/** A gate that opens and closes all the time must not fill the memory. */
const MAX_CHANGES = 500;
/** The worker IDs are read at most this often, and only while somebody looks. */
const WORKER_IDS_MS = 5_000;

/** The changes of a gate, by the wall clock. */
export class GateHistory {
  readonly #changes: GateChange[];

  constructor(nowMs: number, reason: GateReason | undefined) {
    this.#changes = [{ at_ms: nowMs, reason: reason ?? null }];
  }

  changed(nowMs: number, reason: GateReason | undefined): void {
    this.#changes.push({ at_ms: nowMs, reason: reason ?? null });
    if (this.#changes.length > MAX_CHANGES) this.#changes.shift();
  }

  /** The changes since then, oldest first, and the last one before. */
  since(fromMs: number): readonly GateChange[] {
    const before = this.#changes.findLastIndex(({ at_ms }) => at_ms <= fromMs);
    return this.#changes.slice(Math.max(0, before));
  }
}

/** Collects what the status page shows. It asks nobody but etcd, and never waits for that: the page is opened when servers are away. */
export class StatusBoard {
  readonly #context: Pick<WorkerContext, 'config' | 'clock' | 'gate' | 'runtime' | 'environment'>;
  readonly #source: StatusSource;
  readonly #totals: Totals;
  readonly #startedMs: number;
  readonly #gate: GateHistory;
  #workerIds: Status['worker_ids'] = null;
  #workerIdsError: string | null = null;
  #readMs = Number.NEGATIVE_INFINITY;

  constructor(context: WorkerContext, source: StatusSource, totals: Totals) {
    this.#context = context;
    this.#source = source;
    this.#totals = totals;
    this.#startedMs = context.runtime.wallMs();
    this.#gate = new GateHistory(this.#startedMs, context.gate.reason());
    context.gate.onChange((reason) => this.#gate.changed(context.runtime.wallMs(), reason));
  }

  get status(): Status {
    const { config, runtime, clock } = this.#context;
    this.#refreshWorkerIds();
    const { reason, detail, warning } = this.#source.readiness();
    const vitals = this.#source.vitals();
    return {
      now_ms: runtime.wallMs(),
      started_ms: this.#startedMs,
      ready: reason === undefined,
      reason: reason ?? null,
      detail: detail ?? null,
      remedy: reason === undefined ? null : REMEDIES[reason],
      warning: warning ?? null,
      identity: this.#identity(),
      gate: this.#gate.since(runtime.wallMs() - HISTORY_MS),
      drift: clock.driftByBroker().map(([broker, { lowMs, highMs }]) => ({ broker, low_ms: lowMs, high_ms: highMs })),
      kafka: {
        silent_ms: vitals.kafkaSilenceMs,
        unreached: vitals.silent.map(({ broker, partition, milliseconds }) => {
          return { broker, partition, silent_ms: milliseconds };
        }),
      },
      partitions: this.#partitions(vitals),
      totals: { ...this.#totals },
      layout: layoutOf(config),
      quotas: this.#source.quotas(),
      worker_ids: this.#workerIds,
      worker_ids_error: this.#workerIdsError,
    };
  }

  #identity(): Status['identity'] {
    const { datacenterId, workerId, fence, margins } = this.#source.identity();
    return {
      datacenter_id: datacenterId,
      worker_id: workerId ?? null,
      fence: fence ?? null,
      lease_margin_ms: margins?.leaseMs ?? null,
      ceiling_ahead_ms: margins?.ceilingMs ?? null,
    };
  }

  #partitions({ copies, oldestUnread, largeWaiting }: Vitals): PartitionStatus[] {
    const owned = new Set(this.#source.owned());
    const oldest = new Map(oldestUnread.map(({ partition, milliseconds }) => [partition, milliseconds]));
    const large = new Map(largeWaiting.map(({ partition, waiting }) => [partition, waiting]));
    return copies.map(({ partition, state, end, logEnd }) => ({
      partition,
      owned: owned.has(partition),
      copy: state,
      copy_lag: logEnd - end,
      remembers_since_ms: this.#source.since(partition) ?? null,
      oldest_request_ms: oldest.get(partition) ?? 0,
      large_requests: large.get(partition) ?? 0,
    }));
  }

  #refreshWorkerIds(): void {
    const { runtime } = this.#context;
    if (runtime.monotonicMs() - this.#readMs < WORKER_IDS_MS) return;
    this.#readMs = runtime.monotonicMs();
    void this.#readWorkerIds();
  }

  async #readWorkerIds(): Promise<void> {
    const { config, environment, runtime } = this.#context;
    try {
      const snapshot = await readSnapshot(environment.etcd, namespaceKeys(config.etcd.prefix, config.datacenterId));
      const nowMs = runtime.wallMs();
      this.#workerIds = { as_of_ms: nowMs, ids: workerIdsOf(snapshot, config, nowMs) };
      this.#workerIdsError = null;
    } catch (error) {
      this.#workerIdsError = describeError(error);
    }
  }
}

function layoutOf({ layout }: Config): Status['layout'] {
  return { name: layout.name, epoch_ms: layout.epochMs, ends_ms: tickStartMs(layout, layout.endTicks) };
}

function workerIdsOf({ owners, ceilings }: Snapshot, { layout }: Config, nowMs: number): WorkerIdStatus[] {
  const used = [...ceilings].filter(([workerId, { ticks }]) => ticks > 0 || owners.has(workerId));
  const ids = new Set([...owners.keys(), ...used.map(([workerId]) => workerId)]);
  return [...ids]
    .sort((a, b) => a - b)
    .map((workerId) => {
      const owner = owners.get(workerId);
      const ticks = ceilings.get(workerId)?.ticks ?? 0;
      return {
        worker_id: workerId,
        holder: owner === undefined ? null : holderOf(owner),
        fence: owner === undefined ? null : String(owner.createRevision),
        ceiling_ahead_ms: ticks === 0 ? null : tickStartMs(layout, ticks) - nowMs,
      };
    });
}

/** One record that can't be read must not hide the others. */
function holderOf({ value }: KeyValue): string {
  try {
    return decodeLeaseRecord(value).assignedWorkerIp;
  } catch {
    return 'unreadable';
  }
}

/** What was served since the start. */
export interface Totals {
  ids: number;
  numbers: number;
  requests: number;
}

/** The same metrics, which are counted here as well: a registry can't be read without rendering it. */
export function counting(metrics: Metrics, totals: Totals): Metrics {
  return {
    ...metrics,
    addIds: (count) => {
      totals.ids += count;
      metrics.addIds(count);
    },
    addNumbers: (count) => {
      totals.numbers += count;
      metrics.addNumbers(count);
    },
    addRequests: (result, count = 1) => {
      totals.requests += count;
      metrics.addRequests(result, count);
    },
  };
}
