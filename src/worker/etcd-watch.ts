import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import type { EtcdStatus } from '../adapters/etcd/member.ts';
import { ALARM_REMEDIES, type EtcdAlarm } from '../adapters/etcd/refusal.ts';
import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import type { Log } from '../log.ts';
import type { Vitals } from '../metrics/vitals.ts';

export interface EtcdWatchOptions {
  readonly etcd: Pick<ClosableEtcd, 'statuses'>;
  readonly runtime: Pick<Runtime, 'schedule'>;
  readonly log: Log;
  readonly quotaBytes: number;
}

/** One call to each member a minute, by each worker. */
const LOOK_MS = 60_000;
/** The share of its quota above which a database is reported. The alert IdallocEtcdDatabaseLarge uses the same. */
const LARGE_SHARE = 0.75;

/**
 * Asks the members of etcd for the size of their databases and for alarms: an etcd that has no space serves reads and
 * keep-alives, so nothing shows that it is about to refuse the next reservation.
 */
export class EtcdWatch implements Disposable {
  readonly #options: EtcdWatchOptions;
  readonly #looking: Disposable;
  #statuses: ReadonlyMap<string, EtcdStatus> = new Map();
  /** The most members that have answered one look. */
  #members = 0;
  /** What was logged last. */
  #reported = '';

  constructor(options: EtcdWatchOptions) {
    this.#options = options;
    this.#looking = every(options.runtime, LOOK_MS, () => this.#look());
    void this.#look();
  }

  [Symbol.dispose](): void {
    this.#looking[Symbol.dispose]();
  }

  /** A member that did not answer the last time is left out. */
  get vitals(): Vitals['etcd'] {
    return {
      databases: [...this.#statuses].map(([endpoint, { dbBytes }]) => ({ endpoint, bytes: dbBytes })),
      alarms: new Set(this.#alarms),
    };
  }

  /** What needs an operator, and the remedy; undefined for nothing. */
  get detail(): string | undefined {
    if (this.#alarms.length > 0) return this.#alarms.map((alarm) => ALARM_REMEDIES[alarm]).join('; ');
    const { quotaBytes } = this.#options;
    const large = [...this.#statuses].filter(([, { dbBytes }]) => dbBytes > LARGE_SHARE * quotaBytes);
    if (large.length === 0) return undefined;
    const sizes = large.map(([endpoint, { dbBytes }]) => `${endpoint} ${Math.round((100 * dbBytes) / quotaBytes)} %`);
    return `the database of etcd nears its quota (${sizes.join(', ')}), at which etcd refuses writes: compact and defragment it, or raise the quota`;
  }

  get #alarms(): readonly EtcdAlarm[] {
    return [...new Set([...this.#statuses.values()].flatMap(({ alarms }) => alarms))];
  }

  async #look(): Promise<void> {
    this.#statuses = await this.#options.etcd.statuses();
    this.#members = Math.max(this.#members, this.#statuses.size);
    const { detail } = this;
    const alarm = this.#alarms.join();
    const found = alarm === '' && detail !== undefined ? 'LARGE' : alarm;
    const isUnknown = found === '' && this.#statuses.size < this.#members; // the silent one may be large
    if (isUnknown || found === this.#reported) return;
    this.#reported = found;
    const { log } = this.#options;
    if (alarm !== '') log.error({ alarm, error: detail }, 'etcd has raised an alarm');
    else if (detail !== undefined) log.warn({ error: detail }, 'the database of etcd is nearly full');
    else log.info('etcd has no alarm, and its database is below three quarters of its quota');
  }
}
