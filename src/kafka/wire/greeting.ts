import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** What one broker says before anybody logs in. */
export interface BrokerGreeting {
  /** The newest version of its fetch request, by which its release is known. */
  readonly fetchVersion: number;
  /** From the question to the answer. */
  readonly latencyMs: number;
}

const FETCH = 1;
const API_VERSIONS = 18;
const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * Asks one broker which versions it speaks (ApiVersions, version 0). Needs no login, so it distinguishes a broker that can't be
 * reached from one that refuses. `tls`: who signs the certificates, or nobody but those that Node knows, and the
 * certificate to show. Rejects with the socket's error, or when no answer comes within `timeoutMs`.
 */
export async function greetBroker(
  broker: string,
  tls: { readonly ca?: string; readonly cert?: string; readonly key?: string } | undefined,
  timeoutMs: number,
): Promise<BrokerGreeting> {
  const at = broker.lastIndexOf(':');
  const [host, port] = [broker.slice(0, at), Number(broker.slice(at + 1))];
  const socket = tls === undefined ? connectTcp({ host, port }) : connectTls({ host, port, ...tls });
  try {
    return await converse(socket, tls === undefined ? 'connect' : 'secureConnect', timeoutMs);
  } finally {
    socket.destroy();
  }
}

function converse(socket: Socket, ready: string, timeoutMs: number): Promise<BrokerGreeting> {
  return new Promise((resolve, reject) => {
    let answer: Buffer = Buffer.alloc(0);
    let sentMs = 0;
    const timer = setTimeout(() => reject(new Error(`no answer in ${timeoutMs} ms`)), timeoutMs);
    const fail = (error: Error) => {
      clearTimeout(timer);
      reject(error);
    };
    socket.on('error', fail);
    socket.once('close', () => fail(new Error('the connection was closed without an answer')));
    socket.once(ready, () => {
      sentMs = performance.now();
      socket.write(question());
    });
    socket.on('data', (chunk) => {
      answer = Buffer.concat([answer, chunk]);
      try {
        const fetchVersion = readAnswer(answer);
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
function question(): Buffer {
  const bytes = Buffer.alloc(14);
  bytes.writeInt32BE(10, 0);
  bytes.writeInt16BE(API_VERSIONS, 4);
  bytes.writeInt32BE(1, 8);
  bytes.writeInt16BE(-1, 12);
  return bytes;
}

/** Answer => size int32, correlation int32, error int16, [key int16, least int16, most int16]; undefined while it is short. */
function readAnswer(bytes: Buffer): number | undefined {
  if (bytes.length < 4) return undefined;
  const size = bytes.readInt32BE(0);
  if (size < 10 || size > MAX_ANSWER_BYTES) throw new Error('what answers is no Kafka broker');
  if (bytes.length < 4 + size) return undefined;
  const count = bytes.readInt32BE(10);
  if (count < 0 || 14 + count * 6 > 4 + size) throw new Error('what answers is no Kafka broker');
  for (let at = 14; at < 14 + count * 6; at += 6) if (bytes.readInt16BE(at) === FETCH) return bytes.readInt16BE(at + 4);
  throw new Error('the broker does not speak of fetching');
}
