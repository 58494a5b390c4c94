import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

const HEAD_END = Buffer.from('\r\n\r\n');

/**
 * A connection that is kept and sends one request again and again, one at a time. The usual clients of Node cost
 * several times what an answer costs the server, and would be what is measured.
 */
export class HttpLane implements Disposable {
  readonly #socket: Socket;
  /** The request up to the empty line that ends its head. */
  readonly #request: string;
  /** Bytes of the response's body that have not come yet; undefined before its head is complete. */
  #left: number | undefined;
  #head: Buffer = Buffer.alloc(0);
  #answered = Promise.withResolvers<void>();

  private constructor(socket: Socket, request: string) {
    this.#socket = socket;
    this.#request = request;
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    socket.on('error', (error) => this.#answered.reject(error));
    socket.on('close', () => this.#answered.reject(new Error('the server closed the connection')));
    this.#answered.promise.catch(() => undefined);
  }

  /** `path`: with the query. */
  static async open(url: string, method: 'GET' | 'POST', path: string): Promise<HttpLane> {
    const { hostname: host, port } = new URL(url);
    const socket = connect({ host, port: Number(port), noDelay: true });
    await once(socket, 'connect');
    const length = method === 'POST' ? 'Content-Length: 0\r\n' : '';
    return new HttpLane(socket, `${method} ${path} HTTP/1.1\r\nHost: ${host}:${port}\r\n${length}`);
  }

  /**
   * Sends the request, with these more lines of its head. Resolves when the response was read. Rejects for another
   * status than 200, and for a body without a length.
   */
  async ask(more = ''): Promise<void> {
    this.#answered = Promise.withResolvers();
    this.#socket.write(`${this.#request}${more}\r\n`, 'latin1');
    await this.#answered.promise;
  }

  [Symbol.dispose](): void {
    this.#answered.promise.catch(() => undefined);
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    if (this.#left === undefined) {
      this.#head = this.#head.length === 0 ? chunk : Buffer.concat([this.#head, chunk]);
      const end = this.#head.indexOf(HEAD_END);
      if (end < 0) return;
      const head = this.#head.toString('latin1', 0, end);
      const length = /^content-length: (\d+)$/im.exec(head)?.[1];
      if (!head.startsWith('HTTP/1.1 200 ') || length === undefined) {
        const [status] = head.split('\r\n', 1);
        return void this.#answered.reject(new Error(`a response without success, or without a length: ${status}`));
      }
      this.#left = Number(length) - (this.#head.length - end - HEAD_END.length);
      this.#head = Buffer.alloc(0);
    } else this.#left -= chunk.length;
    if (this.#left > 0) return;
    this.#left = undefined;
    this.#answered.resolve();
  }
}
