import { groupMembers } from '../adapters/kafka/consumer-group.ts';
import type { Runtime } from '../async/runtime.ts';
import { decodeLeaseRecord } from '../codec/namespace-values.ts';
import type { Config } from '../config/config.ts';
import type { GateReason, UnreadyReason } from '../core/gate.ts';
import { tickStartMs } from '../core/layout.ts';
import { describeError } from '../errors.ts';
import type { GateChange, MemberStatus, PartitionStatus, Status, WorkerIdStatus } from '../http/status.ts';
import type { KeyValue } from '../identity/identity-ports.ts';
import { namespaceKeys, readSnapshot, type Snapshot } from '../identity/keys.ts';
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
const READ_AGAIN_MS = 5_000;

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

/**
 * What is read from a server while somebody looks, at most so often, and never waited for: the page is opened when
 * servers are away.
 */
class Cached<T> {
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'wallMs'>;
  readonly #read: () => Promise<T>;
  #startedMs = Number.NEGATIVE_INFINITY;
  #latest: (T & { readonly as_of_ms: number }) | null = null;
  #error: string | null = null;

  constructor(runtime: Pick<Runtime, 'monotonicMs' | 'wallMs'>, read: () => Promise<T>) {
    this.#runtime = runtime;
    this.#read = read;
  }

  /** The last answer, null before the first one; and why there was none lately. */
  get latest(): { readonly value: (T & { readonly as_of_ms: number }) | null; readonly error: string | null } {
    if (this.#runtime.monotonicMs() - this.#startedMs >= READ_AGAIN_MS) {
      this.#startedMs = this.#runtime.monotonicMs();
      void this.#refresh();
    }
    return { value: this.#latest, error: this.#error };
  }

  async #refresh(): Promise<void> {
    try {
      const answer = await this.#read();
      this.#latest = { as_of_ms: this.#runtime.wallMs(), ...answer };
      this.#error = null;
    } catch (error) {
      this.#error = describeError(error);
    }
  }
}

/** Collects what the status page shows. */
export class StatusBoard {
  readonly #context: Pick<WorkerContext, 'config' | 'clock' | 'gate' | 'runtime'>;
  readonly #source: StatusSource;
  readonly #totals: Totals;
  readonly #startedMs: number;
  readonly #gate: GateHistory;
  readonly #workerIds: Cached<{ readonly ids: readonly WorkerIdStatus[] }>;
  readonly #group: Cached<{ readonly members: readonly MemberStatus[] }>;

  constructor(context: WorkerContext, source: StatusSource, totals: Totals) {
    const { config, environment, cluster, runtime } = context;
    this.#context = context;
    this.#source = source;
    this.#totals = totals;
    this.#startedMs = runtime.wallMs();
    this.#gate = new GateHistory(this.#startedMs, context.gate.reason());
    context.gate.onChange((reason) => this.#gate.changed(runtime.wallMs(), reason));
    this.#workerIds = new Cached(runtime, async () => {
      const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
      return { ids: workerIdsOf(await readSnapshot(environment.etcd, keys), config, runtime.wallMs()) };
    });
    this.#group = new Cached(runtime, async () => ({
      members: await groupMembers({ cluster, runtime }, config.groupId),
    }));
  }

  get status(): Status {
    const { config, runtime, clock } = this.#context;
    const { reason, detail, warning } = this.#source.readiness();
    const vitals = this.#source.vitals();
    const [workerIds, group] = [this.#workerIds.latest, this.#group.latest];
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
      worker_ids: workerIds.value,
      worker_ids_error: workerIds.error,
      group: group.value,
      group_error: group.error,
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
