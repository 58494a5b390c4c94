import type { Socket } from 'node:net';
import type { ConnectionOptions as TlsOptions } from 'node:tls';

/** A login that kafkajs has built in. */
type SaslOptions =
  | { mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512'; username: string; password: string }
  | {
      mechanism: 'aws';
      authorizationIdentity: string;
      accessKeyId: string;
      secretAccessKey: string;
      sessionToken?: string;
    }
  | { mechanism: 'oauthbearer'; oauthBearerProvider: () => Promise<{ value: string }> };

/** Another login. */
interface SaslMechanism {
  mechanism: string;
  authenticationProvider(args: {
    host: string;
    port: number;
    logger: object;
    saslAuthenticate(message: object): Promise<unknown>;
  }): { authenticate(): Promise<void> };
}

/** Opens the connection to a broker. */
export type SocketFactory = (args: { host: string; port: number; ssl: TlsOptions; onConnect: () => void }) => Socket;

/**
 * The part of kafkajs' configuration that concerns connections. It is declared here because kafkajs is bundled into the
 * client, whose users need not have its types.
 */
export interface ConnectionConfig {
  /** null for none. */
  clientId?: string | null | undefined;
  ssl?: TlsOptions | boolean | undefined;
  sasl?: SaslOptions | SaslMechanism | undefined;
  socketFactory?: SocketFactory;
  reauthenticationThreshold?: number;
}
