import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** The result of probing one broker without a login. */
export interface BrokerProbe {
  /** The newest version of Fetch that it supports, which identifies its release. */
  readonly fetchVersion: number;
  /** From request to response. */
  readonly latencyMs: number;
}

const FETCH = 1;
const API_VERSIONS = 18;
const MAX_RESPONSE_BYTES = 64 * 1024;

/**
 * Requests the API versions that one broker supports (ApiVersions, version 0). This needs no login, so it distinguishes
 * a broker that can't be reached from one that rejects the login. `tls`: the CA, by default those of Node, and the client
 * certificate. Rejects with the socket's error, or when no response arrives within `timeoutMs`.
 */
export async function probeBroker(
  broker: string,
  tls: { readonly ca?: string; readonly cert?: string; readonly key?: string } | undefined,
  timeoutMs: number,
): Promise<BrokerProbe> {
  const at = broker.lastIndexOf(':');
  const [host, port] = [broker.slice(0, at), Number(broker.slice(at + 1))];
  const socket = tls === undefined ? connectTcp({ host, port }) : connectTls({ host, port, ...tls });
  try {
    return await exchange(socket, tls === undefined ? 'connect' : 'secureConnect', timeoutMs);
  } finally {
    socket.destroy();
  }
}

function exchange(socket: Socket, ready: string, timeoutMs: number): Promise<BrokerProbe> {
  return new Promise((resolve, reject) => {
    let response: Buffer = Buffer.alloc(0);
    let sentMs = 0;
    const timer = setTimeout(() => reject(new Error(`no response in ${timeoutMs} ms`)), timeoutMs);
    const fail = (error: Error) => {
      clearTimeout(timer);
      reject(error);
    };
    socket.on('error', fail);
    socket.once('close', () => fail(new Error('the connection was closed without a response')));
    socket.once(ready, () => {
      sentMs = performance.now();
      socket.write(apiVersionsRequest());
    });
    socket.on('data', (chunk) => {
      response = Buffer.concat([response, chunk]);
      try {
        const fetchVersion = readFetchVersion(response);
        if (fetchVersion === undefined) return;
        clearTimeout(timer);
        resolve({ fetchVersion, latencyMs: performance.now() - sentMs });
      } catch (error) {
        fail(error as Error);
      }
    });
  });
}

/** Request => size int32, key int16, version int16, correlation int32, client ID (null: -1) int16. */
function apiVersionsRequest(): Buffer {
  const bytes = Buffer.alloc(14);
  bytes.writeInt32BE(10, 0);
  bytes.writeInt16BE(API_VERSIONS, 4);
  bytes.writeInt32BE(1, 8);
  bytes.writeInt16BE(-1, 12);
  return bytes;
}

/** Response => size int32, correlation int32, error int16, [key int16, min int16, max int16]; undefined while incomplete. */
function readFetchVersion(bytes: Buffer): number | undefined {
  if (bytes.length < 4) return undefined;
  const size = bytes.readInt32BE(0);
  if (size < 10 || size > MAX_RESPONSE_BYTES) throw new Error('the server there is not a Kafka broker');
  if (bytes.length < 4 + size) return undefined;
  const count = bytes.readInt32BE(10);
  if (count < 0 || 14 + count * 6 > 4 + size) throw new Error('the server there is not a Kafka broker');
  for (let at = 14; at < 14 + count * 6; at += 6) if (bytes.readInt16BE(at) === FETCH) return bytes.readInt16BE(at + 4);
  throw new Error('the broker lists no version of Fetch');
}
