import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import { tlsOf } from '../../kafka/wire/settings.ts';
import { type Check, judgeClock, warn } from './checks.ts';

/** Compares the clocks by the Date header of etcd's HTTP endpoint, which has whole seconds. */
export async function checkClock(
  endpoint: string,
  tls: Config['etcd']['tls'],
  timeoutMs: number,
  now: () => number,
): Promise<Check> {
  const sentMs = now();
  try {
    const reportedMs = Date.parse(await dateOf(new URL('/version', endpoint), tls, timeoutMs));
    const receivedMs = now();
    if (Number.isNaN(reportedMs)) throw new Error('its response has no Date header');
    return judgeClock(endpoint, reportedMs, sentMs, receivedMs);
  } catch (error) {
    const fix = 'none needed if the endpoint serves gRPC only: workers compare their clock with the brokers';
    return warn(`clock against ${endpoint}`, `unknown: ${describeError(error)}`, fix);
  }
}

/** The built-in fetch does not support client certificates. */
function dateOf(url: URL, tls: Config['etcd']['tls'], timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const take = (answer: IncomingMessage) => {
      answer.resume();
      resolve(answer.headers.date ?? '');
    };
    const options = { signal: AbortSignal.timeout(timeoutMs), agent: false };
    const request =
      url.protocol === 'https:'
        ? getHttps(url, { ...options, ...tlsOf(tls ?? {}) }, take)
        : getHttp(url, options, take);
    request.once('error', reject);
  });
}
