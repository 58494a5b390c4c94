import autocannon from 'autocannon';
import type { SeenIds } from './seen-ids.ts';

export interface HttpLoad {
  /** http://host:port */
  readonly url: string;
  /** IDs per request. */
  readonly count: number;
  readonly requests: number;
  /** At most so many: no more than there are requests. */
  readonly connections: number;
  /** Ranges rather than each ID with its parts; not with `seen`. */
  readonly encoding?: 'ranges';
  readonly headers?: Readonly<Record<string, string>>;
  /** Collects every ID of every response, which slows the load down. */
  readonly seen?: SeenIds;
}

export interface HttpLoadResult {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Responses without success, or with another number of IDs than requested. */
  readonly failures: number;
}

/** A response that takes longer never comes: tests judge how long responses take in other ways. */
const HANG_SECONDS = 150;

const VALUE = /"value_hex":"([0-9a-f]{16})"/g;

/** Sends requests for IDs over several connections, with one request in flight on each, with autocannon. */
export async function loadHttp(load: HttpLoad): Promise<HttpLoadResult> {
  const { url, count, requests, connections, encoding, headers = {}, seen } = load;
  const verifyBody = (body: unknown) => {
    let found = 0;
    for (const [, hex] of String(body).matchAll(VALUE)) {
      seen?.add(BigInt(`0x${hex}`));
      found += 1;
    }
    return found === count;
  };
  const result = await autocannon({
    url: `${url}/api/v1/ids?count=${count}${encoding === undefined ? '' : `&encoding=${encoding}`}`,
    amount: requests,
    connections: Math.min(connections, requests),
    headers,
    timeout: HANG_SECONDS,
    ...(seen === undefined ? {} : { verifyBody }),
  });
  return {
    requestsPerSecond: Math.round(result['2xx'] / ((result.finish.getTime() - result.start.getTime()) / 1_000)),
    p50Ms: result.latency.p50,
    p99Ms: result.latency.p99,
    failures: result.non2xx + result.errors + result.timeouts + result.mismatches,
  };
}
