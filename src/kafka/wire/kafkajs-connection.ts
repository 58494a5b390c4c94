import type { Socket } from 'node:net';
import type { ISocketFactory, KafkaConfig } from 'kafkajs';
import { Frames } from './frames.ts';
import { InFlight } from './in-flight.ts';
import { Connection, createSocketFactory, type InnerLogger } from './kafkajs-modules.ts';
import type { BrokerAddress } from './port.ts';

/** Of kafkajs' configuration, what concerns connections. */
export type ConnectionConfig = Pick<
  KafkaConfig,
  'clientId' | 'ssl' | 'sasl' | 'socketFactory' | 'reauthenticationThreshold'
>;

/** Whoever dials has a deadline of its own: this is the longest that a timer can be set for. */
const NEVER_MS = 2 ** 31 - 1;
const SOONEST_RENEWAL_MS = 1_100;
/** A length that came first, then the number of the request that the answer is for. */
const CORRELATION_BYTES = 4;

/**
 * kafkajs' connection, used once: connected, then ended, never connected again. It keeps SASL, the head of each request
 * and the opening of the socket; the table of requests under way and the cutting of answers are ours, and the raw
 * socket is at hand, so that ending it is ending everything.
 */
export class WireConnection extends Connection {
  /** Resolves when there is no socket any more; all requests have been rejected by then. */
  readonly ended: Promise<void>;
  readonly #inFlight: InFlight;
  readonly #frames = new Frames();
  readonly #opened: { socket?: Socket };
  readonly #onEnded: () => void;
  readonly #renewBeforeMs: number;
  readonly #saslNow: () => ConnectionConfig['sasl'];
  #cause: Error | undefined;

  /** `saslNow`: what to log in with when the session is renewed. */
  constructor(
    address: BrokerAddress,
    config: ConnectionConfig,
    saslNow: () => ConnectionConfig['sasl'],
    logger: InnerLogger,
  ) {
    const { socketFactory = createSocketFactory(), ssl, sasl, clientId } = config;
    const opened: { socket?: Socket; watch?: (socket: Socket) => void } = {};
    const open: ISocketFactory = (args) => {
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
      // kafkajs writes into it
      sasl: sasl === undefined ? null : { ...sasl },
      ...(clientId === undefined ? {} : { clientId }),
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
    this.#inFlight = new InFlight(() => this.end(new Error('an answer to nothing that was asked')));
    this.requestQueue = this.#inFlight;
  }

  /** Why it has ended, or never came to be; undefined when the other side just closed it. */
  get cause(): Error | undefined {
    return this.#cause;
  }

  /** Whether requests were lost with it. */
  get hasLost(): boolean {
    return this.#inFlight.lost > 0;
  }

  /** Ends the socket at once, and with it the connecting and all requests. */
  end(cause: Error): void {
    this.#cause ??= cause;
    const { socket } = this.#opened;
    // with an error, for kafkajs stops its timer and rejects `connect` only then
    if (socket === undefined) this.#onEnded();
    else if (!socket.destroyed) socket.destroy(cause);
  }

  /**
   * Asked before each request, which waits for a login otherwise; without one there is nothing to wait for. A session is
   * renewed so long before its end as is configured, but no earlier than after half of it, and not within its first
   * second, when a broker refuses that.
   */
  override isAuthenticated(): boolean {
    if (!this.sasl) return true;
    const lifetimeMs = Number(this.sessionLifetime);
    const latestMs = Math.max(0, Math.min(Math.floor(lifetimeMs / 2), lifetimeMs - SOONEST_RENEWAL_MS));
    this.reauthenticationThreshold = Math.min(this.#renewBeforeMs, latestMs);
    if (super.isAuthenticated()) return true;
    const sasl = this.#saslNow(); // the password may have been replaced since the last login
    if (sasl !== undefined) this.sasl = { ...sasl };
    return false;
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
      this.#inFlight.rejectAll(this.#cause ?? new Error('the other side closed it'));
      this.#onEnded();
    });
  }
}
