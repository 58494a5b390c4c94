import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Problem } from './problem.ts';

export interface ConnectionLimits {
  readonly maxConnections: number;
  /** Whether connections with a response in progress may be closed, too; for listeners whose responses take no time. */
  readonly shedsResponses?: boolean;
}

interface KeptConnection {
  readonly socket: Socket;
  readonly address: string;
  readonly responsesInProgress: Set<ServerResponse>;
  owner: Owner;
  /** It ends when no response is in progress. */
  isEnding: boolean;
}

/** The caller of the last request of its connections, or nobody. */
interface Owner {
  readonly name: string;
  readonly connections: Set<KeptConnection>;
  /** In the order in which they began to wait for a request. */
  readonly waiting: Set<KeptConnection>;
  /** Connections with a response in progress. */
  busy: number;
}

/** The owner of connections without an identified request. */
const NOBODY = '';

/**
 * The connections of one listener. Above the limit one is closed: of the owner that has most, the one that has waited
 * longest for a complete request. So neither idle connections nor slow senders keep new clients out, nor does one
 * caller close those of others.
 */
export class Connections {
  readonly #limits: ConnectionLimits;
  readonly #onShed: () => void;
  readonly #all = new WeakMap<Duplex, KeptConnection>();
  readonly #owners = new Map<string, Owner>();
  /** They are in the order in which they began to respond. */
  readonly #responding = new Set<KeptConnection>();
  /** The key is the remote address, since TLS puts a second socket on top of the connection's. */
  readonly #byAddress = new Map<string, KeptConnection>();
  #size = 0;
  #busy = 0;
  #inProgress = 0;

  /** `onShed`: called for each connection that is closed or rejected because of a limit. */
  constructor(limits: ConnectionLimits, onShed: () => void) {
    this.#limits = limits;
    this.#onShed = onShed;
  }

