import type { ConnectionConfig } from './connection-config.ts';
import { closedError } from './deadlines.ts';
import { dialError, type Stage } from './dial-error.ts';
import { WireConnection } from './kafkajs-connection.ts';
import { KafkajsLink } from './kafkajs-link.ts';
import type { InnerLogger } from './kafkajs-modules.ts';
import { agreeOnVersions } from './kafkajs-versions.ts';
import type { BrokerAddress, BrokerLink, Dialer } from './port.ts';

/** kafkajs' log of its connections. Only for debugging: errors are also thrown. */
export type DebugLog = (fields: object, message: string) => void;

/**
 * Opens connections of kafkajs 2.2.4, with its own configuration object, to brokers of Kafka 2.3 or later. Where `config`
 * is a function it is called at each login.
 */
export function dialerOf(config: ConnectionConfig | (() => ConnectionConfig), debug?: DebugLog): Dialer {
  const logger = loggerTo(debug);
  const configOf = typeof config === 'function' ? config : () => config;
  return { dial: (address, signal) => dial(address, signal, configOf, logger) };
}

async function dial(
  address: BrokerAddress,
  signal: AbortSignal,
  configOf: () => ConnectionConfig,
  logger: InnerLogger,
): Promise<BrokerLink> {
  if (signal.aborted) throw closedError();
  const config = configOf();
  const connection = new WireConnection(address, config, () => configOf().sasl, logger);
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
    return new KafkajsLink(connection, versions, `${address.host}:${address.port}`);
  } catch (error) {
    const failure = signal.aborted ? closedError() : dialError(error, stage, address, connection, config);
    connection.end(failure);
    await connection.ended;
    throw failure;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/** By default a logger to nowhere. */
export function loggerTo(debug: DebugLog = () => undefined): InnerLogger {
  const line = (message: string, fields: object = {}) => debug(fields, message);
  const logger: InnerLogger = { namespace: () => logger, debug: line, info: line, warn: line, error: line };
  return logger;
}
