/** The limits for requests whose reply topics begin with a prefix. */
export interface Quota {
  readonly prefix: string;
  /** New IDs per second; unlimited if missing. */
  readonly idsPerSecond?: number;
  readonly requestsPerSecond?: number;
}

const MAX_QUOTAS = 1_000;
const PREFIX = /^[A-Za-z0-9._-]{1,249}$/;
const RATE = /^[1-9][0-9]{0,11}$/;

/**
 * Parses quotas: lines, or parts separated by semicolons, with a prefix of reply topics, IDs per second and requests per
 * second; `-` means unlimited. Empty lines and comments (#) are ignored.
 *
 * @throws RangeError with the first invalid line.
 */
export function parseQuotas(text: string): readonly Quota[] {
  const lines = text
    .split(/\r?\n/)
    .flatMap((line) => line.replace(/#.*/, '').split(';'))
    .map((line) => line.trim())
    .filter((line) => line !== '');
  if (lines.length > MAX_QUOTAS) throw new RangeError(`has more than ${MAX_QUOTAS} quotas`);
  const quotas = lines.map(parseQuota);
  const prefixes = new Set<string>();
  for (const { prefix } of quotas) {
    if (prefixes.has(prefix)) throw new RangeError(`has two quotas for '${prefix}'`);
    prefixes.add(prefix);
  }
  return quotas;
}

function parseQuota(line: string): Quota {
  const [prefix = '', ids = '', requests = '', ...rest] = line.split(/\s+/);
  const isRate = (word: string): boolean => word === '-' || RATE.test(word);
  const isQuota = PREFIX.test(prefix) && isRate(ids) && isRate(requests) && rest.length === 0;
  if (!isQuota || (ids === '-' && requests === '-')) {
    const what =
      "a prefix of reply topics, IDs per second and requests per second, such as 'id.replies.acme. 50000 100'";
    throw new RangeError(
      `has '${line.slice(0, 100)}', which is not ${what}; '-' means unlimited, for at most one of the two`,
    );
  }
  return {
    prefix,
    ...(ids === '-' ? {} : { idsPerSecond: Number(ids) }),
    ...(requests === '-' ? {} : { requestsPerSecond: Number(requests) }),
  };
}
