import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { type HostPort, parseHostPort } from '../../src/core/host-port.ts';
import type { SuiteServers } from './servers.ts';

/** A Kafka request that passes the proxy: the frame without its length. */
export interface KafkaRequest {
  readonly apiKey: number;
  readonly bytes: Buffer;
}

type Matches = (request: KafkaRequest) => boolean;

const PRODUCE = 0;
/** Metadata, FindCoordinator and DescribeCluster: their answers name brokers. */
const NAMES_BROKERS: ReadonlySet<number> = new Set([3, 10, 60]);
const CORRELATION_AT = 8;
const ANSWERED_AT = 4;
const PORT_BYTES = 4;
const HOST = '127.0.0.1';

/** A produce request to this topic, whose length Kafka puts before its name in two bytes. */
export function isProduceTo(topic: string): Matches {
  const name = Buffer.concat([Buffer.of(topic.length >> 8, topic.length & 0xff), Buffer.from(topic)]);
  return ({ apiKey, bytes }) => apiKey === PRODUCE && bytes.includes(name);
}

/** A fault of a request or of its answer. */
interface Fault {
  readonly kind: 'delay-answer' | 'hold-request';
  readonly matches: Matches;
  /** Requests that it still applies to. */
  left: number;
  readonly delayMs: number;
  readonly met: () => void;
  /** Resolves when held requests may continue. */
  readonly released: Promise<void>;
}

/**
 * A proxy between one worker and the broker, in the test's own process. It splits both streams into Kafka's frames, so
 * that a fault can apply to the answer of a certain request: the broker has executed it, and the worker can't know. In
 * answers that name the broker it puts its own port, so that its clients stay behind it; a broker can have any number
 * of proxies.
 */
export class TcpProxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #target: HostPort;
  /** How an answer names the broker: its host, and its port in four bytes. */
  readonly #name: Buffer;
  readonly #sockets = new Set<Socket>();
  readonly #faults: Fault[] = [];
  #port = 0;
  #isCut = false;

  private constructor(target: string) {
    this.#target = parseHostPort(target);
    const { host, port } = this.#target;
    this.#name = Buffer.concat([Buffer.from(host), Buffer.alloc(PORT_BYTES)]);
    this.#name.writeInt32BE(port, host.length);
    this.#server = createServer((client) => this.#serve(client));
  }

  /** A proxy in front of the one broker of these servers. */
  static async start({ brokers: [broker = ''] }: Pick<SuiteServers, 'brokers'>): Promise<TcpProxy> {
    const proxy = new TcpProxy(broker);
    await new Promise<void>((resolve, reject) => {
      proxy.#server.once('error', reject).listen(0, HOST, resolve);
    });
    proxy.#port = (proxy.#server.address() as AddressInfo).port;
    return proxy;
  }

  /** host:port, for the clients of this proxy. */
  get address(): string {
    return `${HOST}:${this.#port}`;
  }

  /** Delays the answers to the next `times` requests; resolves when the last of these answers has arrived. */
  delayAnswers(matches: Matches, times: number, delayMs: number): Promise<void> {
    return this.#add('delay-answer', matches, times, { delayMs });
  }

  /** Holds the next request, and all after it on its connection, until `released`; resolves when it has arrived. */
  holdRequest(matches: Matches, released: Promise<void>): Promise<void> {
    return this.#add('hold-request', matches, 1, { released });
  }

  /** Cuts all connections, and each new one immediately. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  restore(): void {
    this.#isCut = false;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  /** Puts the proxy's port in the place of the broker's. */
  #rename(answer: Buffer): void {
    for (let at = answer.indexOf(this.#name); at >= 0; at = answer.indexOf(this.#name, at + 1)) {
      answer.writeInt32BE(this.#port, at + this.#name.length - PORT_BYTES);
    }
  }

  #add(
    kind: Fault['kind'],
    matches: Matches,
    times: number,
    more: { readonly delayMs?: number; readonly released?: Promise<void> } = {},
  ): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    let unmet = times;
    const met = () => {
      unmet -= 1;
      if (unmet === 0) resolve();
    };
    this.#faults.push({ kind, matches, left: times, delayMs: 0, released: Promise.resolve(), ...more, met });
    return promise;
  }

  #take(request: KafkaRequest): Fault | undefined {
    const fault = this.#faults.find(({ left, matches }) => left > 0 && matches(request));
    if (fault !== undefined) fault.left -= 1;
    return fault;
  }

  #serve(client: Socket): void {
    if (this.#isCut) {
      client.destroy();
      return;
    }
    const broker = connect(this.#target);
    const faults = new Map<number, Fault>();
    const naming = new Set<number>();
    const cut = () => {
      client.destroy();
      broker.destroy();
      for (const fault of faults.values()) fault.met(); // other answers that were in flight on the connection
      faults.clear();
    };
    for (const socket of [client, broker]) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.once('error', cut).once('close', () => {
        this.#sockets.delete(socket);
        cut();
      });
    }
    passOn(client, broker, async (frame) => {
      const apiKey = frame.readInt16BE(4);
      if (NAMES_BROKERS.has(apiKey)) naming.add(frame.readInt32BE(CORRELATION_AT));
      const fault = this.#take({ apiKey, bytes: frame.subarray(4) });
      if (fault?.kind === 'hold-request') {
        fault.met();
        await fault.released;
      } else if (fault !== undefined) {
        faults.set(frame.readInt32BE(CORRELATION_AT), fault);
      }
    });
    passOn(broker, client, async (frame) => {
      const answered = frame.readInt32BE(ANSWERED_AT);
      if (naming.delete(answered)) this.#rename(frame);
      const fault = faults.get(answered);
      if (fault === undefined) return;
      faults.delete(answered);
      fault.met();
      await new Promise((resolve) => setTimeout(resolve, fault.delayMs));
    });
  }
}

/** Passes frames on in order, each once `before` has resolved. */
function passOn(from: Socket, to: Socket, before: (frame: Buffer) => Promise<void>): void {
  let rest = Buffer.alloc(0);
  let turn = Promise.resolve();
  from.on('data', (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0)) {
      const frame = rest.subarray(0, 4 + rest.readInt32BE(0));
      rest = rest.subarray(frame.length);
      turn = turn.then(async () => {
        await before(frame);
        if (!to.destroyed) to.write(frame);
      });
    }
  });
}
