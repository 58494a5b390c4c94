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

/** What to look at when a login with a user is refused. */
export const LOGIN_SETTINGS = 'KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD, KAFKA_SASL_MECHANISM and KAFKA_TLS';

/** A login that is refused is a fault of the configuration: no waiting mends it. `settings` are those to look at. */
export function loginRefused(error: unknown, settings: string, user?: string): IdallocError {
  const whose = user === undefined ? 'do not let us in' : `refuse the login of '${user}'`;
  const message = `the brokers ${whose} (${describeError(error)}): check ${settings}`;
  return new IdallocError('CONFIG_INVALID', message, { cause: error });
}

/** Why no broker can be talked to, with what to do about it. */
export function unreachable(error: unknown, { brokers, sasl }: KafkaSettings): IdallocError {
  if (faultOf(error) === 'LOGIN_REFUSED') {
    const settings = sasl === undefined ? 'KAFKA_TLS, KAFKA_CA and KAFKA_SASL_MECHANISM' : LOGIN_SETTINGS;
    return loginRefused(error, settings, sasl?.username);
  }
  const message = `no broker of ${brokers.join(', ')} can be talked to (${describeError(error)}): check KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}
