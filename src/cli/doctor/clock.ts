import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import { type Check, judgeClock, warn } from './checks.ts';

/** etcd's HTTP side tells its time in whole seconds. */
export async function checkClock(
  endpoint: string,
  tls: Config['etcd']['tls'],
  timeoutMs: number,
  now: () => number,
): Promise<Check> {
  const sentMs = now();
  try {
    const toldMs = Date.parse(await dateOf(new URL('/version', endpoint), tls, timeoutMs));
    const receivedMs = now();
    if (Number.isNaN(toldMs)) throw new Error('it does not tell its time');
    return judgeClock(endpoint, toldMs, sentMs, receivedMs);
  } catch (error) {
    const fix = 'none needed where the endpoint takes gRPC only: workers compare their clock with the brokers';
    return warn(`clock against ${endpoint}`, `not known: ${describeError(error)}`, fix);
  }
}

/** The built-in fetch takes no certificates. */
function dateOf(url: URL, tls: Config['etcd']['tls'], timeoutMs: number): Promise<string> {
  const { ca, own } = tls ?? {};
  const certificates = {
    ...(ca === undefined ? {} : { ca: ca() }),
    ...(own === undefined ? {} : { cert: own.cert(), key: own.key() }),
  };
  return new Promise((resolve, reject) => {
    const take = (answer: IncomingMessage) => {
      answer.resume();
      resolve(answer.headers.date ?? '');
    };
    const options = { signal: AbortSignal.timeout(timeoutMs), agent: false };
    const request =
      url.protocol === 'https:' ? getHttps(url, { ...options, ...certificates }, take) : getHttp(url, options, take);
    request.once('error', reject);
  });
}
