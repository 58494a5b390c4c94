import {
  EtcdAuthenticationFailedError,
  EtcdInvalidAuthTokenError,
  EtcdLeaseInvalidError,
  EtcdPermissionDeniedError,
  GRPCInvalidArgumentError,
  GRPCUnauthenticatedError,
} from 'etcd3';
import { describeError } from '../../errors.ts';

const CERTIFICATES = 'check ETCD_CA, ETCD_CERT and ETCD_KEY, and when the certificates expire';

/** What an operator does about each alarm with which etcd refuses writes; with CORRUPT it refuses reads as well. */
export const ALARM_REMEDIES = {
  NOSPACE:
    "etcd's database has reached its quota (alarm NOSPACE): compact and defragment it, then disarm the alarm; " +
    'the runbook has the commands under ETCD_REFUSED',
  CORRUPT:
    'the data of one member of etcd differs from the others (alarm CORRUPT): replace that member, then disarm the alarm',
} as const;
export type EtcdAlarm = keyof typeof ALARM_REMEDIES;

const ALARMED = /database space exceeded|corrupt cluster/;
const OVERLOADED = /etcdserver: too many requests/;

/** By error message of OpenSSL, Node or etcd. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [/database space exceeded/, ALARM_REMEDIES.NOSPACE],
  [/corrupt cluster/, ALARM_REMEDIES.CORRUPT],
  [OVERLOADED, "etcd takes more writes than it can apply: check its members' disks, and who else writes to it"],
  [/does not match certificate's altnames/i, 'use host names in ETCD_ENDPOINTS that the certificates contain'],
  [/certificate|issuer|self.signed|tls|ssl/i, CERTIFICATES],
];

/** etcd rejected the login: the password is wrong, or the token has expired. */
export function isLoginRefused(error: unknown): boolean {
  return (
    error instanceof EtcdAuthenticationFailedError ||
    error instanceof EtcdInvalidAuthTokenError ||
    error instanceof GRPCUnauthenticatedError ||
    (error instanceof Error && error.message.includes('revision of auth store is old'))
  );
}

/** The cluster's answer: any other member would give the same one. */
export function isFinal(error: unknown): boolean {
  return (
    error instanceof EtcdLeaseInvalidError ||
    error instanceof EtcdPermissionDeniedError ||
    error instanceof EtcdAuthenticationFailedError ||
    error instanceof GRPCInvalidArgumentError ||
    (error instanceof Error && ALARMED.test(error.message))
  );
}

/**
 * Whether a member answered that it does not do what was asked, so that this call takes effect no later than with its
 * answer. It may have taken effect by then: the write with which the database reaches its quota is applied and refused.
 */
export function isRefusal(error: unknown): boolean {
  return isFinal(error) || isLoginRefused(error) || (error instanceof Error && OVERLOADED.test(error.message));
}

/** Whether a call failed because the login lacks a right. */
export function isDenied(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof EtcdPermissionDeniedError;
}

/** What gRPC says of calls that waited for a connection when it gave that up, since nothing answered on it. */
const GIVEN_UP = /Channel closed|Connection dropped/;

/** The error as an operator reads it. */
export function errorText(error: unknown): string {
  const text = describeError(error);
  return GIVEN_UP.test(text) ? 'no response' : text;
}

/** How an operator fixes an error that retries do not; undefined for a transient one. */
export function remedyOf(error: unknown): string | undefined {
  if (isLoginRefused(error)) return 'check ETCD_USERNAME and ETCD_PASSWORD';
  if (error instanceof EtcdPermissionDeniedError) {
    return 'grant ETCD_USERNAME read and write permission on the keys under ETCD_PREFIX, and on the claim of its datacenter';
  }
  const message = error instanceof Error ? error.message : '';
  return REMEDIES.find(([pattern]) => pattern.test(message))?.[1];
}
