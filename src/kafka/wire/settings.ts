import { parseHostPort } from '../../core/host-port.ts';
import type { Secret } from '../../core/secret.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { ConnectionConfig } from './connection-config.ts';
import { KafkaError, kafkaErrorCode } from './kafka-error.ts';
import { type DebugLog, dialerOf } from './kafkajs-dialer.ts';
import { fetchToken, type OauthSettings, signMskToken, Tokens } from './logins.ts';
import type { BrokerAddress, Dialer } from './port.ts';

type PasswordMechanism = 'plain' | 'scram-sha-256' | 'scram-sha-512';

/** How a user logs in. */
export type SaslSettings =
  | { readonly mechanism: PasswordMechanism; readonly username: string; readonly password: Secret }
  | { readonly mechanism: 'oauthbearer'; readonly oauth: OauthSettings }
  | { readonly mechanism: 'aws-msk-iam'; readonly region: string };

/** How to reach the brokers. */
export interface KafkaSettings {
  /** host:port of the bootstrap brokers; they name the others. */
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly tls: boolean;
  /** PEM of the CA that signs the brokers' certificates; by default those of Node. */
  readonly ca?: Secret | undefined;
  /** The client certificate. */
  readonly clientCertificate?: { readonly cert: Secret; readonly key: Secret } | undefined;
  readonly sasl?: SaslSettings | undefined;
}

type ConnectionSettings = Omit<KafkaSettings, 'brokers'>;

/** TLS options with the current certificates. */
export function tlsOf({ ca, clientCertificate }: Pick<KafkaSettings, 'ca' | 'clientCertificate'>): {
  ca: string | undefined;
  cert: string | undefined;
  key: string | undefined;
} {
  return { ca: ca?.(), cert: clientCertificate?.cert(), key: clientCertificate?.key() };
}

/** The settings as kafkajs takes them, with the current secrets. */
export function connectionOf(settings: ConnectionSettings, tokens = tokensOf(settings.sasl)): ConnectionConfig {
  const { clientId, tls, sasl } = settings;
  const ssl = tls && (settings.ca !== undefined || settings.clientCertificate !== undefined) ? tlsOf(settings) : tls;
  if (sasl === undefined) return { clientId, ssl };
  if ('password' in sasl) {
    const { mechanism, username, password } = sasl;
    return { clientId, ssl, sasl: { mechanism, username, password: password() } };
  }
  const oauthBearerProvider = async () => (tokens === undefined ? { value: '' } : await tokens.current());
  return { clientId, ssl, sasl: { mechanism: 'oauthbearer', oauthBearerProvider } };
}

/** Each new connection and each renewed login uses the current secrets; connections share a token. */
export function kafkaDialer(settings: ConnectionSettings, debug?: DebugLog): Dialer {
  const tokens = tokensOf(settings.sasl);
  return dialerOf(() => connectionOf(settings, tokens), debug);
}

/** Undefined for logins that need none. */
function tokensOf(sasl: SaslSettings | undefined): Tokens | undefined {
  if (sasl === undefined || 'password' in sasl) return undefined;
  const wallMs = () => Date.now();
  const fetch = 'oauth' in sasl ? () => fetchToken(sasl.oauth, wallMs) : () => signMskToken(sasl.region);
  return new Tokens(fetch, wallMs);
}

/** The user that a worker logs in as; undefined if its settings don't name one. */
export function userOf(sasl: SaslSettings | undefined): string | undefined {
  if (sasl === undefined || 'region' in sasl) return undefined;
  return 'oauth' in sasl ? sasl.oauth.clientId : sasl.username;
}

export function seedsOf(brokers: readonly string[]): BrokerAddress[] {
  return brokers.map((broker) => parseHostPort(broker));
}

/** The variables to check when a login with a user is rejected. */
export const LOGIN_SETTINGS = 'KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD, KAFKA_SASL_MECHANISM and KAFKA_TLS';

/** A rejected login is a configuration error: waiting does not fix it. `settings` are the variables to check. */
export function loginRefused(error: unknown, settings: string, user?: string): IdallocError {
  const whose = user === undefined ? 'reject this client' : `refuse the login of '${user}'`;
  const message = `the brokers ${whose} (${describeError(error)}): check ${settings}`;
  return new IdallocError('CONFIG_INVALID', message, { cause: error });
}

const MAX_CAUSES = 5;

/** Whether brokers answered that lack a version of an API. */
function isTooOld(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_CAUSES; at = at.cause, depth += 1) {
    if (at instanceof KafkaError && at.errorCode === 'UNSUPPORTED_VERSION') return true;
  }
  return false;
}

/** Why no broker can be reached, with the remedy. */
export function unreachable(error: unknown, { brokers, sasl, clientCertificate }: KafkaSettings): IdallocError {
  if (kafkaErrorCode(error) === 'LOGIN_REFUSED')
    return loginRefused(error, loginSettings(sasl, clientCertificate), userOf(sasl));
  if (isTooOld(error)) {
    const message = `the brokers ${brokers.join(', ')} answer, but can't be used (${describeError(error)})`;
    return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
  }
  const settings =
    clientCertificate === undefined
      ? 'KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA'
      : 'KAFKA_BROKERS, KAFKA_CA and KAFKA_CERT';
  const message = `none of the brokers ${brokers.join(', ')} can be reached (${describeError(error)}): check ${settings}`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}

function loginSettings(sasl: SaslSettings | undefined, clientCertificate: KafkaSettings['clientCertificate']): string {
  if (sasl === undefined) {
    return clientCertificate === undefined
      ? 'KAFKA_TLS, KAFKA_CA, KAFKA_CERT and KAFKA_SASL_MECHANISM'
      : 'KAFKA_CERT, KAFKA_KEY and KAFKA_CA';
  }
  if ('oauth' in sasl) return 'KAFKA_OAUTH_CLIENT_ID, KAFKA_OAUTH_CLIENT_SECRET and KAFKA_OAUTH_SCOPE';
  return 'region' in sasl ? 'KAFKA_AWS_REGION, the AWS credentials and KAFKA_TLS' : LOGIN_SETTINGS;
}
