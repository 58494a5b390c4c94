import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { Frames } from '../../../src/kafka/wire/kafkajs-connection.ts';
import type { BrokerAddress } from '../../../src/kafka/wire/port.ts';

export const PRODUCE = 0;
export const FETCH = 1;
export const METADATA = 3;
export const HEARTBEAT = 12;
export const SASL_HANDSHAKE = 17;
export const API_VERSIONS = 18;
export const SASL_AUTHENTICATE = 36;
export const CONSUMER_GROUP_DESCRIBE = 69;

/** A call as received: its body is everything after the client's name. */
export interface Called {
  readonly apiKey: number;
  readonly apiVersion: number;
  readonly client: string;
  readonly body: Buffer;
}

/** The payload of the answer, or what to do instead. */
export type Reply = Buffer | 'hang up' | 'say nothing';

/** A broker on a real socket with scripted answers; it answers ApiVersions by itself. */
export class TcpBroker implements AsyncDisposable {
  readonly calls: Called[] = [];
  readonly sockets = new Set<Socket>();
  readonly #server: Server;
  readonly #reply: (call: Called) => Reply;
  /** The versions of calls in the answer to ApiVersions; calls that are not listed have the default ones. */
  versions: Readonly<Record<number, readonly [number, number]>> = {};
  /** How the bytes of an answer are sent: in one piece by default. */
  send = (socket: Socket, bytes: Buffer): void => void socket.write(bytes);

  private constructor(reply: (call: Called) => Reply) {
    this.#reply = reply;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  static async start(reply: (call: Called) => Reply = () => 'say nothing', host = '127.0.0.1'): Promise<TcpBroker> {
    const broker = new TcpBroker(reply);
    broker.#server.listen(0, host);
    await once(broker.#server, 'listening');
    return broker;
  }

  get address(): BrokerAddress {
    const { address: host, port } = this.#server.address() as AddressInfo;
    return { host, port };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    const frames = new Frames();
    this.sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('data', (chunk) => {
      try {
        for (const frame of frames.push(chunk as Buffer)) this.#answer(socket, frame);
      } catch {
        socket.destroy(); // as a broker does with an invalid request
      }
    });
  }

  #answer(socket: Socket, frame: Buffer): void {
    const [apiKey, apiVersion, correlation] = [frame.readInt16BE(0), frame.readInt16BE(2), frame.subarray(4, 8)];
    const bodyAt = 10 + Math.max(0, frame.readInt16BE(8));
    const call = { apiKey, apiVersion, client: frame.toString('utf8', 10, bodyAt), body: frame.subarray(bodyAt) };
    this.calls.push(call);
    const reply = apiKey === API_VERSIONS ? this.#versions() : this.#reply(call);
    if (reply === 'hang up') socket.end();
    else if (reply !== 'say nothing') this.send(socket, Buffer.concat([int32(reply.length + 4), correlation, reply]));
  }

  #versions(): Buffer {
    const all = Array.from({ length: 70 }, (_, apiKey) => [apiKey, ...(this.versions[apiKey] ?? [0, 20])]);
    return Buffer.concat([int16(0), int32(all.length), ...all.flat().map((value) => int16(value)), int32(0)]);
  }
}

export function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}

export function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

export function int64(value: bigint | number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(value));
  return bytes;
}

export function text(value: string): Buffer {
  return Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
}
