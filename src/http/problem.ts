import { type IncomingMessage, STATUS_CODES } from 'node:http';
import { isLoopback } from '../core/host-port.ts';

export const PROBLEM_TYPE = 'application/problem+json';

interface ProblemOptions {
  /** An error code or a reason of the gate; undefined where the status is enough. */
  readonly code?: string;
  /** When to retry; sent as Retry-After. */
  readonly retryAfterSeconds?: number;
  /** Whether the connection is closed after the response. */
  readonly closes?: boolean;
  /** The methods of the path; sent as Allow. */
  readonly allow?: string;
  /** How to authenticate; sent as WWW-Authenticate. */
  readonly challenge?: string;
}

/** An error response as in RFC 9457; thrown anywhere, and sent by the error handler. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, detail: string, options: ProblemOptions = {}) {
    const { code, retryAfterSeconds, closes = false, allow, challenge } = options;
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0; // nobody reads where a refusal comes from, and a flood of them pays for it
    super(detail);
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'Problem';
    this.status = status;
    this.code = code;
    this.headers = {
      ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
      ...(closes ? { connection: 'close' } : {}),
      ...(allow === undefined ? {} : { allow }),
      ...(challenge === undefined ? {} : { 'www-authenticate': challenge }),
    };
  }

  /** The response body. Without a code the type is about:blank, with the status text as title. */
  body(): string {
    const { status, code, message: detail } = this;
    if (code === undefined) return JSON.stringify({ type: 'about:blank', title: STATUS_CODES[status], status, detail });
    const words = code.toLowerCase().replaceAll('_', ' ');
    const title = `${words[0]?.toUpperCase()}${words.slice(1)}`;
    return JSON.stringify({ type: `urn:idalloc:problem:${code}`, title, status, detail, code });
  }
}

export function malformed(detail: string): Problem {
  return new Problem(400, detail, { code: 'MALFORMED_REQUEST' });
}

export const MAX_URL_LENGTH = 2_048;

/** All values of a header as sent. Node itself joins repeated headers, or keeps only the first. */
export function headerValues({ rawHeaders }: IncomingMessage, name: string): string[] {
  const values: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const sent = rawHeaders[at] ?? '';
    if (sent.length === name.length && sent.toLowerCase() === name) values.push(rawHeaders[at + 1] ?? '');
  }
  return values;
}

/**
 * Checks every request. Proxies differ in which of two Host headers they use, and a request line without a version has
 * no headers at all, so both are rejected.
 *
 * @throws Problem 400 or 414
 */
export function checkEnvelope(request: IncomingMessage): void {
  const { url = '', httpVersion, httpVersionMajor } = request;
  if (url.length > MAX_URL_LENGTH) throw new Problem(414, `the URL must not exceed ${MAX_URL_LENGTH} characters`);
  if (httpVersionMajor !== 1) throw malformed('the request line must end in HTTP/1.1');
  const hosts = headerValues(request, 'host').length;
  if (hosts > 1) throw malformed('the Host header must be given once');
  if (httpVersion === '1.1' && hosts === 0) throw malformed('the Host header is missing');
}

/** How a socket that takes IPv4 and IPv6 writes an IPv4 address. */
const MAPPED = '::ffff:';
/** An IP address, a name without a dot, or one that can't be registered; with a port or not. */
const LOCAL_HOST = /^(?:\[[\da-f:.]+\]|\d{1,3}(?:\.\d{1,3}){3}|[^.:]+|[^:]+\.(?:localhost|internal))(?::\d+)?$/i;

/**
 * Whoever owns a domain may let its name lead to the loopback address (DNS rebinding): a browser on this machine would
 * then let the pages of that domain read what is served here without a login.
 *
 * @throws Problem 421 for a request that came over the loopback address under the name of such a domain.
 */
export function checkLocalHost({ socket: { localAddress = '' }, headers: { host = '' } }: IncomingMessage): void {
  if (!isLoopback(localAddress.replace(MAPPED, '')) || host === '' || LOCAL_HOST.test(host)) return;
  throw new Problem(421, 'over the loopback address the Host must be localhost, an IP address or a name without a dot');
}
