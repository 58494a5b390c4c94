import { createServer, type Server, type ServerOptions } from 'node:https';
import type { Socket } from 'node:net';
import tls, { type DetailedPeerCertificate, type TLSSocket } from 'node:tls';
import { renewed } from '../core/secret.ts';
import { handshakeLimit } from './callers.ts';
import type { Connections } from './connections.ts';

/** PEM texts of a TLS listener; each is read again, so that certificates can be renewed. */
export interface TlsSettings {
  readonly cert: () => string;
  readonly key: () => string;
  /** With it, clients need a certificate signed by one of these CAs. */
  readonly clientCa?: (() => string) | undefined;
  readonly monotonicMs: () => number;
  /** The clock by which certificates end. */
  readonly wallMs: () => number;
  /** Called when the texts are invalid; the last valid ones stay in use. */
  readonly onError: (error: unknown) => void;
}

interface TlsServer {
  readonly server: Server;
  /** Whether the client of a connection would still be accepted: its certificate has not ended since. */
  readonly isTrusted: (socket: Socket) => boolean;
}

/**
 * An HTTPS server that uses the current certificates for each new connection. It speaks TLS 1.2 and later, also where
 * this process is started with `--tls-min-v1.0`; with `--tls-min-v1.3` only TLS 1.3.
 *
 * A connection lasts no longer than what it was accepted for. With another client CA all connections end, those with a
 * response in progress after it: their clients connect again, and are judged by the new CA. Sessions can't be resumed
 * across that, since each context has its own keys for them.
 */
export function createTlsServer(options: ServerOptions, settings: TlsSettings, connections: Connections): TlsServer {
  const { cert, key, clientCa, monotonicMs, wallMs, onError } = settings;
  const mutual = clientCa !== undefined;
  const minVersion = tls.DEFAULT_MIN_VERSION === 'TLSv1.3' ? 'TLSv1.3' : 'TLSv1.2';
  const server = createServer({ ...options, requestCert: mutual, rejectUnauthorized: mutual });
  const renew = renewed(
    () => [cert(), key(), ...(mutual ? [clientCa()] : [])],
    ([cert, key, ca]) => {
      // Each context has its own lowest version: the server's is not inherited.
      server.setSecureContext({ cert, key, minVersion, ...(ca === undefined ? {} : { ca }) });
      return ca;
    },
    monotonicMs,
  );
  let usedCa = renew();
  // If the new certificate's key is still missing, the old pair stays in use.
  const refresh = () => {
    try {
      const ca = renew();
      if (ca !== usedCa) connections.endAll();
      usedCa = ca;
    } catch (error) {
      onError(error);
    }
  };
  const admits = handshakeLimit(monotonicMs);
  const [shakeHands, ...others] = server.listeners('connection');
  if (shakeHands === undefined || others.length > 0) throw new TypeError('a TLS server has one listener of its own');
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    if (!admits(socket)) return connections.refuse(socket);
    refresh();
    shakeHands.call(server, socket);
  });
  const endsMs = new WeakMap<Socket, number>();
  if (mutual)
    server.on('secureConnection', (socket: TLSSocket) => endsMs.set(socket, endOf(socket.getPeerCertificate(true))));
  const isTrusted = (socket: Socket) => {
    refresh();
    return !mutual || (endsMs.get(socket) ?? 0) > wallMs();
  };
  return { server, isTrusted };
}

/** When the first certificate of a chain ends, in milliseconds; 0 if it does not say when. */
function endOf(certificate: DetailedPeerCertificate): number {
  const endMs = Date.parse(certificate.valid_to) || 0;
  const issuer = certificate.issuerCertificate as DetailedPeerCertificate | undefined;
  return issuer === undefined || issuer === certificate ? endMs : Math.min(endMs, endOf(issuer));
}
