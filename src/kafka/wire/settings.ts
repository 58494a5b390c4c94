import type { SASLOptions } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import { faultOf } from './fault.ts';
import type { ConnectionConfig } from './kafkajs-connection.ts';
import { type DebugLog, dialerOf } from './kafkajs-dialer.ts';
import type { BrokerAddress, Dialer } from './port.ts';

type SaslMechanism = 'plain' | 'scram-sha-256' | 'scram-sha-512';

/** How to reach the brokers. */
export interface KafkaSettings {
  /** host:port of the first brokers to ask; the cluster names the rest. */
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly tls: boolean;
  /** PEM of those who sign the brokers' certificates; without it, those that Node brings. */
  readonly ca?: string;
  readonly sasl?: { readonly mechanism: SaslMechanism; readonly username: string; readonly password: string };
}

type Connecting = Omit<KafkaSettings, 'brokers'>;

/** The same as kafkajs' configuration has it. */
export function connectionOf({ clientId, tls, ca, sasl }: Connecting): ConnectionConfig {
  const ssl = ca === undefined ? tls : { ca: [ca] };
  return { clientId, ssl, ...(sasl === undefined ? {} : { sasl: sasl as SASLOptions }) };
}

export function kafkaDialer(settings: Connecting, debug?: DebugLog): Dialer {
  return dialerOf(connectionOf(settings), debug);
}

const DEFAULT_PORT = 9092;

/** The addresses of `host:port`, where the host may be `[an IPv6 address]`. */
export function seedsOf(brokers: readonly string[]): BrokerAddress[] {
  return brokers.map((broker) => {
    const [, bracketed, plain, port] = /^(?:\[(.+)\]|(.*?))(?::(\d+))?$/.exec(broker) ?? [];
    return { host: bracketed ?? plain ?? broker, port: port === undefined ? DEFAULT_PORT : Number(port) };
  });
}

/** Why no broker can be talked to, with what to do about it. A login that is refused is a fault of the configuration. */
export function unreachable(error: unknown, { brokers, sasl }: KafkaSettings): IdallocError {
  const said = describeError(error);
  if (faultOf(error) === 'LOGIN_REFUSED') {
    const message =
      sasl === undefined
        ? `the brokers do not let us in (${said}): check KAFKA_TLS, KAFKA_CA and KAFKA_SASL_MECHANISM`
        : `the brokers refuse the login of '${sasl.username}' (${said}): check KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD, KAFKA_SASL_MECHANISM and KAFKA_TLS`;
    return new IdallocError('CONFIG_INVALID', message, { cause: error });
  }
  const message = `no broker of ${brokers.join(', ')} can be talked to (${said}): check KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}
