import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { SuiteServers } from './servers.ts';

/** A member of etcd behind a port of its own. */
interface Door {
  readonly server: Server;
  readonly sockets: Set<Socket>;
}

/**
 * The link from one worker to all etcd members, which a test can cut, silence or slow down for this worker alone. It
 * carries bytes, so that a fault looks to the worker as one of the network does.
 */
export class EtcdLink implements AsyncDisposable {
  readonly #doors: Door[] = [];
  #isCut = false;
  #delayMs = 0;
  /** What is sent meanwhile arrives when this resolves. */
  #held: PromiseWithResolvers<void> | undefined;

  static async open({ etcdEndpoints }: SuiteServers): Promise<EtcdLink> {
    const link = new EtcdLink();
    for (const endpoint of etcdEndpoints) await link.#add(new URL(endpoint));
    return link;
  }

  /** The variables of the worker that uses this link. */
  get env(): { readonly ETCD_ENDPOINTS: string } {
    const ports = this.#doors.map(({ server }) => (server.address() as AddressInfo).port);
    return { ETCD_ENDPOINTS: ports.map((port) => `http://127.0.0.1:${port}`).join(',') };
  }

  /** Cuts all connections, and each new one. */
  cut(): void {
    this.#isCut = true;
    for (const { sockets } of this.#doors) for (const socket of sockets) socket.destroy();
  }

  /** Leaves calls without an answer; those sent meanwhile reach etcd after `heal`. */
  silence(): void {
    this.#held ??= Promise.withResolvers<void>();
  }

  /** Delays each answer. */
  slow(delayMs: number): void {
    this.#delayMs = delayMs;
  }

  heal(): void {
    [this.#isCut, this.#delayMs] = [false, 0];
    this.#held?.resolve();
    this.#held = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#held?.resolve();
    await Promise.all(this.#doors.map(({ server }) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }

  async #add({ hostname, port }: URL): Promise<void> {
    const sockets = new Set<Socket>();
    const server = createServer((worker) => {
      if (this.#isCut) return void worker.destroy();
      const etcd = connect(Number(port), hostname);
      for (const [socket, other] of [
        [worker, etcd],
        [etcd, worker],
      ] as const) {
        sockets.add(socket.setNoDelay(true));
        socket
          .once('error', () => other.destroy())
          .once('close', () => {
            sockets.delete(socket);
            other.destroy();
          });
      }
      this.#carry(worker, etcd, () => 0);
      this.#carry(etcd, worker, () => this.#delayMs);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.#doors.push({ server, sockets });
  }

  /** Passes bytes on in order, each chunk when its delay is over and nothing is held. */
  #carry(from: Socket, to: Socket, delayMs: () => number): void {
    let before = Promise.resolve();
    from.on('data', (chunk) => {
      const due = pause(delayMs());
      before = before.then(async () => {
        await due;
        await this.#held?.promise;
        if (!to.destroyed) to.write(chunk);
      });
    });
  }
}