  /** Accepts a connection, closing another one if need be; rejects it when all others are being answered. */
  admit(socket: Socket): void {
    if (this.#size >= this.#limits.maxConnections) {
      this.#onShed();
      if (!this.#shed()) return void socket.destroy();
    }
    const owner = this.#ownerOf(NOBODY);
    const connection = {
      socket,
      address: addressOf(socket),
      responsesInProgress: new Set<ServerResponse>(),
      owner,
      isEnding: false,
    };
    this.#all.set(socket, connection);
    this.#byAddress.set(connection.address, connection);
    this.#size += 1;
    owner.connections.add(connection);
    owner.waiting.add(connection);
    socket.once('close', () => this.#forget(connection));
  }

  /** The TLS handshake of an admitted connection is done: `socket` replaces its first one. */
  secured(socket: Socket): void {
    const connection = this.#byAddress.get(addressOf(socket));
    if (connection === undefined) socket.destroy();
    else this.#all.set(socket, connection);
  }

  /** Open connections. */
  get size(): number {
    return this.#size;
  }

  /** Responses in progress on all connections. */
  get inProgress(): number {
    return this.#inProgress;
  }

  has(socket: Duplex): boolean {
    return this.#all.has(socket);
  }

  /** The caller of a connection's last request; empty without one. */
  ownerOf(socket: Duplex): string {
    return this.#all.get(socket)?.owner.name ?? NOBODY;
  }

  /** Rejects a connection that was not admitted. */
  refuse(socket: Socket): void {
    this.#onShed();
    socket.destroy();
  }

  /** Ends every connection: at once, or after the responses in progress on it. */
  endAll(): void {
    for (const { connections } of [...this.#owners.values()]) {
      for (const connection of [...connections]) {
        connection.isEnding = true;
        if (connection.responsesInProgress.size === 0) connection.socket.destroy();
      }
    }
  }

  isEnding(socket: Duplex): boolean {
    return this.#all.get(socket)?.isEnding === true;
  }

  cutAll(): void {
    for (const { connections } of [...this.#owners.values()]) {
      for (const { socket } of [...connections]) socket.destroy();
    }
  }

  /** Responses in progress on a connection. */
  responsesInProgress(socket: Duplex): ReadonlySet<ServerResponse> {
    return this.#all.get(socket)?.responsesInProgress ?? new Set();
  }

  /** A request's headers have arrived; until its body has, too, the connection counts as waiting. */
  requestStarted(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (connection === undefined || isGone(connection)) return;
    const { responsesInProgress } = connection;
    responsesInProgress.add(response);
    this.#inProgress += 1;
    if (responsesInProgress.size === 1) this.#countBusy(connection, 1);
    response.once('close', () => {
      responsesInProgress.delete(response);
      this.#inProgress -= 1;
      if (responsesInProgress.size > 0 || isGone(connection)) return;
      this.#countBusy(connection, -1);
      if (connection.isEnding) return void connection.socket.destroy();
      if (this.#responding.delete(connection)) connection.owner.waiting.add(connection);
    });
  }

  /** A request has arrived completely. */
  requestComplete(socket: Socket, response: ServerResponse): void {
    const connection = this.#all.get(socket);
    if (connection?.responsesInProgress.has(response) && connection.owner.waiting.delete(connection))
      this.#responding.add(connection);
  }

  /**
   * The request in progress on a connection is the caller's. A caller may have as many requests in progress as
   * connections are left beside all requests in progress, thus half of the limit if it is alone, so that others always
   * find some (dynamic thresholds of Choudhury and Hahne). Throws Problem 429 above that.
   */
  claim(socket: Socket, caller: string): void {
    const connection = this.#all.get(socket);
    if (connection === undefined || isGone(connection)) return;
    this.#move(connection, this.#ownerOf(caller));
    const others = connection.owner.busy - 1;
    if (others < this.#limits.maxConnections - (this.#busy - 1)) return;
    const detail = `this caller has ${others} other requests in progress, as many as its share of API_MAX_CONNECTIONS allows now: wait for responses, and read them`;
    throw new Problem(429, detail, { retryAfterSeconds: 1 });
  }

  #shed(): boolean {
    let largest: Owner | undefined;
    for (const owner of this.#owners.values()) {
      const isLarger = owner.connections.size > (largest?.connections.size ?? 0);
      if (owner.waiting.size > 0 && isLarger) largest = owner;
    }
    const [slowest = this.#limits.shedsResponses ? first(this.#responding) : undefined] = largest?.waiting ?? [];
    if (slowest === undefined) return false;
    this.#forget(slowest);
    slowest.socket.destroy();
    return true;
  }

  #ownerOf(name: string): Owner {
    const known = this.#owners.get(name);
    if (known !== undefined) return known;
    const owner: Owner = { name, connections: new Set(), waiting: new Set(), busy: 0 };
    this.#owners.set(name, owner);
    return owner;
  }

  #move(connection: KeptConnection, to: Owner): void {
    const from = connection.owner;
    if (from === to) return;
    const isBusy = connection.responsesInProgress.size > 0;
    from.connections.delete(connection);
    to.connections.add(connection);
    if (from.waiting.delete(connection)) to.waiting.add(connection);
    if (isBusy) from.busy -= 1;
    if (isBusy) to.busy += 1;
    connection.owner = to;
    if (from.connections.size === 0) this.#owners.delete(from.name);
  }

  #countBusy({ owner }: KeptConnection, change: 1 | -1): void {
    owner.busy += change;
    this.#busy += change;
  }

  #forget(connection: KeptConnection): void {
    const { owner } = connection;
    this.#responding.delete(connection);
    if (this.#byAddress.get(connection.address) === connection) this.#byAddress.delete(connection.address);
    owner.waiting.delete(connection);
    if (!owner.connections.delete(connection)) return;
    this.#size -= 1;
    if (connection.responsesInProgress.size > 0) this.#countBusy(connection, -1);
    if (owner.connections.size === 0) this.#owners.delete(owner.name);
  }
}

function isGone(connection: KeptConnection): boolean {
  return !connection.owner.connections.has(connection);
}

function addressOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function first<T>([one]: Iterable<T>): T | undefined {
  return one;
}
