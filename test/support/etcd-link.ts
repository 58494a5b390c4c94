import { type GrpcProxy, startGrpcProxy } from './grpc-proxy.ts';
import type { SuiteServers } from './servers.ts';

const KEEP_ALIVE = '/etcdserverpb.Lease/LeaseKeepAlive';

/** The way from one worker to all etcd members, which a test can cut, silence or slow down for this worker alone. */
export class EtcdLink implements AsyncDisposable {
  readonly #proxies: readonly GrpcProxy[];
  /** For the worker that goes this way. */
  readonly env: { readonly ETCD_ENDPOINTS: string };

  private constructor(proxies: readonly GrpcProxy[]) {
    this.#proxies = proxies;
    this.env = { ETCD_ENDPOINTS: proxies.map(({ endpoint }) => endpoint).join(',') };
  }

  static async open({ etcdEndpoints }: SuiteServers): Promise<EtcdLink> {
    return new EtcdLink(await Promise.all(etcdEndpoints.map(startGrpcProxy)));
  }

  /** Connections are cut and refused. */
  cut(): void {
    for (const proxy of this.#proxies) proxy.block();
  }

  /** Calls get no answer; those that come meanwhile reach etcd after `heal`. */
  silence(): void {
    for (const proxy of this.#proxies) proxy.hold();
  }

  /** Each answer comes so much later. */
  slow(delayMs: number): void {
    for (const proxy of this.#proxies) proxy.slow(delayMs);
  }

  heal(): void {
    for (const proxy of this.#proxies) {
      proxy.slow(0);
      proxy.unblock();
      proxy.release();
    }
  }

  /** When the last keep-alive came that was answered: at or after the moment in which the worker sent it. */
  lastKeepAliveMs(): number {
    return Math.max(0, ...this.#proxies.map((proxy) => proxy.lastServedMs(KEEP_ALIVE) ?? 0));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.heal();
    await Promise.all(this.#proxies.map((proxy) => proxy.close()));
  }
}
