import type { Socket } from 'node:net';
import scram256 from 'kafkajs/src/broker/saslAuthenticator/scram256.js';
import scram512 from 'kafkajs/src/broker/saslAuthenticator/scram512.js';
import { returnMemory } from '../../core/slice.ts';
import type { ConnectionConfig, SocketFactory } from './connection-config.ts';
import { KafkaError } from './kafka-error.ts';
import {
  type ApiVersion,
  createSocketFactory,
  Encoder,
  type Entry,
  InnerConnection,
  type InnerLogger,
  type RequestQueue,
  typed,
} from './kafkajs-modules.ts';
import type { BrokerAddress } from './port.ts';

/** Callers have their own deadlines: this is the longest time that a timer can be set for. */
const NEVER_MS = 2 ** 31 - 1;
const SOONEST_RENEWAL_MS = 1_100;
/** The correlation number of the request, at the start of each response. */
const CORRELATION_BYTES = 4;

/**
 * kafkajs' connection, used once: connected, then ended, never reconnected. kafkajs opens the socket and handles SASL.
 * The bytes of requests, the table of those that are pending and the framing of responses are ours, and so is the raw
 * socket, so that destroying it ends everything.
 */
export class WireConnection extends InnerConnection {
  /** Resolves when the socket is gone; all requests have been rejected by then. */
  readonly ended: Promise<void>;
  readonly #inFlight: InFlight;
  readonly #frames = new Frames();
  readonly #opened: { socket?: Socket };
  readonly #onEnded: () => void;
  readonly #renewBeforeMs: number;
  readonly #saslNow: () => Promise<ConnectionConfig['sasl']>;
  #cause: Error | undefined;
  #login: Promise<void> | undefined;
  #hasLoggedIn = false;

  /** `saslNow`: the credentials for renewing the session. */
  constructor(
    address: BrokerAddress,
    config: ConnectionConfig,
    saslNow: () => Promise<ConnectionConfig['sasl']>,
    logger: InnerLogger,
  ) {
    const { socketFactory = createSocketFactory(), ssl, sasl, clientId } = config;
    const opened: { socket?: Socket; watch?: (socket: Socket) => void } = {};
    const open: SocketFactory = (args) => {
      const socket = socketFactory(args);
      opened.socket = socket;
      opened.watch?.(socket);
      return socket;
    };
    super({
      ...address,
      logger,
      socketFactory: open,
      ssl: ssl === true ? {} : ssl || null,
      sasl: sasl === undefined ? null : boundedLogin(sasl),
      clientId,
      connectionTimeout: NEVER_MS,
      requestTimeout: NEVER_MS,
      enforceRequestTimeout: false,
    });
    this.#saslNow = saslNow;
    opened.watch = (socket) => this.#watch(socket);
    this.#opened = opened;
    this.#renewBeforeMs = config.reauthenticationThreshold ?? this.reauthenticationThreshold;
    let onEnded = () => {};
    this.ended = new Promise((resolve) => {
      onEnded = resolve;
    });
    this.#onEnded = () => onEnded();
    this.#inFlight = new InFlight(() => this.end(new Error('a response that matches no request')));
    this.requestQueue = this.#inFlight;
  }

  /** Why it has ended or was never opened; undefined when the broker simply closed it. */
  get cause(): Error | undefined {
    return this.#cause;
  }

  /** Whether connecting has begun. It does not if the options of TLS can't be used. */
  get hasSocket(): boolean {
    return this.#opened.socket !== undefined;
  }

  /** Whether requests were pending when it ended. */
  get hasLost(): boolean {
    return this.#inFlight.lost > 0;
  }

  /** Destroys the socket immediately, which cancels connecting and all requests. */
  end(cause: Error): void {
    this.#cause ??= cause;
    const { socket } = this.#opened;
    // with an error, since only then kafkajs stops its timer and rejects `connect`
    if (socket === undefined) this.#onEnded();
    else if (!socket.destroyed) socket.destroy(cause);
  }

