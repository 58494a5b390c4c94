import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

export interface ConnectionLimits {
  readonly maxConnections: number;
  /** Whether connections with a response in progress may be closed, too; for listeners whose responses take no time. */
  readonly shedsResponses?: boolean;
}

interface Connection {
  readonly socket: Socket;
  readonly address: string;
  readonly responsesInProgress: Set<ServerResponse>;
}

/**
 * The connections of one listener. Above the limit the slowest is closed: the one that has waited longest for a complete
 * request. So neither idle connections nor slow senders keep new clients out.
 */
export class Connections {
  readonly #limits: ConnectionLimits;
  readonly #onShed: () => void;
  readonly #all = new WeakMap<Duplex, Connection>();
  /** In the order in which they began to wait for a request, or to respond to one. */
  readonly #waiting = new Set<Connection>();
  readonly #responding = new Set<Connection>();
  /** By remote address: TLS puts a second socket on top of the connection's. */
  readonly #byAddress = new Map<string, Connection>();

  /** `onShed`: called for each connection that is closed or rejected because of the limit. */
  constructor(limits: ConnectionLimits, onShed: () => void) {
    this.#limits = limits;
    this.#onShed = onShed;
  }

  /** Accepts a connection, closing the slowest one if need be; rejects it when all others are being answered. */
  admit(socket: Socket): void {
    if (this.#waiting.size + this.#responding.size >= this.#limits.maxConnections) {
      this.#onShed();
      if (!this.#shed()) return void socket.destroy();
    }
    const connection = { socket, address: addressOf(socket), responsesInProgress: new Set<ServerResponse>() };
    this.#all.set(socket, connection);
    this.#byAddress.set(connection.address, connection);
    this.#waiting.add(connection);
    socket.once('close', () => this.#forget(connection));
  }

  /** The TLS handshake of an admitted connection is done: `socket` replaces its first one. */
  secured(socket: Socket): void {
    const connection = this.#byAddress.get(addressOf(socket));
    if (connection === undefined) socket.destroy();
    else this.#all.set(socket, connection);
  }

  has(socket: Duplex): boolean {
    return this.#all.has(socket);
  }

  cutAll(): void {
    for (const { socket } of [...this.#waiting, ...this.#responding]) socket.destroy();
  }

  /** Responses in progress on a connection. */
  responsesInProgress(socket: Duplex): ReadonlySet<ServerResponse> {
    return this.#all.get(socket)?.responsesInProgress ?? new Set();
  }

  /** A request's headers have arrived; until its body has, too, the connection counts as waiting. */
  requestStarted(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (connection === undefined) return;
    const { responsesInProgress } = connection;
    responsesInProgress.add(response);
    response.once('close', () => {
      responsesInProgress.delete(response);
      if (responsesInProgress.size > 0 || !this.#responding.delete(connection)) return;
      this.#waiting.add(connection);
    });
  }

  /** A request has arrived completely. */
  requestComplete(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (connection?.responsesInProgress.has(response) && this.#waiting.delete(connection))
      this.#responding.add(connection);
  }

  #shed(): boolean {
    const [slowest = this.#limits.shedsResponses ? first(this.#responding) : undefined] = this.#waiting;
    if (slowest === undefined) return false;
    this.#forget(slowest);
    slowest.socket.destroy();
    return true;
  }

  #forget(connection: Connection): void {
    this.#waiting.delete(connection);
    this.#responding.delete(connection);
    if (this.#byAddress.get(connection.address) === connection) this.#byAddress.delete(connection.address);
  }
}

function addressOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function first<T>([one]: Iterable<T>): T | undefined {
  return one;
}
