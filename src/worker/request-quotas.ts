import { parseQuotas } from '../codec/quota.ts';
import { replyPolicyOf } from '../codec/reply-policy.ts';
import { renewed } from '../core/renewed.ts';
import { RateLimitedLog } from '../kafka/loops/rate-limited-log.ts';
import { Quotas } from '../pipeline/quotas.ts';
import type { WorkerContext } from './context.ts';

/** The quotas that the configuration has now; undefined if it has none. `share` is this worker's share of each. */
export function requestQuotas(
  { config, runtime, metrics, wireLog }: WorkerContext,
  share: () => number,
): Quotas | undefined {
  const { quotas } = config;
  if (quotas === undefined) return undefined;
  const refusals = new RateLimitedLog(runtime, wireLog);
  return new Quotas({
    quotas: renewed(
      () => [quotas()],
      ([text = '']) => parseQuotas(text),
      runtime.monotonicMs,
    ),
    policy: replyPolicyOf(config.topics),
    monotonicMs: runtime.monotonicMs,
    share,
    onExceeded: (prefix) => {
      metrics.addQuotaExceeded(prefix);
      refusals.count({ prefix }, `requests were refused by the quota of ${prefix}`);
    },
  });
}
