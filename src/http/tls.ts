import type { ServerOptions } from 'node:http';
import { createServer, type Server } from 'node:https';
import tls from 'node:tls';
import { renewed } from '../core/secret.ts';

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

/**
 * An HTTPS server that uses the current certificates for each new connection. It speaks TLS 1.2 and later, also where
 * this process is started with `--tls-min-v1.0`; with `--tls-min-v1.3` only TLS 1.3.
 */
export function createTlsServer(options: ServerOptions, settings: TlsSettings, handshakeTimeout: number): Server {
  const { cert, key, clientCa, monotonicMs, onError } = settings;
  const mutual = clientCa !== undefined;
  const minVersion = tls.DEFAULT_MIN_VERSION === 'TLSv1.3' ? 'TLSv1.3' : 'TLSv1.2';
  const server = createServer({
    ...options,
    requestCert: mutual,
    rejectUnauthorized: mutual,
    handshakeTimeout,
  });
  const renew = renewed(
    () => [cert(), key(), ...(mutual ? [clientCa()] : [])],
    // Each context has its own lowest version: the server's is not inherited.
    ([cert, key, ca]) => server.setSecureContext({ cert, key, minVersion, ...(ca === undefined ? {} : { ca }) }),
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
