import type { IncomingMessage } from 'node:http';
import { malformed, Problem } from './problem.ts';

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
