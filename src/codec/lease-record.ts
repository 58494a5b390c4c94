import { describeError, IdallocError } from '../errors.ts';
import { parseExactObject, requireInteger, requireText } from './strict-json.ts';

/** Who holds a worker ID: the value of an owner key, for operators to read. Nothing is decided by it. */
export interface LeaseRecord {
  readonly assignedWorkerIp: string;
  readonly leaseTtlSeconds: number;
  readonly heartbeatToken: string;
  /** Wall milliseconds. */
  readonly grantedAtMs: number;
}

const KEYS = ['assigned_worker_ip', 'lease_ttl_seconds', 'heartbeat_token', 'granted_at'] as const;
const IP = /^[0-9A-Fa-f.:]{2,45}$/;
const TOKEN = /^[\x21-\x7e]{1,128}$/;
const UTC_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

/** UTF-8 JSON with exactly four fields; the time as ISO 8601 in UTC. RangeError for a time that is none. */
export function encodeLeaseRecord(record: LeaseRecord): Buffer {
  return Buffer.from(
    JSON.stringify({
      assigned_worker_ip: record.assignedWorkerIp,
      lease_ttl_seconds: record.leaseTtlSeconds,
      heartbeat_token: record.heartbeatToken,
      granted_at: new Date(record.grantedAtMs).toISOString(),
    }),
  );
}

/** The record in an owner key's value. Throws NAMESPACE_DAMAGED when it is not one that encodeLeaseRecord writes. */
export function decodeLeaseRecord(value: Buffer): LeaseRecord {
  try {
    const fields = parseExactObject(value, KEYS);
    const grantedAtMs = Date.parse(requireText(fields, 'granted_at', UTC_TIME));
    if (Number.isNaN(grantedAtMs)) throw new TypeError('granted_at is no moment');
    return {
      assignedWorkerIp: requireText(fields, 'assigned_worker_ip', IP),
      leaseTtlSeconds: requireInteger(fields, 'lease_ttl_seconds', 1),
      heartbeatToken: requireText(fields, 'heartbeat_token', TOKEN),
      grantedAtMs,
    };
  } catch (error) {
    throw new IdallocError('NAMESPACE_DAMAGED', `a lease record can't be read: ${describeError(error)}`, {
      cause: error,
    });
  }
}
