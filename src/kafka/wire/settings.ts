import type { SASLOptions } from 'kafkajs';
import type { Secret } from '../../core/secret.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { faultOf } from './fault.ts';
import type { ConnectionConfig } from './kafkajs-connection.ts';
import { type DebugLog, dialerOf } from './kafkajs-dialer.ts';
import { signMskToken } from './msk-iam.ts';
import { fetchToken, type OauthSettings } from './oauth.ts';
import type { BrokerAddress, Dialer } from './port.ts';
import { Tokens } from './tokens.ts';

type PasswordMechanism = 'plain' | 'scram-sha-256' | 'scram-sha-512';

/** How a user logs in. */
export type SaslSettings =
  | { readonly mechanism: PasswordMechanism; readonly username: string; readonly password: Secret }
  | { readonly mechanism: 'oauthbearer'; readonly oauth: OauthSettings }
  | { readonly mechanism: 'aws-msk-iam'; readonly region: string };

/** How to reach the brokers. */
export interface KafkaSettings {
  /** host:port of the first brokers to ask; the cluster names the rest. */
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly tls: boolean;
  /** PEM of those who sign the brokers' certificates; without it, those that Node brings. */
  readonly ca?: Secret;
  /** Shown to brokers that ask for a certificate. */
  readonly own?: { readonly cert: Secret; readonly key: Secret };
  readonly sasl?: SaslSettings;
}

type Connecting = Omit<KafkaSettings, 'brokers'>;

/** What TLS takes, with the certificates of this moment. */
export function tlsOf({ ca, own }: Pick<KafkaSettings, 'ca' | 'own'>): { ca?: string; cert?: string; key?: string } {
  return {
    ...(ca === undefined ? {} : { ca: ca() }),
    ...(own === undefined ? {} : { cert: own.cert(), key: own.key() }),
  };
}

/** The same as kafkajs' configuration has it, with the secrets of this moment. */
export function connectionOf(connecting: Connecting, tokens = tokensOf(connecting.sasl)): ConnectionConfig {
  const { clientId, tls, sasl } = connecting;
  const ssl = tls && (connecting.ca !== undefined || connecting.own !== undefined) ? tlsOf(connecting) : tls;
  if (sasl === undefined) return { clientId, ssl };
  if ('password' in sasl) {
    const { mechanism, username, password } = sasl;
    return { clientId, ssl, sasl: { mechanism, username, password: password() } as SASLOptions };
  }
  const oauthBearerProvider = async () => (tokens === undefined ? { value: '' } : await tokens.current());
  return { clientId, ssl, sasl: { mechanism: 'oauthbearer', oauthBearerProvider } };
}

/** Each connection, and each login that renews one, takes the secrets of its moment; a token is fetched once for all. */
export function kafkaDialer(settings: Connecting, debug?: DebugLog): Dialer {
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

/** As whom a worker logs in, as far as its settings tell. */
export function userOf(sasl: SaslSettings | undefined): string | undefined {
  if (sasl === undefined || 'region' in sasl) return undefined;
  return 'oauth' in sasl ? sasl.oauth.clientId : sasl.username;
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
export function unreachable(error: unknown, { brokers, sasl, own }: KafkaSettings): IdallocError {
  if (faultOf(error) === 'LOGIN_REFUSED') return loginRefused(error, loginSettings(sasl, own), userOf(sasl));
  const settings =
    own === undefined ? 'KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA' : 'KAFKA_BROKERS, KAFKA_CA and KAFKA_CERT';
  const message = `no broker of ${brokers.join(', ')} can be talked to (${describeError(error)}): check ${settings}`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
}

function loginSettings(sasl: SaslSettings | undefined, own: KafkaSettings['own']): string {
  if (sasl === undefined) {
    return own === undefined
      ? 'KAFKA_TLS, KAFKA_CA, KAFKA_CERT and KAFKA_SASL_MECHANISM'
      : 'KAFKA_CERT, KAFKA_KEY and KAFKA_CA';
  }
  if ('oauth' in sasl) return 'KAFKA_OAUTH_CLIENT_ID, KAFKA_OAUTH_CLIENT_SECRET and KAFKA_OAUTH_SCOPE';
  return 'region' in sasl ? 'KAFKA_AWS_REGION, the credentials of AWS and KAFKA_TLS' : LOGIN_SETTINGS;
}