  /**
   * Whether a request may be sent; `authenticate` comes first if not. A session is renewed as long before its end as
   * configured, but not in its first half, and not in its first second, when a broker would reject that.
   */
  override isAuthenticated(): boolean {
    if (!this.sasl) return true;
    const lifetimeMs = Number(this.sessionLifetime);
    const latestMs = Math.max(0, Math.min(Math.floor(lifetimeMs / 2), lifetimeMs - SOONEST_RENEWAL_MS));
    this.reauthenticationThreshold = Math.min(this.#renewBeforeMs, latestMs);
    return super.isAuthenticated();
  }

  /** Logs in, or renews the session. Requests that wait for it share one login. */
  override authenticate(): Promise<void> {
    this.#login ??= this.#logIn().finally(() => {
      this.#login = undefined;
    });
    return this.#login;
  }

  async #logIn(): Promise<void> {
    // The password may have been replaced since the last login.
    const sasl = this.#hasLoggedIn ? await this.#saslNow() : undefined;
    if (sasl !== undefined) this.sasl = boundedLogin(sasl);
    await super.authenticate();
    this.#hasLoggedIn = true;
  }

  /**
   * Sends a request whose fields are these parts, and resolves to the fields of its response. The parts must not change
   * until then: large ones are not copied. kafkajs' own `send`, by which it logs in, copies a request three times, each
   * time into memory that it clears first. Rejects with CONNECTION_LOST when the connection is not open, or ends before
   * the response.
   */
  async request({ apiKey, apiVersion }: ApiVersion, parts: readonly Buffer[]): Promise<Buffer> {
    const { socket, clientId } = this;
    if (socket === undefined || !this.isConnected()) throw new KafkaError('CONNECTION_LOST', 'it is not connected');
    const correlationId = this.nextCorrelationId();
    const head = new Encoder().writeInt32(0).writeInt16(apiKey).writeInt16(apiVersion);
    const { buffer } = head.writeInt32(correlationId).writeString(clientId);
    buffer.writeInt32BE(parts.reduce((sum, { length }) => sum + length, buffer.length) - LENGTH_BYTES);
    const chunks = chunksOf([buffer, ...parts]);
    const sendRequest = () => {
      socket.cork(); // so that they leave together
      for (const chunk of chunks) socket.write(chunk);
      socket.uncork();
    };
    return await new Promise<Buffer>((resolve, reject) => {
      const entry: Entry = { correlationId, resolve: ({ payload }) => resolve(payload), reject };
      this.#inFlight.push({ entry, sendRequest });
    });
  }

  protected override processData(chunk: Buffer): void {
    try {
      for (const frame of this.#frames.push(chunk)) {
        this.#inFlight.fulfillRequest({
          correlationId: frame.readInt32BE(0),
          payload: frame.subarray(CORRELATION_BYTES),
          size: frame.length,
        });
      }
    } catch (error) {
      this.end(error as Error);
    }
  }

  #watch(socket: Socket): void {
    socket.setNoDelay(true);
    socket.once('error', (error) => {
      this.#cause ??= error;
    });
    socket.once('close', () => {
      this.#inFlight.rejectAll(this.#cause ?? new Error('the broker closed it'));
      this.#onEnded();
    });
  }
}

/** For as many bytes, another chunk costs a socket less than a copy costs here. */
const LARGE_BYTES = 16_384;

/** The parts of a request for a socket: large ones as they are, and what lies between them in one piece. */
function chunksOf(parts: readonly Buffer[]): readonly Buffer[] {
  const chunks: Buffer[][] = [[]];
  for (const part of parts) {
    if (part.length < LARGE_BYTES) chunks.at(-1)?.push(part);
    else chunks.push([part], []);
  }
  return chunks.flatMap((its) => (its.length > 1 ? Buffer.concat(its) : its));
}

/**
 * The requests of one connection that wait for their responses. Replaces kafkajs' queue, without its timers, wall-clock
 * time-outs and throttling: every request is sent immediately, and the cluster handles deadlines and throttling.
 */
export class InFlight implements RequestQueue {
  /** In the order of sending, which is that of the responses. Not a Map: see `Bag`. */
  #entries: Entry[] = [];
  readonly #onStray: () => void;
  #end: Error | undefined;
  #lost = 0;

  /** `onStray`: a response arrived that matches no request. */
  constructor(onStray: () => void) {
    this.#onStray = onStray;
  }

  /** How many requests were lost with the connection. */
  get lost(): number {
    return this.#lost;
  }

