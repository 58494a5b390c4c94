import type { Socket } from 'node:net';
import type { ConnectionConfig, SocketFactory } from './connection-config.ts';
import { Frames } from './frames.ts';
import { InFlight } from './in-flight.ts';
import { createSocketFactory, InnerConnection, type InnerLogger } from './kafkajs-modules.ts';
import type { BrokerAddress } from './port.ts';
import { boundedLogin } from './scram.ts';

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
