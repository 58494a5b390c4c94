import { aborted } from '../../async/waiting.ts';
import { formatHostPort } from '../../core/host-port.ts';
import { describeError } from '../../errors.ts';
import { type KafkaApi, requireSuccess } from './api.ts';
import type { ConnectionConfig } from './connection-config.ts';
import { closedError } from './deadlines.ts';
import { KafkaError, kafkaErrorCode } from './kafka-error.ts';
import { WireConnection } from './kafkajs-connection.ts';
import { KafkajsLink } from './kafkajs-link.ts';
import { type ApiVersions, definitionOf, errorClasses, type InnerLogger, type Protocol } from './kafkajs-modules.ts';
import { APIS, type BrokerAddress, type BrokerLink, type Dialer } from './port.ts';

/** kafkajs' log of its connections. Only for debugging: errors are also thrown. */
export type DebugLog = (fields: object, message: string) => void;

type CurrentConfig = () => ConnectionConfig | Promise<ConnectionConfig>;

/**
 * Opens connections of kafkajs 2.2.4, with its own configuration object, to brokers of Kafka 2.3 or later. Where
 * `config` is a function it is called at each login; what it rejects with is passed on.
 */
export function dialerOf(config: ConnectionConfig | CurrentConfig, debug?: DebugLog): Dialer {
  const logger = loggerTo(debug);
  const configOf = typeof config === 'function' ? config : () => config;
  return { dial: (address, signal) => dial(address, signal, configOf, logger) };
}

async function dial(
  address: BrokerAddress,
  signal: AbortSignal,
  configOf: CurrentConfig,
  logger: InnerLogger,
): Promise<BrokerLink> {
  if (signal.aborted) throw closedError();
  const config = await Promise.race([configOf(), aborted(signal)]);
  if (config === undefined || signal.aborted) throw closedError();
  const connection = new WireConnection(address, config, async () => (await configOf()).sasl, logger);
  const abort = () => connection.end(closedError());
  signal.addEventListener('abort', abort);
  let stage: Stage = 'connecting';
  try {
    await connection.connect();
    stage = 'negotiation';
    const versions = await agreeOnVersions(connection);
    stage = 'login';
    connection.setVersions(versions);
    connection.setSupportAuthenticationProtocol(true);
    await connection.authenticate();
    return new KafkajsLink(connection, versions, formatHostPort(address));
  } catch (error) {
    const failure = signal.aborted ? closedError() : dialError(error, stage, address, connection, config);
    connection.end(failure);
    await connection.ended;
    throw failure;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

interface DecodedVersions {
  readonly errorCode: number;
  readonly apiVersions: readonly {
    readonly apiKey: number;
    readonly minVersion: number;
    readonly maxVersion: number;
  }[];
}

const GREETING_VERSION = 2;

/** Requests the versions that a broker supports. Throws UNSUPPORTED_VERSION if an API that is used has none. */
async function agreeOnVersions(connection: WireConnection): Promise<ApiVersions> {
  const supported = await versionsOf(connection, GREETING_VERSION);
  for (const api of Object.values(APIS)) requireSupported(supported, api);
  return supported;
}

/** Requests them in this version of ApiVersions. */
async function versionsOf(connection: WireConnection, version: number): Promise<ApiVersions> {
  const greeting = definitionOf('ApiVersions').protocol({ version })({});
  const { request, response } = greeting as Protocol<DecodedVersions>;
  const { buffer } = await request.encode();
  const { errorCode, apiVersions } = await response.decode(await connection.request(request, [buffer]));
  requireSuccess(errorCode);
  return Object.fromEntries(
    apiVersions.map(({ apiKey, minVersion, maxVersion }) => [apiKey, { minVersion, maxVersion }]),
  );
}

function requireSupported(
  supported: ApiVersions,
  api: Pick<KafkaApi<never, never>, 'name' | 'key' | 'version' | 'isOptional'>,
): void {
  const { name, key, version, isOptional } = api;
  const broker = supported[key];
  const newest = version ?? Math.max(...definitionOf(name).versions.map(Number));
  const isSupported =
    broker !== undefined && newest >= broker.minVersion && (version === undefined || version <= broker.maxVersion);
  if (isSupported || isOptional) return;
  const range = broker === undefined ? 'no version' : `versions ${broker.minVersion} to ${broker.maxVersion}`;
  const message = `the broker supports ${range} of ${name}, but version ${newest} is needed: use Kafka 2.3 or later`;
  throw new KafkaError('UNSUPPORTED_VERSION', message);
}

/** By default a logger to nowhere. */
function loggerTo(debug: DebugLog = () => undefined): InnerLogger {
  const line = (message: string, fields: object = {}) => debug(fields, message);
  const logger: InnerLogger = { namespace: () => logger, debug: line, info: line, warn: line, error: line };
  return logger;
}

/** The result of probing one broker without a login. */
export interface BrokerProbe {
  /** The newest version of Fetch that it supports, which identifies its release. */
  readonly fetchVersion: number;
  /** From request to response. */
  readonly latencyMs: number;
}

/**
 * Requests the API versions that one broker supports (ApiVersions, version 0). This needs no login, so it distinguishes
 * a broker that can't be reached from one that rejects the login. `tls`: the CA, by default those of Node, and the
 * client certificate. Rejects with the socket's error, or when no response arrives within `timeoutMs`.
 */
export async function probeBroker(
  address: BrokerAddress,
  tls:
    | { readonly ca?: string | undefined; readonly cert?: string | undefined; readonly key?: string | undefined }
    | undefined,
  timeoutMs: number,
): Promise<BrokerProbe> {
  const connection = new WireConnection(
    address,
    { ssl: tls ?? false, clientId: null },
    async () => undefined,
    loggerTo(),
  );
  const timer = setTimeout(() => connection.end(new Error(`no response in ${timeoutMs} ms`)), timeoutMs);
  try {
    await connection.connect();
    const sentMs = performance.now();
    const fetch = (await versionsOf(connection, 0))[APIS.fetch.key];
    if (fetch === undefined) throw new Error('the broker lists no version of Fetch');
    return { fetchVersion: fetch.maxVersion, latencyMs: performance.now() - sentMs };
  } catch (error) {
    if (connection.cause === undefined && connection.hasLost)
      throw new Error('the connection was closed without a response');
    throw connection.cause ?? error;
  } finally {
    clearTimeout(timer);
    connection.end(new Error('the probe is over'));
  }
}

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
type Stage = 'connecting' | 'negotiation' | 'login';

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
function dialError(
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