  push({ entry, sendRequest }: Parameters<RequestQueue['push']>[0]): void {
    if (this.#end !== undefined) throw this.#end;
    this.#entries.push(entry);
    sendRequest();
  }

  fulfillRequest({ correlationId, payload, size }: Parameters<RequestQueue['fulfillRequest']>[0]): void {
    const at = this.#entries.findIndex((one) => one.correlationId === correlationId);
    const [entry] = at === -1 ? [] : this.#entries.splice(at, 1);
    if (entry === undefined) this.#onStray();
    else entry.resolve({ correlationId, entry, size, payload });
  }

  /** The connection has ended: nothing more is sent. */
  rejectAll(cause: Error): void {
    this.#end ??= new KafkaError('CONNECTION_LOST', `the connection ended: ${cause.message}`, { cause });
    const entries = this.#entries;
    this.#entries = [];
    this.#lost += entries.length;
    for (const { reject } of entries) reject(this.#end);
  }

  async waitForPendingRequests(): Promise<void> {}
  maybeThrottle(): void {}
  scheduleRequestTimeoutCheck(): void {}
  destroy(): void {}
}

/** No response is larger: fetches ask for at most half of it. */
export const MAX_RESPONSE_BYTES = 100 * 1024 * 1024;

const LENGTH_BYTES = 4;
const EMPTY = Buffer.alloc(0);
/** A response begins with the correlation number of its request. */
const LEAST_BYTES = 4;
/** The first bytes of a TLS alert. */
const TLS_ALERT = Buffer.of(0x15, 0x03);

/**
 * Splits what a broker sends into responses: a length of 4 bytes, then as many bytes.
 *
 * A large response arrives in many chunks. Each is copied to its place, and its memory returned if it is its own.
 */
export class Frames {
  /** The beginning of a length. */
  #head: Buffer = EMPTY;
  /** The response that is incomplete, and how many bytes of it have arrived. */
  #open: { readonly frame: Buffer; filled: number } | undefined;

  /**
   * The responses that this chunk completes, without their lengths; views where they arrived in one piece. The chunk
   * must not be used afterwards. Throws MALFORMED_RESPONSE for an impossible length: nothing after it can be read.
   */
  push(chunk: Buffer): Buffer[] {
    const frames: Buffer[] = [];
    let rest = chunk;
    if (this.#open !== undefined) {
      const { frame } = this.#open;
      const copied = chunk.copy(frame, this.#open.filled);
      this.#open.filled += copied;
      if (this.#open.filled === frame.length) {
        this.#open = undefined;
        frames.push(frame);
      }
      rest = chunk.subarray(copied);
      if (rest.length === 0) {
        if (chunk.length >= LARGE_BYTES && chunk.length === chunk.buffer.byteLength) returnMemory(chunk);
        return frames;
      }
    } else if (this.#head.length > 0) {
      rest = Buffer.concat([this.#head, chunk]);
      this.#head = EMPTY;
    }
    while (rest.length >= LENGTH_BYTES) {
      const length = lengthAt(rest);
      const end = LENGTH_BYTES + length;
      if (end > rest.length) {
        // Of the memory of a response that never comes, the system provides none.
        const frame = Buffer.allocUnsafeSlow(length);
        this.#open = { frame, filled: rest.copy(frame, 0, LENGTH_BYTES) };
        return frames;
      }
      frames.push(rest.subarray(LENGTH_BYTES, end));
      rest = rest.subarray(end);
    }
    this.#head = rest;
    return frames;
  }
}

function lengthAt(bytes: Buffer): number {
  const length = bytes.readInt32BE();
  if (length >= LEAST_BYTES && length <= MAX_RESPONSE_BYTES) return length;
  const isTls = bytes.subarray(0, TLS_ALERT.length).equals(TLS_ALERT);
  throw new KafkaError('MALFORMED_RESPONSE', isTls ? 'it answers with TLS' : 'the server there is not a Kafka broker');
}

type Sasl = NonNullable<ConnectionConfig['sasl']>;

interface Exchange {
  /** Sends a message of the login; resolves with the fields of the broker's response. */
  readonly saslAuthenticate: (message: object) => Promise<{ readonly i?: string } | undefined>;
}

type Provider = (exchange: Exchange) => { authenticate(): Promise<void> };

const PROVIDERS: Readonly<Record<string, (sasl: Sasl) => Provider>> = {
  'SCRAM-SHA-256': typed<(sasl: Sasl) => Provider>(scram256),
  'SCRAM-SHA-512': typed<(sasl: Sasl) => Provider>(scram512),
};

/** Kafka's own maximum is 16,384. This many take a tenth of a second of one thread; a broker could demand 2^31. */
const MAX_ITERATIONS = 100_000;

/**
 * A copy of the login, which kafkajs may change. A SCRAM login fails if the broker demands more than MAX_ITERATIONS
 * rounds of hashing, before they are computed: whoever answers in a broker's place could occupy all of Node's threads
 * with them.
 */
function boundedLogin(sasl: Sasl): Sasl {
  const create = PROVIDERS[sasl.mechanism.toUpperCase()];
  if (create === undefined || 'authenticationProvider' in sasl) return { ...sasl };
  const authenticationProvider: Provider = ({ saslAuthenticate, ...more }) =>
    create(sasl)({
      ...more,
      saslAuthenticate: async (message) => requireFew(await saslAuthenticate(message)),
    });
  return { ...sasl, authenticationProvider } as Sasl;
}

function requireFew<T extends { readonly i?: string } | undefined>(response: T): T {
  const iterations = Number.parseInt(response?.i ?? '0', 10);
  if (iterations <= MAX_ITERATIONS) return response;
  throw new Error(
    `the broker demands ${iterations} iterations, at most ${MAX_ITERATIONS} are allowed: set the user's password again with fewer, and check that this is your broker`,
  );
}
