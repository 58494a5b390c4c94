import { atMost } from '../../async/at-most.ts';
import { RUNTIME } from '../../runtime.ts';
import { DEFAULT_ETCD_TIMING, type EtcdOptions } from './etcd.ts';
import { EtcdMember } from './member.ts';

/** The status of one member of an etcd cluster. */
export interface EtcdStatus {
  readonly version: string;
  readonly isLeader: boolean;
  readonly hasLeader: boolean;
  readonly dbBytes: number;
  readonly latencyMs: number;
}

/** The status of one endpoint. Rejects with its error, or without a response within `timeoutMs`. */
export async function etcdStatus(endpoint: string, options: EtcdOptions, timeoutMs: number): Promise<EtcdStatus> {
  const member = new EtcdMember(endpoint, options, DEFAULT_ETCD_TIMING);
  try {
    const startedMs = performance.now();
    const response = member.call((client) => client.maintenance.status({ deadline: Date.now() + timeoutMs }));
    response.catch(() => undefined); // it may fail after the timeout
    const answered = await atMost(RUNTIME, timeoutMs, () => response);
    if (answered === undefined) throw new Error(`no response in ${timeoutMs} ms`);
    const { version, dbSize, leader, header } = answered;
    return {
      version,
      isLeader: leader === header.member_id,
      hasLeader: leader !== '0',
      dbBytes: Number(dbSize),
      latencyMs: performance.now() - startedMs,
    };
  } finally {
    member.close();
  }
}
