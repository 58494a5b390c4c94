import { TokenBucket } from '../async/token-bucket.ts';
import type { Quota } from '../codec/quota.ts';
import { quotaText } from '../codec/refusal-texts.ts';
import { nestReplyTopic, type ReplyPolicy } from '../codec/reply-policy.ts';
import { PART_MAX_REQUESTS } from './parts.ts';

export interface QuotasOptions {
  /** The current quotas; the same list until they change. */
  readonly quotas: () => readonly Quota[];
  readonly policy: Pick<ReplyPolicy, 'prefix' | 'requestTopic'>;
  readonly monotonicMs: () => number;
  /**
   * This worker's share of each quota, above 0 and up to 1: its share of the partitions, so that all workers add up to
   * 1.
   */
  readonly share: () => number;
  /** A request was refused by the quota of this prefix. */
  readonly onExceeded: (prefix: string) => void;
}

/** What a request costs, and the request itself: its partition and offset. */
export interface Charge {
  readonly partition: number;
  readonly offset: number;
  readonly replyTopic: string;
  /** New IDs; 0 for a request that has its batch. */
  readonly ids: number;
  readonly replyBytes: number;
}

/** Why a request is refused, for its sender, and when it may be sent again. */
export interface Excess {
  readonly message: string;
  readonly retryAfterMs: number;
}

/** A quota of all workers, and how much of this worker's share of it was taken lately, from 0 to 1. */
export interface QuotaUse {
  readonly prefix: string;
  readonly limits: string;
  readonly used: number;
}

/** A partition has two parts in hand at most; what is left of those that were not retried here is dropped. */
const MAX_CHARGED = 4 * PART_MAX_REQUESTS;

/**
 * Token buckets per reply-topic prefix, for new IDs, requests and bytes of replies. The longest matching prefix counts;
 * a topic without one is unlimited. A quota for all topics under the policy's prefix also covers the request topic's
 * own reply topic, unless that has one of its own.
 *
 * A request is charged once: when its part fails and it is retried, nothing is taken again. A refused one takes
 * nothing.
 *
 * When the list changes, an unchanged quota keeps the content of its buckets; any other starts with full ones.
 */
export class Quotas {
  readonly #options: QuotasOptions;
  #quotas: readonly Quota[] = [];
  /** Longest prefixes first. */
  #meters: readonly Meter[] = [];
  /** The offsets that were charged and are not answered yet, by partition. */
  readonly #charged = new Map<number, Set<number>>();

  constructor(options: QuotasOptions) {
    this.#options = options;
  }

  /** Whether a request would be refused now; takes nothing. */
  wouldRefuse(charge: Charge): boolean {
    const meter = this.#meterOf(charge.replyTopic);
    return meter !== undefined && !this.#isCharged(charge) && this.#waits(meter, charge).length > 0;
  }

  /** Takes the tokens of a request, or returns why there are too few. */
  refuse(charge: Charge): Excess | undefined {
    const meter = this.#meterOf(charge.replyTopic);
    if (meter === undefined || this.#isCharged(charge)) return undefined;
    const waits = this.#waits(meter, charge);
    if (waits.length === 0) {
      for (const { bucket, cost } of meter.bounds) bucket.take(cost(charge));
      this.#remember(charge);
      return undefined;
    }
    const { prefix } = meter.quota;
    this.#options.onExceeded(prefix);
    const used = waits.map(({ bound: { rate, unit } }) => `${rate} ${unit} a second`).join(', ');
    const retryAfterMs = Math.ceil(Math.max(...waits.map((wait) => wait.waitMs)));
    return { message: quotaText(prefix, used, retryAfterMs), retryAfterMs };
  }

  /** The prefix of the quota that a reply topic is charged to; undefined if it has none. */
  prefixFor(replyTopic: string): string | undefined {
    return this.#meterOf(replyTopic)?.quota.prefix;
  }

  /** Each quota with how much of it is used, of the bound that is closest to its limit. */
  uses(): QuotaUse[] {
    const at = { nowMs: this.#options.monotonicMs(), share: this.#options.share() };
    const quotas = this.#options.quotas();
    if (quotas !== this.#quotas) this.#renew(quotas);
    return this.#meters.map(({ quota: { prefix }, bounds }) => {
      const limited = bounds.filter(({ rate }) => rate !== undefined);
      const limits = limited.map(({ rate, unit }) => `${rate} ${unit}/s`).join(', ');
      return { prefix, limits, used: Math.max(0, ...limited.map(({ bucket }) => bucket.used(at))) };
    });
  }

  /** These requests are answered, so they will not be retried. */
  answered(partition: number, part: readonly { readonly record: { readonly offset: number } }[]): void {
    const charged = this.#charged.get(partition);
    for (const { record } of part) charged?.delete(record.offset);
  }

  #isCharged({ partition, offset }: Charge): boolean {
    return this.#charged.get(partition)?.has(offset) === true;
  }

