import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

export interface ConnectionLimits {
  readonly maxConnections: number;
  /** Whether a connection may go though an answer is under way on it, where answers take no time as a rule. */
  readonly shedsAnswers?: boolean;
}

interface Connection {
  readonly socket: Socket;
  readonly address: string;
  readonly answers: Set<ServerResponse>;
}

/**
 * The connections of one listener. When there are too many the slowest goes: the one whose request has been awaited or
 * incomplete for the longest. So neither idle connections nor slow senders keep a newcomer out.
 */
export class Connections {
  readonly #limits: ConnectionLimits;
  readonly #onShed: () => void;
  readonly #all = new WeakMap<Duplex, Connection>();
  /** Each in the order in which it came to wait for a request, or to answer one. */
  readonly #waiting = new Set<Connection>();
  readonly #answering = new Set<Connection>();
  /** By the other side's address: TLS has a socket of its own on top of the connection's. */
  readonly #byAddress = new Map<string, Connection>();

  /** `onShed`: told of each connection that is cut or not taken for the limit. */
  constructor(limits: ConnectionLimits, onShed: () => void) {
    this.#limits = limits;
    this.#onShed = onShed;
  }

  /** Takes a connection in, at the price of the slowest one; cuts it when all others are being answered. */
  admit(socket: Socket): void {
    if (this.#waiting.size + this.#answering.size >= this.#limits.maxConnections) {
      this.#onShed();
      if (!this.#shed()) return void socket.destroy();
    }
    const connection = { socket, address: addressOf(socket), answers: new Set<ServerResponse>() };
    this.#all.set(socket, connection);
    this.#byAddress.set(connection.address, connection);
    this.#waiting.add(connection);
    socket.once('close', () => this.#forget(connection));
  }

  /** The handshake on an admitted connection is done: this is its socket from now on. */
  secured(socket: Socket): void {
    const connection = this.#byAddress.get(addressOf(socket));
    if (connection === undefined) socket.destroy();
    else this.#all.set(socket, connection);
  }

  has(socket: Duplex): boolean {
    return this.#all.has(socket);
  }

  cutAll(): void {
    for (const { socket } of [...this.#waiting, ...this.#answering]) socket.destroy();
  }

  /** Answers that are under way on a connection. */
  answers(socket: Duplex): ReadonlySet<ServerResponse> {
    return this.#all.get(socket)?.answers ?? new Set();
  }

  /** A request's headers are there; until its body is, too, the connection counts as a slow one. */
  asked(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (connection === undefined) return;
    const { answers } = connection;
    answers.add(response);
    response.once('close', () => {
      answers.delete(response);
      if (answers.size > 0 || !this.#answering.delete(connection)) return;
      this.#waiting.add(connection);
    });
  }

  /** A request is there as a whole. */
  complete(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (connection?.answers.has(response) && this.#waiting.delete(connection)) this.#answering.add(connection);
  }

  #shed(): boolean {
    const [slowest = this.#limits.shedsAnswers ? first(this.#answering) : undefined] = this.#waiting;
    if (slowest === undefined) return false;
    this.#forget(slowest);
    slowest.socket.destroy();
    return true;
  }

  #forget(connection: Connection): void {
    this.#waiting.delete(connection);
    this.#answering.delete(connection);
    if (this.#byAddress.get(connection.address) === connection) this.#byAddress.delete(connection.address);
  }
}

function addressOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function first<T>([one]: Iterable<T>): T | undefined {
  return one;
}
