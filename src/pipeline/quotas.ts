import type { Quota } from '../codec/quota.ts';

export interface QuotasOptions {
  readonly quotas: readonly Quota[];
  readonly monotonicMs: () => number;
  /** This worker's share of each quota, above 0 and up to 1: its share of the partitions, so that all workers add up to 1. */
  readonly share: () => number;
  /** A request was refused by the quota of this prefix. */
  readonly onExceeded: (prefix: string) => void;
}

/**
 * Token buckets per reply-topic prefix. The longest matching prefix counts; a topic without one is unlimited.
 *
 * A bucket for IDs and one for requests each hold one second's worth and start full. A request for more than that passes
 * when the bucket is full and leaves a debt: so it can pass at all, and the rate still holds.
 *
 * Tokens are not returned when a part fails and its requests are retried.
 */
export class Quotas {
  readonly #options: QuotasOptions;
  /** Longest prefixes first. */
  readonly #meters: readonly Meter[];

  constructor(options: QuotasOptions) {
    this.#options = options;
    const byLength = options.quotas.toSorted((one, other) => other.prefix.length - one.prefix.length);
    this.#meters = byLength.map((quota) => ({
      quota,
      ids: new Bucket(quota.idsPerSecond),
      requests: new Bucket(quota.requestsPerSecond),
    }));
  }

  /** Whether a request would be refused now; takes nothing. */
  wouldRefuse(replyTopic: string, count: number): boolean {
    const meter = this.#meterOf(replyTopic);
    return meter !== undefined && this.#waitMs(meter, count) > 0;
  }

  /** Takes the tokens of a request; if there are too few, returns the message for its sender. */
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
    return `the quota of reply topics under ${prefix} is used up (${boundsOf(meter.quota)}): send the request again after ${waitMs} ms`;
  }

  #meterOf(replyTopic: string): Meter | undefined {
    return this.#meters.find(({ quota }) => replyTopic.startsWith(quota.prefix));
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

/** The time of a check, and the bucket's share of its rate. */
interface Moment {
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

  /** Refills up to now. Returns how long until `wanted` may be taken; 0 for immediately. */
  waitMs(wanted: number, { nowMs, share }: Moment): number {
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
