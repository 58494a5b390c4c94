import { connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** Hostile connections. Connections that the server cuts are not reopened. */
export class Flood {
  readonly #sockets: Socket[];

  constructor(
    port: number,
    connections: number,
    input: string | Buffer,
    reads: boolean,
    open: () => Socket = () => connect({ host: '127.0.0.1', port }),
  ) {
    this.#sockets = Array.from({ length: connections }, () => {
      const socket = open();
      socket.on('error', () => undefined); // a cut connection may come as a reset
      if (reads) socket.resume();
      socket.write(input);
      return socket;
    });
    onTestFinished(() => {
      for (const socket of this.#sockets) socket.destroy();
    });
  }

  get open(): number {
    return this.#sockets.filter((socket) => !socket.closed).length;
  }

  /** Resolves when the server has accepted or cut every connection. */
  async settled(): Promise<void> {
    await Promise.all(
      this.#sockets.map(
        (socket) =>
          new Promise<void>((resolve) => {
            if (socket.closed || socket.readyState === 'open') return resolve();
            socket.once('connect', resolve).once('close', () => resolve());
          }),
      ),
    );
  }
}
