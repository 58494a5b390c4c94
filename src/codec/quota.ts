/** The limits for requests whose reply topics begin with a prefix. */
export interface Quota {
  readonly prefix: string;
  /** New IDs per second; unlimited if missing, as the others. */
  readonly idsPerSecond?: number | undefined;
  /** Requests with a batch, new or not. */
  readonly requestsPerSecond?: number | undefined;
  /** Estimated bytes of the replies with a batch. */
  readonly replyBytesPerSecond?: number | undefined;
}

export const MAX_QUOTAS = 1_000;
const PREFIX = /^[A-Za-z0-9._-]{1,249}$/;
const RATE = /^[1-9][0-9]{0,11}$/;
/** An ID that is listed in a reply takes so many bytes at most, and everything else in a reply so many. */
const BYTES = { id: 10, reply: 1_000 } as const;

/**
 * Parses quotas: lines, or parts separated by semicolons, with a prefix of reply topics, IDs per second, requests per
 * second and, optionally, bytes of replies per second; `-` means unlimited. Without bytes, they are as many as the
 * replies to new requests need that are within the other two; unlimited if the IDs are. Empty lines and comments (#)
 * are ignored.
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
  const [prefix = '', ids = '', requests = '', bytes, ...rest] = line.split(/\s+/);
  const words = [ids, requests, ...(bytes === undefined ? [] : [bytes])];
  const isWellFormed = words.every((word) => word === '-' || RATE.test(word)) && rest.length === 0;
  if (!PREFIX.test(prefix) || !isWellFormed || words.every((word) => word === '-')) {
    const what =
      "a prefix of reply topics, IDs, requests and optionally bytes of replies per second, such as 'id.replies.acme. 50000 100'";
    throw new RangeError(`has '${line.slice(0, 100)}', which is not ${what}; '-' means unlimited, but not for all`);
  }
  const [idsPerSecond, requestsPerSecond] = [rateOf(ids), rateOf(requests)];
  const replyBytesPerSecond = bytes === undefined ? defaultReplyBytes(idsPerSecond, requestsPerSecond) : rateOf(bytes);
  return { prefix, idsPerSecond, requestsPerSecond, replyBytesPerSecond };
}

function rateOf(word: string): number | undefined {
  return word === '-' ? undefined : Number(word);
}

/** Each request is for one ID at least, so there are no more requests than IDs. */
function defaultReplyBytes(ids: number | undefined, requests: number | undefined): number | undefined {
  if (ids === undefined) return undefined;
  return ids * BYTES.id + Math.min(ids, requests ?? ids) * BYTES.reply;
}