  #remember({ partition, offset }: Charge): void {
    const charged = this.#charged.get(partition) ?? new Set();
    this.#charged.set(partition, charged.add(offset));
    const [oldest] = charged;
    if (charged.size > MAX_CHARGED && oldest !== undefined) charged.delete(oldest);
  }

  #meterOf(replyTopic: string): Meter | undefined {
    const quotas = this.#options.quotas();
    if (quotas !== this.#quotas) this.#renew(quotas);
    const own = this.#meters.find(({ quota }) => replyTopic.startsWith(quota.prefix));
    const { prefix, requestTopic } = this.#options.policy;
    if (own !== undefined || replyTopic !== nestReplyTopic(requestTopic)) return own;
    return this.#meters.find(({ quota }) => prefix.startsWith(quota.prefix));
  }

  #renew(quotas: readonly Quota[]): void {
    const before = new Map(this.#meters.map((meter) => [nameOf(meter.quota), meter]));
    const byLength = quotas.toSorted((one, other) => other.prefix.length - one.prefix.length);
    this.#meters = byLength.map((quota) => before.get(nameOf(quota)) ?? meterFor(quota));
    this.#quotas = quotas;
  }

  /** The bounds that have too few tokens for a request, with how long each waits for them. */
  #waits({ bounds }: Meter, charge: Charge): { readonly bound: Allowance; readonly waitMs: number }[] {
    const at = { nowMs: this.#options.monotonicMs(), share: this.#options.share() };
    return bounds
      .map((bound) => ({ bound, waitMs: bound.bucket.waitMs(bound.cost(charge), at) }))
      .filter(({ waitMs }) => waitMs > 0);
  }
}

/** One bound of a quota. */
interface Allowance {
  readonly bucket: TokenBucket;
  readonly rate: number | undefined;
  readonly unit: string;
  readonly cost: (charge: Charge) => number;
}

interface Meter {
  readonly quota: Quota;
  readonly bounds: readonly Allowance[];
}

function meterFor(quota: Quota): Meter {
  const { idsPerSecond, requestsPerSecond, replyBytesPerSecond } = quota;
  const bound = (rate: number | undefined, unit: string, cost: Allowance['cost']): Allowance => {
    return { bucket: new TokenBucket(rate), rate, unit, cost };
  };
  const bounds = [
    bound(idsPerSecond, 'IDs', ({ ids }) => ids),
    bound(requestsPerSecond, 'requests', () => 1),
    bound(replyBytesPerSecond, 'bytes of replies', ({ replyBytes }) => replyBytes),
  ];
  return { quota, bounds };
}

/** Equal for equal quotas. */
function nameOf({ prefix, idsPerSecond, requestsPerSecond, replyBytesPerSecond }: Quota): string {
  return [prefix, idsPerSecond, requestsPerSecond, replyBytesPerSecond].join(' ');
}
