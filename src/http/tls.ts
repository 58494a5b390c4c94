import type { ServerOptions } from 'node:http';
import { createServer, type Server } from 'node:https';
import { renewed } from '../core/renewed.ts';

/** What a listener with TLS needs, as PEM; each is looked at again, so that certificates can be renewed. */
export interface TlsSettings {
  readonly cert: () => string;
  readonly key: () => string;
  /** With it only those are answered whose certificates these authorities have signed. */
  readonly clientCa?: (() => string) | undefined;
  readonly monotonicMs: () => number;
  /** Told of texts that are not usable; those from before count on. */
  readonly onFault: (error: unknown) => void;
}

/** A server of HTTP over TLS whose next connections see the certificates as they are then. */
export function createTlsServer(options: ServerOptions, settings: TlsSettings, handshakeTimeout: number): Server {
  const { cert, key, clientCa, monotonicMs, onFault } = settings;
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
  // Before a handshake begins. A certificate whose key is not there yet leaves the one before.
  server.prependListener('connection', () => {
    try {
      renew();
    } catch (error) {
      onFault(error);
    }
  });
  return server;
}
