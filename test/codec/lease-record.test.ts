import { describe, expect, it } from 'vitest';
import { decodeLeaseRecord, encodeLeaseRecord } from '../../src/codec/lease-record.ts';

const RECORD = {
  assignedWorkerIp: '10.0.0.7',
  leaseTtlSeconds: 30,
  heartbeatToken: 'a1b2',
  grantedAtMs: 1780416300123,
};
const TEXT =
  '{"assigned_worker_ip":"10.0.0.7","lease_ttl_seconds":30,"heartbeat_token":"a1b2","granted_at":"2026-06-02T16:05:00.123Z"}';

describe('a lease record', () => {
  it('is JSON with exactly the four documented fields', () => {
    expect(encodeLeaseRecord(RECORD).toString('utf8')).toBe(TEXT);
  });

  it('round-trips, with IPv6 too', () => {
    for (const assignedWorkerIp of ['10.0.0.7', '::1', 'fe80::1:2']) {
      expect(decodeLeaseRecord(encodeLeaseRecord({ ...RECORD, assignedWorkerIp }))).toEqual({
        ...RECORD,
        assignedWorkerIp,
      });
    }
  });

  it.each([
    ['is not JSON', 'x'],
    ['is not an object', '[1]'],
    ['is null', 'null'],
    ['lacks a field', TEXT.replace('"heartbeat_token":"a1b2",', '')],
    ['has a fifth field', TEXT.replace('{', '{"extra":1,')],
    ['has a field named __proto__', TEXT.replace('{', '{"__proto__":1,')],
    ['has a TTL of 0', TEXT.replace(':30', ':0')],
    ['has a TTL as text', TEXT.replace(':30', ':"30"')],
    ['has no IP address', TEXT.replace('10.0.0.7', 'host name')],
    ['has a time without a zone', TEXT.replace('Z"', '"')],
    ['has an invalid time', TEXT.replace('2026-06-02', '2026-13-02')],
    ['is too long', TEXT + ' '.repeat(5000)],
  ])('that %s is NAMESPACE_DAMAGED', (_, text) => {
    expect(() => decodeLeaseRecord(Buffer.from(text))).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });

  it('in invalid UTF-8 is NAMESPACE_DAMAGED', () => {
    const bytes = Buffer.from(TEXT);
    bytes[bytes.indexOf('a1b2')] = 0xff;
    expect(() => decodeLeaseRecord(bytes)).toThrow(expect.objectContaining({ code: 'NAMESPACE_DAMAGED' }));
  });
});
