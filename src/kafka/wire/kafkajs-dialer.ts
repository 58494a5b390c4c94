import { aborted } from '../../async/waiting.ts';
import { formatHostPort } from '../../core/host-port.ts';
import type { KafkaApi } from './api.ts';
import { APIS } from './apis.ts';
import type { ConnectionConfig } from './connection-config.ts';
import { closedError } from './deadlines.ts';
import { dialError, type Stage } from './dial-error.ts';
import { KafkaError } from './kafka-error.ts';
import { WireConnection } from './kafkajs-connection.ts';
import { requireSuccess } from './kafkajs-errors.ts';
import { KafkajsLink } from './kafkajs-link.ts';
import { type ApiVersions, definitionOf, type InnerLogger, type Protocol } from './kafkajs-modules.ts';
import type { BrokerAddress, BrokerLink, Dialer } from './port.ts';

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
export async function versionsOf(connection: WireConnection, version: number): Promise<ApiVersions> {
  const greeting = definitionOf('ApiVersions').protocol({ version })({});
  const { request, response } = greeting as Protocol<DecodedVersions>;
  const asDecoded = { decode: response.decode, parse: async (decoded: DecodedVersions) => decoded };
  const { errorCode, apiVersions } = await connection.send({ request, response: asDecoded, logResponseError: false });
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
export function loggerTo(debug: DebugLog = () => undefined): InnerLogger {
  const line = (message: string, fields: object = {}) => debug(fields, message);
  const logger: InnerLogger = { namespace: () => logger, debug: line, info: line, warn: line, error: line };
  return logger;
}
