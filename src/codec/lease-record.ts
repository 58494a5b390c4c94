import { describeError, IdallocError } from '../errors.ts';
import { parseExactObject, requireInteger, requireText } from './strict-json.ts';

/** The holder of a worker ID: the value of an owner key. Only for operators; nothing depends on it. */
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

/** UTF-8 JSON with exactly four fields; the time as ISO 8601 in UTC. RangeError for an invalid time. */
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

/** Decodes an owner key's value. Throws NAMESPACE_DAMAGED for anything that encodeLeaseRecord does not write. */
export function decodeLeaseRecord(value: Buffer): LeaseRecord {
  try {
    const fields = parseExactObject(value, KEYS);
    const grantedAtMs = Date.parse(requireText(fields, 'granted_at', UTC_TIME));
    if (Number.isNaN(grantedAtMs)) throw new TypeError('granted_at is not a valid time');
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
