import { type GrpcProxy, startGrpcProxy } from './grpc-proxy.ts';
import type { SuiteServers } from './servers.ts';

const KEEP_ALIVE = '/etcdserverpb.Lease/LeaseKeepAlive';

/** The link from one worker to all etcd members, which a test can cut, silence or slow down for this worker alone. */
export class EtcdLink implements AsyncDisposable {
  readonly #proxies: readonly GrpcProxy[];
  /** The variables of the worker that uses this link. */
  readonly env: { readonly ETCD_ENDPOINTS: string };

  private constructor(proxies: readonly GrpcProxy[]) {
    this.#proxies = proxies;
    this.env = { ETCD_ENDPOINTS: proxies.map(({ endpoint }) => endpoint).join(',') };
  }

  static async open({ etcdEndpoints }: SuiteServers): Promise<EtcdLink> {
    return new EtcdLink(await Promise.all(etcdEndpoints.map(startGrpcProxy)));
  }

  /** Cuts all connections, and refuses new ones. */
  cut(): void {
    for (const proxy of this.#proxies) proxy.block();
  }

  /** Leaves calls without an answer; those sent meanwhile reach etcd after `heal`. */
  silence(): void {
    for (const proxy of this.#proxies) proxy.hold();
  }

  /** Delays each answer. */
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

  /** When the last answered keep-alive arrived at the proxy, just after the worker sent it. */
  lastKeepAliveMs(): number {
    return Math.max(0, ...this.#proxies.map((proxy) => proxy.lastServedMs(KEEP_ALIVE) ?? 0));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.heal();
    await Promise.all(this.#proxies.map((proxy) => proxy.close()));
  }
}
