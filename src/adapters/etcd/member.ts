import { rootCertificates } from 'node:tls';
import { NoopPolicy } from 'cockatiel';
import { Etcd3, type IOptions } from 'etcd3';
import type { Secret } from '../../core/secret.ts';
import { isLoginRefused } from './refusal.ts';
import type { Peer, RotationTiming } from './rotation.ts';

/** TLS to endpoints that start with https://, all as PEM. */
export interface EtcdTls {
  /** Those who sign the certificates of etcd; without it, those that Node brings. */
  readonly ca?: Secret;
  /** What is shown to etcd. */
  readonly own?: { readonly cert: Secret; readonly key: Secret };
}

export interface EtcdAccess {
  readonly auth?: { readonly username: string; readonly password: Secret };
  readonly tls?: EtcdTls;
}

/** The secrets of one moment. */
interface Credentials {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly password: string | undefined;
}

/**
 * One endpoint of etcd. Its client has neither etcd3's retries nor its circuit breaker: those stop asking altogether when
 * one of several nodes is frozen.
 *
 * A client keeps the certificates and the password that it was made with. So it is replaced when those have changed, and
 * when etcd no longer accepts its login: a token may have been ended by a change to any user or role.
 */
export class EtcdMember implements Peer {
  readonly endpoint: string;
  readonly #access: EtcdAccess;
  readonly #timing: RotationTiming;
  #client: Etcd3;
  #credentials: Credentials;

  constructor(endpoint: string, access: EtcdAccess, timing: RotationTiming) {
    this.endpoint = endpoint;
    this.#access = access;
    this.#timing = timing;
    this.#credentials = credentialsOf(access);
    this.#client = this.#connect();
  }

  /** A call that is refused for its login has not been carried out, so it is tried once more, with a new login. */
  async ask<R>(use: (client: Etcd3) => Promise<R>): Promise<R> {
    if (!isSame(this.#credentials, credentialsOf(this.#access))) this.#replace();
    const client = this.#client;
    try {
      return await use(client);
    } catch (error) {
      if (!isLoginRefused(error) || this.#access.auth === undefined) throw error;
      if (this.#client === client) this.#replace();
      return await use(this.#client);
    }
  }

  close(): void {
    this.#client.close();
  }

  /** Calls under way on the old client are over by the time that it is closed. */
  #replace(): void {
    const old = this.#client;
    setTimeout(() => old.close(), LAST_CALLS * this.#timing.callMs).unref();
    this.#credentials = credentialsOf(this.#access);
    this.#client = this.#connect();
  }

  #connect(): Etcd3 {
    const noop = new NoopPolicy();
    const { auth } = this.#access;
    const { ca, cert, key, password } = this.#credentials;
    const settings: IOptions = {
      hosts: this.endpoint,
      faultHandling: { host: () => noop, global: noop },
      grpcOptions: {
        'grpc.keepalive_time_ms': 10_000,
        'grpc.keepalive_timeout_ms': this.#timing.callMs,
        'grpc.max_reconnect_backoff_ms': this.#timing.hedgeMs,
      },
    };
    if (this.endpoint.startsWith('https://')) {
      settings.credentials = {
        rootCertificate: Buffer.from(ca ?? rootCertificates.join('\n')),
        ...(cert === undefined || key === undefined
          ? {}
          : { certChain: Buffer.from(cert), privateKey: Buffer.from(key) }),
      };
    }
    if (auth !== undefined && password !== undefined) {
      settings.auth = { username: auth.username, password, callOptions: () => callLimits(this.#timing) };
    }
    return new Etcd3(settings);
  }
}

/** Times the longest call. */
const LAST_CALLS = 3;

/** gRPC's own deadline is by the wall clock: it only tidies up what Rotation's timers have given up long before. */
export function callLimits(timing: RotationTiming): { deadline: number } {
  return { deadline: Date.now() + LAST_CALLS * timing.callMs };
}

function credentialsOf({ auth, tls }: EtcdAccess): Credentials {
  return { ca: tls?.ca?.(), cert: tls?.own?.cert(), key: tls?.own?.key(), password: auth?.password() };
}

function isSame(one: Credentials, other: Credentials): boolean {
  return (['ca', 'cert', 'key', 'password'] as const).every((name) => one[name] === other[name]);
}
