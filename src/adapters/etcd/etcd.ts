import {
  castGrpcError,
  type Etcd3,
  EtcdInvalidAuthTokenError,
  EtcdLeaseInvalidError,
  type ICompare,
  type IKeyValue,
  type IRangeRequest,
  type IRequestOp,
  type LeaseClient,
} from 'etcd3';
import { IdallocError } from '../../errors.ts';
import {
  type Compare,
  type EtcdPort,
  type KeyOperation,
  type KeyPage,
  type KeyValue,
  MAX_OPERATIONS,
} from '../../identity/identity-ports.ts';
import { callLimits, type EtcdAccess, EtcdMember, type EtcdStatus, statusOf } from './member.ts';
import { errorText, isFinal, isRefusal, remedyOf } from './refusal.ts';
import { DEFAULT_ETCD_TIMING, type OnError, Rotation, type RotationTiming } from './rotation.ts';

const COMPACTED = /required revision has been compacted/;

export interface EtcdOptions extends EtcdAccess {
  /** host:port, optionally with http:// or https://. */
  readonly endpoints: readonly string[];
  readonly timing?: RotationTiming;
  /** Called for each endpoint that failed a call, even if another one served it. */
  readonly onError?: OnError;
  /** Called with an endpoint that had failed a call, and has answered one since. */
  readonly onReturn?: (endpoint: string) => void;
}

export interface ClosableEtcd extends EtcdPort {
  /**
   * Why the last call, or else the last write, failed; undefined when both succeeded. etcd may serve reads and refuse
   * writes.
   */
  readonly lastError: IdallocError | undefined;
  /** The status of each endpoint that answers. The errors of the others are reported as those of calls are. */
  statuses(): Promise<ReadonlyMap<string, EtcdStatus>>;
  /** Closes all connections; open calls fail. */
  close(): void;
}

/** What commands ask besides. */
export interface EtcdClient extends ClosableEtcd {
  /** Whether etcd still has the past of a key as of this revision; it does not if it was compacted since. */
  keeps(key: string, revision: bigint): Promise<boolean>;
}

/** Runs `use` with a client, which is closed afterwards. */
export async function withEtcd<T>(options: EtcdOptions, use: (etcd: EtcdClient) => Promise<T>): Promise<T> {
  const client = connectEtcd(options);
  try {
    return await use(client);
  } finally {
    client.close();
  }
}

/** EtcdPort over etcd3. Rotation decides which endpoint is called, and for how long. */
export function connectEtcd(options: EtcdOptions): EtcdClient {
  const timing = options.timing ?? DEFAULT_ETCD_TIMING;
  const members = options.endpoints.map((endpoint) => new EtcdMember(endpoint, options, timing));
  const { onError = () => {}, onReturn } = options;
  const rotation = new Rotation(
    members,
    timing,
    { isFinal, isRefusal, remedyOf, textOf: errorText },
    onError,
    onReturn,
  );
  let failedWrite: IdallocError | undefined;
  const limits = () => callLimits(timing);
  const run = <R>(what: string, use: (client: Etcd3, signal: AbortSignal) => Promise<R>): Promise<R> =>
    rotation.run(what, (member, signal) => member.call((client) => use(client, signal)));
  const write = async <R>(what: string, use: (client: Etcd3) => Promise<R>): Promise<R> => {
    try {
      const response = await run(what, use);
      failedWrite = undefined;
      return response;
    } catch (error) {
      failedWrite = error instanceof IdallocError ? error : undefined;
      throw error;
    }
  };

  return {
    async range(prefix, page) {
      const key = Buffer.from(prefix, 'utf8');
      const request = { key, range_end: endOfPrefix(key), ...(page && pageOf(page)) };
      const response = await run(`the range ${prefix}`, (client) => client.kv.range(request, limits()));
      return { revision: BigInt(response.header.revision), kvs: response.kvs.map(toKeyValue) };
    },

    async get(keys) {
      checkSize(keys.length);
      const request = { success: keys.map((key) => ({ request_range: { key: Buffer.from(key, 'utf8') } })) };
      const response = await run(readOf(keys), (client) => client.kv.txn(request, limits()));
      const found = response.responses.flatMap((response) => response.response_range.kvs.map(toKeyValue));
      return new Map(found.map((kv) => [kv.key, kv]));
    },

    async transact(compares, operations) {
      checkSize(Math.max(compares.length, operations.length));
      const request = { compare: compares.map(toCompare), success: operations.map(toOperation) };
      const response = await write('a transaction', (client) => client.kv.txn(request, limits()));
      return { succeeded: response.succeeded, revision: BigInt(response.header.revision) };
    },

    async grantLease(leaseId, ttlSeconds) {
      const request = { ID: String(leaseId), TTL: ttlSeconds };
      await write('a lease grant', (client) =>
        client.leaseClient.leaseGrant(request, limits()).catch((error: unknown) => {
          // The ID is random and ours: an existing lease with it is from an earlier attempt of this grant.
          if (!(error instanceof Error) || !error.message.includes('lease already exists')) throw error;
        }),
      );
    },

    keepAlive(leaseId) {
      return run('a keep-alive', (client, signal) => renewOnce(client.leaseClient, leaseId, limits(), signal));
    },

    async revokeLease(leaseId) {
      await run('a lease revocation', (client) =>
        client.leaseClient.leaseRevoke({ ID: String(leaseId) }, limits()).catch((error: unknown) => {
          if (!(error instanceof EtcdLeaseInvalidError)) throw error;
        }),
      );
    },

    keeps(key, revision) {
      const request = { key: Buffer.from(key, 'utf8'), revision: String(revision), count_only: true };
      return run(`a read of the past of ${key}`, (client) =>
        client.kv.range(request, limits()).then(
          () => true,
          (error: unknown) => {
            if (error instanceof Error && COMPACTED.test(error.message)) return false;
            throw error;
          },
        ),
      );
    },

    get lastError() {
      return rotation.lastError ?? failedWrite;
    },

    statuses() {
      return rotation.onEach('a status', (member) => statusOf(member, timing.callMs));
    },

    close() {
      for (const member of members) member.close();
    },
  };
}

