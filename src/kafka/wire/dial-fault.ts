import kafkajs from 'kafkajs';
import { describeError } from '../../errors.ts';
import { faultOf, KafkaFault } from './fault.ts';
import type { ConnectionConfig, WireConnection } from './kafkajs-connection.ts';
import type { BrokerAddress } from './port.ts';

/** Why a certificate is not believed, by the names of Node and OpenSSL. */
const UNTRUSTED: ReadonlySet<unknown> = new Set([
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'CERT_REVOKED',
  'CERT_SIGNATURE_FAILURE',
  'CERT_UNTRUSTED',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);
const MAX_DEPTH = 5;

/** Whether a broker was not dialled for want of a certificate that we believe. */
export function isUntrusted(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    if (UNTRUSTED.has((at as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

/** How far a dial had come: the socket with its TLS, the versions, the login. */
export type Stage = 'connecting' | 'greeting' | 'login';

/** What OpenSSL says of an answer that is no TLS. */
const NO_TLS: ReadonlySet<string | undefined> = new Set([
  'EPROTO',
  'ERR_SSL_WRONG_VERSION_NUMBER',
  'ERR_SSL_PACKET_LENGTH_TOO_LONG',
  'ERR_SSL_UNEXPECTED_MESSAGE',
]);
/** The other side ended the handshake for our certificate, or for want of one. */
const CERTIFICATE_REFUSED = /ALERT.*(CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|ACCESS_DENIED)/;

/**
 * Why a broker could not be dialled, with the remedy where one is known. LOGIN_REFUSED only for what the broker has
 * said itself; whatever a broker that is being restarted could do as well is UNREACHABLE.
 */
export function dialFault(
  error: unknown,
  stage: Stage,
  { host, port }: BrokerAddress,
  connection: WireConnection,
  { ssl }: ConnectionConfig,
): KafkaFault {
  const options = { cause: connection.cause ?? error };
  const unreachable = (why: string) => new KafkaFault('UNREACHABLE', `${host}:${port}: ${why}`, options);
  const refused = (why: string) => new KafkaFault('LOGIN_REFUSED', `${host}:${port}: ${why}`, options);
  const cause = connection.cause ?? error;
  const code = (cause as NodeJS.ErrnoException).code;
  const said = describeSocket(cause);
  if (ssl && NO_TLS.has(code)) return refused(`what answers there speaks no TLS (${said})`);
  if (ssl && code !== undefined && CERTIFICATE_REFUSED.test(code)) {
    return refused(`the broker wants another client certificate (${said})`);
  }
  if (faultOf(error) === 'LOGIN_REFUSED') return refused(said);
  if (faultOf(cause) === 'MALFORMED_ANSWER') return unreachable(`${said}${ssl ? '' : ': does that port want TLS?'}`);
  if (stage === 'connecting') return unreachable(ssl && isCut(code) ? `${said}: does that port speak TLS?` : said);
  if (stage === 'greeting' && connection.hasLost) {
    const why = connection.cause === undefined ? '' : ` (${said})`;
    return unreachable(`the connection was closed without an answer${why}${ssl ? '' : ': does that port want TLS?'}`);
  }
  if (stage === 'login' && !connection.hasLost && isRefusal(error)) return refused(describeError(error));
  return unreachable(said);
}

function isCut(code: string | undefined): boolean {
  return code === 'ECONNRESET' || code === undefined;
}

/** A broker that takes no login at all says so too. */
function isRefusal(error: unknown): boolean {
  return error instanceof kafkajs.KafkaJSSASLAuthenticationError || error instanceof kafkajs.KafkaJSProtocolError;
}

/** The text of a socket's error: where a name has several addresses, there is one error for each and none for all. */
function describeSocket(error: unknown): string {
  if (!(error instanceof AggregateError) || error.errors.length === 0) return describeError(error);
  return error.errors.map(describeError).join(', ');
}
