import type { Quota } from '../codec/quota.ts';

export interface QuotasOptions {
  /** As they are now; the same list until it changes. */
  readonly quotas: () => readonly Quota[];
  readonly monotonicMs: () => number;
  /** Which part of all quotas is this worker's, above 0 and up to 1: that of its partitions, so that all workers have the whole. */
  readonly share: () => number;
  /** A request was refused by the quota of this prefix. */
  readonly onExceeded: (prefix: string) => void;
}

/**
 * Whose requests are over their quota. The longest prefix of a reply topic has the say; a topic without one is free.
 *
 * A bucket for IDs and one for requests each hold what one second brings, and are full at the start. A request that asks for
 * more than a second brings passes when the bucket is full, and leaves a debt: so it passes at all, and the rate holds.
 *
 * When the list changes, a quota that stays as it is keeps what its buckets hold; any other begins with full ones.
 *
 * What was taken is not given back when a part fails and its requests come again.
 */
export class Quotas {
  readonly #options: QuotasOptions;
  #quotas: readonly Quota[] = [];
  /** Longest prefixes first. */
  #meters: readonly Meter[] = [];

  constructor(options: QuotasOptions) {
    this.#options = options;
  }

  /** Whether a request would be refused now; takes nothing. */
  wouldRefuse(replyTopic: string, count: number): boolean {
    const meter = this.#meterOf(replyTopic);
    return meter !== undefined && this.#waitMs(meter, count) > 0;
  }

  /** Takes what a request asks for. Or why it can't have it now, for its sender. */
  refuse(replyTopic: string, count: number): string | undefined {
    const meter = this.#meterOf(replyTopic);
    if (meter === undefined) return undefined;
    const waitMs = this.#waitMs(meter, count);
    if (waitMs === 0) {
      meter.ids.take(count);
      meter.requests.take(1);
      return undefined;
    }
    const { prefix } = meter.quota;
    this.#options.onExceeded(prefix);
    return `the quota of reply topics under ${prefix} is used up (${boundsOf(meter.quota)}): send the request again, not before ${waitMs} ms`;
  }

  #meterOf(replyTopic: string): Meter | undefined {
    const quotas = this.#options.quotas();
    if (quotas !== this.#quotas) this.#renew(quotas);
    return this.#meters.find(({ quota }) => replyTopic.startsWith(quota.prefix));
  }

  #renew(quotas: readonly Quota[]): void {
    const before = new Map(this.#meters.map((meter) => [nameOf(meter.quota), meter]));
    const byLength = quotas.toSorted((one, other) => other.prefix.length - one.prefix.length);
    this.#meters = byLength.map((quota) => before.get(nameOf(quota)) ?? meterFor(quota));
    this.#quotas = quotas;
  }

  #waitMs({ ids, requests }: Meter, count: number): number {
    const at = { nowMs: this.#options.monotonicMs(), share: this.#options.share() };
    return Math.ceil(Math.max(ids.waitMs(count, at), requests.waitMs(1, at)));
  }
}

interface Meter {
  readonly quota: Quota;
  readonly ids: Bucket;
  readonly requests: Bucket;
}

function meterFor(quota: Quota): Meter {
  return { quota, ids: new Bucket(quota.idsPerSecond), requests: new Bucket(quota.requestsPerSecond) };
}

/** Equal for equal quotas. */
function nameOf({ prefix, idsPerSecond, requestsPerSecond }: Quota): string {
  return [prefix, idsPerSecond, requestsPerSecond].join(' ');
}

/** When a bucket is looked at, and which part of its rate it has. */
interface Look {
  readonly nowMs: number;
  readonly share: number;
}

class Bucket {
  readonly #perSecond: number;
  #held: number | undefined;
  #lookedMs = 0;

  constructor(perSecond = Number.POSITIVE_INFINITY) {
    this.#perSecond = perSecond;
  }

  /** Fills up to now. How long until so much may be taken; 0 for at once. */
  waitMs(wanted: number, { nowMs, share }: Look): number {
    if (this.#perSecond === Number.POSITIVE_INFINITY) return 0;
    const rate = this.#perSecond * share;
    const size = Math.max(1, rate);
    const held = this.#held ?? size;
    this.#held = Math.min(size, held + (rate * (nowMs - this.#lookedMs)) / 1_000);
    this.#lookedMs = nowMs;
    return Math.max(0, ((Math.min(wanted, size) - this.#held) * 1_000) / rate);
  }

  take(wanted: number): void {
    if (this.#held !== undefined) this.#held -= wanted;
  }
}

function boundsOf({ idsPerSecond, requestsPerSecond }: Quota): string {
  const ids = idsPerSecond === undefined ? [] : [`${idsPerSecond} IDs a second`];
  const requests = requestsPerSecond === undefined ? [] : [`${requestsPerSecond} requests a second`];
  return [...ids, ...requests].join(', ');
}