function checkSize(operations: number): void {
  if (operations > MAX_OPERATIONS) {
    throw new RangeError(`etcd accepts at most ${MAX_OPERATIONS} operations in one transaction, not ${operations}`);
  }
}

function toKeyValue(kv: IKeyValue): KeyValue {
  return {
    key: kv.key.toString('utf8'),
    value: kv.value,
    createRevision: BigInt(kv.create_revision),
    modRevision: BigInt(kv.mod_revision),
    leaseId: BigInt(kv.lease),
  };
}

function toCompare(compare: Compare): ICompare {
  const key = Buffer.from(compare.key, 'utf8');
  if ('createRevision' in compare) {
    return { key, result: 'Equal', target: 'Create', create_revision: String(compare.createRevision) };
  }
  if ('modRevision' in compare) {
    return { key, result: 'Equal', target: 'Mod', mod_revision: String(compare.modRevision) };
  }
  return { key, result: 'Equal', target: 'Value', value: compare.value };
}

function pageOf({ from, limit }: KeyPage): Partial<IRangeRequest> {
  return { key: Buffer.from(from, 'utf8'), limit };
}

function toOperation(operation: KeyOperation): IRequestOp {
  if ('delete' in operation) return { request_delete_range: { key: Buffer.from(operation.delete, 'utf8') } };
  const put = { key: Buffer.from(operation.put, 'utf8'), value: operation.value };
  return { request_put: operation.leaseId === undefined ? put : { ...put, lease: String(operation.leaseId) } };
}

/** Names the first key, since a read may fail for missing permissions on it. */
function readOf([first = 'no key', ...more]: readonly string[]): string {
  return more.length === 0 ? `a read of ${first}` : `a read of ${first} and ${more.length} more`;
}

/** The first key after all keys with this prefix; for an empty prefix, or one of 0xff bytes only: all keys. */
function endOfPrefix(prefix: Buffer): Buffer {
  const last = prefix.findLastIndex((byte) => byte < 0xff);
  if (last < 0) return Buffer.from([0]);
  const end = Buffer.from(prefix.subarray(0, last + 1));
  end.writeUInt8(end.readUInt8(last) + 1, last);
  return end;
}

type CallOptions = NonNullable<Parameters<LeaseClient['leaseKeepAlive']>[0]>;

/**
 * Renews a lease once and returns its remaining seconds (0: the lease is gone). etcd offers this only as a stream, so a
 * stream is opened per renewal and closed on the response, on a failure, or when the signal aborts.
 *
 * etcd3 drops a rejected token after unary calls, but not after streams. So after such a failure, a unary call on the
 * same lease precedes the one retry.
 */
async function renewOnce(
  client: LeaseClient,
  leaseId: bigint,
  options: CallOptions,
  signal: AbortSignal,
): Promise<{ ttlSeconds: number }> {
  try {
    return await renewOverStream(client, leaseId, options, signal);
  } catch (error) {
    if (!(error instanceof EtcdInvalidAuthTokenError) || signal.aborted) throw error;
    await client.leaseTimeToLive({ ID: String(leaseId) }, options);
    return await renewOverStream(client, leaseId, options, signal);
  }
}

async function renewOverStream(
  client: LeaseClient,
  leaseId: bigint,
  options: CallOptions,
  signal: AbortSignal,
): Promise<{ ttlSeconds: number }> {
  const stream = await client.leaseKeepAlive(options);
  try {
    return await new Promise<{ ttlSeconds: number }>((resolve, reject) => {
      const aborted = () => reject(new Error('the call ended before the keep-alive was answered'));
      signal.addEventListener('abort', aborted, { once: true });
      stream.on('data', (response) => resolve({ ttlSeconds: Number(response.TTL) }));
      stream.on('error', (error) => reject(castGrpcError(error)));
      stream.on('end', () => reject(new Error('the keep-alive stream ended without a response')));
      if (signal.aborted) aborted();
      else stream.write({ ID: String(leaseId) });
    });
  } finally {
    // end() first: etcd3 treats an error on a writable stream as a broken host.
    stream.end();
    stream.cancel();
  }
}
