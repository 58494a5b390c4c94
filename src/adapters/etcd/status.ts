import { atMost } from '../../async/at-most.ts';
import { RUNTIME } from '../../runtime.ts';
import { callLimits, type EtcdAccess, EtcdMember } from './member.ts';
import { ALARM_REMEDIES, type EtcdAlarm } from './refusal.ts';
import { DEFAULT_ETCD_TIMING } from './rotation.ts';

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
