import type { Socket } from 'node:net';
import scram256 from 'kafkajs/src/broker/saslAuthenticator/scram256.js';
import scram512 from 'kafkajs/src/broker/saslAuthenticator/scram512.js';
import type { ConnectionConfig, SocketFactory } from './connection-config.ts';
import { KafkaError } from './kafka-error.ts';
import {
  createSocketFactory,
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
 * kafkajs' connection, used once: connected, then ended, never reconnected. kafkajs handles SASL, request headers and
 * opening the socket. The table of pending requests and the framing of responses are ours, and so is the raw socket, so
 * that destroying it ends everything.
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
/** A response begins with the correlation number of its request. */
const LEAST_BYTES = 4;
/** The first bytes of a TLS alert. */
const TLS_ALERT = Buffer.of(0x15, 0x03);

/** Splits what a broker sends into responses: a length of 4 bytes, then as many bytes. */
export class Frames {
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** The bytes needed before the next response can be complete. */
  #needed = LENGTH_BYTES;

  /**
   * The responses that this chunk completes, without their lengths; views where they arrived in one piece. Throws
   * MALFORMED_RESPONSE for an impossible length: nothing after it can be read.
   */
  push(chunk: Buffer): Buffer[] {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#needed) return [];
    const bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    const frames: Buffer[] = [];
    let at = 0;
    this.#needed = LENGTH_BYTES;
    while (bytes.length - at >= LENGTH_BYTES) {
      const end = at + LENGTH_BYTES + lengthAt(bytes, at);
      if (end > bytes.length) {
        this.#needed = end - at;
        break;
      }
      frames.push(bytes.subarray(at + LENGTH_BYTES, end));
      at = end;
    }
    this.#chunks.length = 0;
    if (at < bytes.length) this.#chunks.push(bytes.subarray(at));
    this.#bytes = bytes.length - at;
    return frames;
  }
}

function lengthAt(bytes: Buffer, at: number): number {
  const length = bytes.readInt32BE(at);
  if (length >= LEAST_BYTES && length <= MAX_RESPONSE_BYTES) return length;
  const isTls = bytes.subarray(at, at + TLS_ALERT.length).equals(TLS_ALERT);
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
