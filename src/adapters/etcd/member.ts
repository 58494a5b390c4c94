import { rootCertificates } from 'node:tls';
import { Etcd3, type IOptions } from 'etcd3';
import { atMost } from '../../async/waiting.ts';
import type { Secret } from '../../core/secret.ts';
import { RUNTIME } from '../../runtime.ts';
import { ALARM_REMEDIES, type EtcdAlarm, isLoginRefused } from './refusal.ts';
import { DEFAULT_ETCD_TIMING, type Peer, type RotationTiming } from './rotation.ts';

/** TLS to endpoints that start with https://, all as PEM. */
export interface EtcdTls {
  /** CA certificates for etcd; without it, Node's bundled CAs. */
  readonly ca?: Secret | undefined;
  /** The client certificate. */
  readonly clientCertificate?: { readonly cert: Secret; readonly key: Secret } | undefined;
}

export interface EtcdAccess {
  readonly auth?: { readonly username: string; readonly password: Secret } | undefined;
  readonly tls?: EtcdTls | undefined;
}

type Policy = NonNullable<NonNullable<IOptions['faultHandling']>['global']>;

const NEVER = new AbortController().signal;
const unheard = () => ({ dispose: () => undefined });

/** Each call is made once, whatever became of those before. */
const once: Omit<Policy, '_altReturn'> = {
  execute: async <T>(call: (context: { signal: AbortSignal }) => PromiseLike<T> | T, signal = NEVER): Promise<T> =>
    await call({ signal }),
  onSuccess: unheard,
  onFailure: unheard,
};
/** The rest of a policy exists for types alone. */
const ONCE = once as Policy;

/** The current secrets. */
interface Credentials {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly password: string | undefined;
}

/**
 * One endpoint of etcd. Its client uses neither etcd3's retries nor its circuit breaker, which stop all calls when one
 * of several nodes is frozen.
 *
 * A client keeps its first certificates and password. So it is replaced when those change, and when etcd no longer
 * accepts its login: a change to any user or role may invalidate its token.
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

  /** A call rejected for its login was not executed, so it is retried once with a new login. */
  async call<R>(use: (client: Etcd3) => Promise<R>): Promise<R> {
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

  /** The old client is closed when its calls must have ended. */
  #replace(): void {
    const old = this.#client;
    setTimeout(() => old.close(), LAST_CALLS * this.#timing.callMs).unref();
    this.#credentials = credentialsOf(this.#access);
    this.#client = this.#connect();
  }

  #connect(): Etcd3 {
    const { auth } = this.#access;
    const { ca, cert, key, password } = this.#credentials;
    const settings: IOptions = {
      hosts: this.endpoint,
      faultHandling: { host: () => ONCE, global: ONCE },
      grpcOptions: {
        'grpc.keepalive_time_ms': 10_000,
        'grpc.keepalive_timeout_ms': this.#timing.callMs,
        'grpc.max_reconnect_backoff_ms': this.#timing.hedgeMs,
        // Otherwise gRPC obeys http_proxy, https_proxy and grpc_proxy, even to loopback; such a proxy seldom leads to
        // etcd.
        'grpc.enable_http_proxy': 0,
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

/** In multiples of the longest call. */
const LAST_CALLS = 3;

/** gRPC's deadline uses the wall clock, so it only cleans up calls that a timer ended long before. */
export function callLimits({ callMs }: Pick<RotationTiming, 'callMs'>): { deadline: number } {
  return { deadline: Date.now() + LAST_CALLS * callMs };
}

function credentialsOf({ auth, tls }: EtcdAccess): Credentials {
  return {
    ca: tls?.ca?.(),
    cert: tls?.clientCertificate?.cert(),
    key: tls?.clientCertificate?.key(),
    password: auth?.password(),
  };
}

function isSame(one: Credentials, other: Credentials): boolean {
  return (['ca', 'cert', 'key', 'password'] as const).every((name) => one[name] === other[name]);
}

/** The status of one member of an etcd cluster. */
export interface EtcdStatus {
  readonly version: string;
  readonly isLeader: boolean;
  readonly hasLeader: boolean;
  /** What counts against the quota; only defragmenting makes it smaller. */
  readonly dbBytes: number;
  /** The alarms of the cluster. */
  readonly alarms: readonly EtcdAlarm[];
  readonly latencyMs: number;
}

/** The status of one endpoint. Rejects with its error, or without a response within `timeoutMs`. */
export async function etcdStatus(endpoint: string, access: EtcdAccess, timeoutMs: number): Promise<EtcdStatus> {
  const member = new EtcdMember(endpoint, access, DEFAULT_ETCD_TIMING);
  try {
    return await statusOf(member, timeoutMs);
  } finally {
    member.close();
  }
}

/** Any user that etcd knows may ask for it. Rejects as `etcdStatus` does. */
export async function statusOf(member: EtcdMember, timeoutMs: number): Promise<EtcdStatus> {
  const startedMs = performance.now();
  const response = member.call((client) => client.maintenance.status(callLimits({ callMs: timeoutMs })));
  response.catch(() => undefined); // it may fail after the timeout
  const answered = await atMost(RUNTIME, timeoutMs, () => response);
  if (answered === undefined) throw new Error(`no response in ${timeoutMs} ms`);
  const { version, dbSize, leader, header, errors } = answered;
  return {
    version,
    isLeader: leader === header.member_id,
    hasLeader: leader !== '0',
    dbBytes: Number(dbSize),
    alarms: alarmsIn(errors),
    latencyMs: performance.now() - startedMs,
  };
}

/** Each alarm is a text such as "memberID:1 alarm:NOSPACE", for each member that raised it. */
function alarmsIn(errors: readonly string[]): EtcdAlarm[] {
  const known = Object.keys(ALARM_REMEDIES) as EtcdAlarm[];
  return known.filter((alarm) => errors.some((text) => new RegExp(`alarm:\\s*${alarm}`).test(text)));
}
