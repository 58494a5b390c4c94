import {
  EtcdAuthenticationFailedError,
  EtcdInvalidAuthTokenError,
  EtcdPermissionDeniedError,
  GRPCUnauthenticatedError,
} from 'etcd3';

const CERTIFICATES = 'check ETCD_CA, ETCD_CERT and ETCD_KEY, and how long the certificates are valid';

/** By what the error says, in OpenSSL's, Node's and etcd's words. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [/does not match certificate's altnames/i, 'let ETCD_ENDPOINTS name the hosts as their certificates do'],
  [/certificate|issuer|self.signed|tls|ssl/i, CERTIFICATES],
];

/** etcd does not accept the login: the password is wrong, or the token that it gave has ended. */
export function isLoginRefused(error: unknown): boolean {
  return (
    error instanceof EtcdAuthenticationFailedError ||
    error instanceof EtcdInvalidAuthTokenError ||
    error instanceof GRPCUnauthenticatedError ||
    (error instanceof Error && error.message.includes('revision of auth store is old'))
  );
}

/** What an operator has to do about an error that no waiting ends; undefined for one that may pass by itself. */
export function remedyOf(error: unknown): string | undefined {
  if (isLoginRefused(error)) return 'check ETCD_USERNAME and ETCD_PASSWORD';
  if (error instanceof EtcdPermissionDeniedError) {
    return 'allow ETCD_USERNAME to read and write the keys under ETCD_PREFIX, and the claim of its datacenter';
  }
  const said = error instanceof Error ? error.message : '';
  return REMEDIES.find(([pattern]) => pattern.test(said))?.[1];
}
