import type { ServerOptions } from 'node:http';
import { createServer, type Server } from 'node:https';
import { renewed } from '../core/renewed.ts';

/** PEM texts of a TLS listener; each is read again, so that certificates can be renewed. */
export interface TlsSettings {
  readonly cert: () => string;
  readonly key: () => string;
  /** With it, clients need a certificate signed by one of these CAs. */
  readonly clientCa?: (() => string) | undefined;
  readonly monotonicMs: () => number;
  /** Called when the texts are invalid; the last valid ones stay in use. */
  readonly onError: (error: unknown) => void;
}

/** An HTTPS server that uses the current certificates for each new connection. */
export function createTlsServer(options: ServerOptions, settings: TlsSettings, handshakeTimeout: number): Server {
  const { cert, key, clientCa, monotonicMs, onError } = settings;
  const mutual = clientCa !== undefined;
  const server = createServer({
    ...options,
    requestCert: mutual,
    rejectUnauthorized: mutual,
    handshakeTimeout,
    minVersion: 'TLSv1.2',
  });
  const renew = renewed(
    () => [cert(), key(), ...(mutual ? [clientCa()] : [])],
    ([cert, key, ca]) => server.setSecureContext({ cert, key, ...(ca === undefined ? {} : { ca }) }),
    monotonicMs,
  );
  // Before the handshake. If the new certificate's key is still missing, the old pair stays in use.
  server.prependListener('connection', () => {
    try {
      renew();
    } catch (error) {
      onError(error);
    }
  });
  return server;
}
