import { formatHostPort } from '../../core/host-port.ts';
import { describeError } from '../../errors.ts';
import type { ConnectionConfig } from './connection-config.ts';
import { KafkaError, kafkaErrorCode } from './kafka-error.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import { errorClasses } from './kafkajs-modules.ts';
import type { BrokerAddress } from './port.ts';

/** Reasons not to trust a certificate, by the codes of Node and OpenSSL. */
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

/** Whether a dial failed because the broker's certificate is not trusted. */
export function isUntrusted(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    if (UNTRUSTED.has((at as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

/** How far a dial got: opening the socket (with TLS), negotiating versions, logging in. */
export type Stage = 'connecting' | 'negotiation' | 'login';

/** OpenSSL's codes for a response that is not TLS. */
const NOT_TLS: ReadonlySet<string | undefined> = new Set([
  'EPROTO',
  'ERR_SSL_WRONG_VERSION_NUMBER',
  'ERR_SSL_PACKET_LENGTH_TOO_LONG',
  'ERR_SSL_UNEXPECTED_MESSAGE',
]);
/** The broker ended the handshake because of our certificate, or because there was none. */
const CERTIFICATE_REFUSED = /ALERT.*(CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|ACCESS_DENIED)/;

/**
 * Why a dial failed, with the remedy where one is known. LOGIN_REFUSED only for an explicit rejection by the broker;
 * anything that a restarting broker could also cause is UNREACHABLE.
 */
export function dialError(
  error: unknown,
  stage: Stage,
  address: BrokerAddress,
  connection: WireConnection,
  { ssl }: ConnectionConfig,
): KafkaError {
  const options = { cause: connection.cause ?? error };
  const unreachable = (why: string) => new KafkaError('UNREACHABLE', `${formatHostPort(address)}: ${why}`, options);
  const refused = (why: string) => new KafkaError('LOGIN_REFUSED', `${formatHostPort(address)}: ${why}`, options);
  const cause = connection.cause ?? error;
  const code = (cause as NodeJS.ErrnoException).code;
  const detail = describeSocket(cause);
  // Unreachable, for files that are being replaced may be read in between.
  if (ssl && !connection.hasSocket)
    return unreachable(`the options of TLS can't be used (${detail}): check the certificates`);
  if (ssl && NOT_TLS.has(code)) return refused(`the server there does not speak TLS (${detail})`);
  if (ssl && code !== undefined && CERTIFICATE_REFUSED.test(code)) {
    return refused(`the broker rejects our client certificate, or requires one (${detail})`);
  }
  if (kafkaErrorCode(error) === 'LOGIN_REFUSED') return refused(detail);
  if (kafkaErrorCode(cause) === 'MALFORMED_RESPONSE')
    return unreachable(`${detail}${ssl ? '' : ': does that port want TLS?'}`);
  if (stage === 'connecting') return unreachable(ssl && isCut(code) ? `${detail}: does that port speak TLS?` : detail);
  if (stage === 'negotiation' && connection.hasLost) {
    const why = connection.cause === undefined ? '' : ` (${detail})`;
    return unreachable(`the connection was closed without a response${why}${ssl ? '' : ': does that port want TLS?'}`);
  }
  if (stage === 'login' && !connection.hasLost && isRefusal(error)) return refused(describeError(error));
  return unreachable(detail);
}

function isCut(code: string | undefined): boolean {
  return code === 'ECONNRESET' || code === undefined;
}

/** Includes the response of a broker that accepts no logins at all. */
function isRefusal(error: unknown): boolean {
  return (
    error instanceof errorClasses.KafkaJSSASLAuthenticationError || error instanceof errorClasses.KafkaJSProtocolError
  );
}

/** The text of a socket error. A name with several addresses has one error per address and no message of its own. */
function describeSocket(error: unknown): string {
  if (!(error instanceof AggregateError) || error.errors.length === 0) return describeError(error);
  return error.errors.map(describeError).join(', ');
}
