import { castGrpcError, EtcdInvalidAuthTokenError, type LeaseClient } from 'etcd3';

type CallOptions = NonNullable<Parameters<LeaseClient['leaseKeepAlive']>[0]>;

/**
 * Renews a lease once and tells the seconds it has now (0: it is gone). etcd offers this only as a stream, so one is
 * opened for one question and torn down on the answer, on a failure, or when the signal aborts.
 *
 * Over streams etcd3 does not drop a token that the server no longer takes; it does so for plain calls. So after that
 * one failure a plain call on the same lease goes first, and the question is asked once more.
 */
export async function renewOnce(
  client: LeaseClient,
  leaseId: bigint,
  options: CallOptions,
  signal: AbortSignal,
): Promise<{ ttlSeconds: number }> {
  try {
    return await askStream(client, leaseId, options, signal);
  } catch (error) {
    if (!(error instanceof EtcdInvalidAuthTokenError) || signal.aborted) throw error;
    await client.leaseTimeToLive({ ID: String(leaseId) }, options);
    return await askStream(client, leaseId, options, signal);
  }
}

async function askStream(
  client: LeaseClient,
  leaseId: bigint,
  options: CallOptions,
  signal: AbortSignal,
): Promise<{ ttlSeconds: number }> {
  const stream = await client.leaseKeepAlive(options);
  try {
    return await new Promise<{ ttlSeconds: number }>((resolve, reject) => {
      const aborted = () => reject(new Error('the call was over before the keep-alive was answered'));
      signal.addEventListener('abort', aborted, { once: true });
      stream.on('data', (answer) => resolve({ ttlSeconds: Number(answer.TTL) }));
      stream.on('error', (error) => reject(castGrpcError(error)));
      stream.on('end', () => reject(new Error('the keep-alive stream ended without an answer')));
      if (signal.aborted) aborted();
      else stream.write({ ID: String(leaseId) });
    });
  } finally {
    // end() comes first: etcd3 takes an error on a stream that is still writable for a broken host.
    stream.end();
    stream.cancel();
  }
}
