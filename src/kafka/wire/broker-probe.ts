import { APIS } from './apis.ts';
import { WireConnection } from './kafkajs-connection.ts';
import { loggerTo, versionsOf } from './kafkajs-dialer.ts';
import type { BrokerAddress } from './port.ts';
import type { tlsOf } from './settings.ts';

/** The result of probing one broker without a login. */
export interface BrokerProbe {
  /** The newest version of Fetch that it supports, which identifies its release. */
  readonly fetchVersion: number;
  /** From request to response. */
  readonly latencyMs: number;
}

/**
 * Requests the API versions that one broker supports (ApiVersions, version 0). This needs no login, so it distinguishes
 * a broker that can't be reached from one that rejects the login. `tls`: the CA, by default those of Node, and the
 * client certificate. Rejects with the socket's error, or when no response arrives within `timeoutMs`.
 */
export async function probeBroker(
  address: BrokerAddress,
  tls: Partial<ReturnType<typeof tlsOf>> | undefined,
  timeoutMs: number,
): Promise<BrokerProbe> {
  const connection = new WireConnection(
    address,
    { ssl: tls ?? false, clientId: null },
    async () => undefined,
    loggerTo(),
  );
  const timer = setTimeout(() => connection.end(new Error(`no response in ${timeoutMs} ms`)), timeoutMs);
  try {
    await connection.connect();
    const sentMs = performance.now();
    const fetch = (await versionsOf(connection, 0))[APIS.fetch.key];
    if (fetch === undefined) throw new Error('the broker lists no version of Fetch');
    return { fetchVersion: fetch.maxVersion, latencyMs: performance.now() - sentMs };
  } catch (error) {
    if (connection.cause === undefined && connection.hasLost)
      throw new Error('the connection was closed without a response');
    throw connection.cause ?? error;
  } finally {
    clearTimeout(timer);
    connection.end(new Error('the probe is over'));
  }
}
