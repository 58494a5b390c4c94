import { connect, createServer, type Server, type Socket } from 'node:net';

const HOST = '127.0.0.1';

/**
 * Forwards connections to a local port, and can fall silent: then connections stay open, or open, and carry nothing.
 */
export class SilentLink implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isSilent = false;

  private constructor(to: number) {
    this.#server = createServer((client) => {
      const server = connect(to, HOST);
      for (const [from, other] of [
        [client, server],
        [server, client],
      ] as const) {
        this.#sockets.add(from);
        from.on('data', (bytes) => other.write(bytes));
        from.on('error', () => undefined); // 'close' follows
        from.once('close', () => {
          this.#sockets.delete(from);
          other.destroy();
        });
        if (this.#isSilent) from.pause();
      }
    });
  }

  static async start(port: number, to: number): Promise<SilentLink> {
    const link = new SilentLink(to);
    await new Promise<void>((resolve, reject) => {
      link.#server.once('error', reject).listen(port, HOST, resolve);
    });
    return link;
  }

  silence(): void {
    this.#isSilent = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** What was sent meanwhile arrives now. */
  restore(): void {
    this.#isSilent = false;
    for (const socket of this.#sockets) socket.resume();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
