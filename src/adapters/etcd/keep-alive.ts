import { castGrpcError, EtcdInvalidAuthTokenError, type LeaseClient } from 'etcd3';

type CallOptions = NonNullable<Parameters<LeaseClient['leaseKeepAlive']>[0]>;

/**
 * Renews a lease once and returns its remaining seconds (0: the lease is gone). etcd offers this only as a stream, so a
 * stream is opened per renewal and closed on the response, on a failure, or when the signal aborts.
 *
 * etcd3 drops a rejected token after unary calls, but not after streams. So after such a failure, a unary call on the
 * same lease precedes the one retry.
 */
export async function renewOnce(
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
