import {
  EtcdAuthenticationFailedError,
  EtcdInvalidAuthTokenError,
  EtcdPermissionDeniedError,
  GRPCUnauthenticatedError,
} from 'etcd3';

const CERTIFICATES = 'check ETCD_CA, ETCD_CERT and ETCD_KEY, and when the certificates expire';

/** By error message of OpenSSL, Node or etcd. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
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

/** How an operator fixes an error that retries do not; undefined for a transient one. */
export function remedyOf(error: unknown): string | undefined {
  if (isLoginRefused(error)) return 'check ETCD_USERNAME and ETCD_PASSWORD';
  if (error instanceof EtcdPermissionDeniedError) {
    return 'grant ETCD_USERNAME read and write permission on the keys under ETCD_PREFIX, and on the claim of its datacenter';
  }
  const message = error instanceof Error ? error.message : '';
  return REMEDIES.find(([pattern]) => pattern.test(message))?.[1];
}
