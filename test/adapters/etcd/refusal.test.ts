import { EtcdAuthenticationFailedError, EtcdInvalidAuthTokenError, EtcdPermissionDeniedError } from 'etcd3';
import { expect, it } from 'vitest';
import { remedyOf } from '../../../src/adapters/etcd/refusal.ts';

it.each([
  ['a wrong password', new EtcdAuthenticationFailedError('no'), /ETCD_USERNAME and ETCD_PASSWORD/],
  ['an expired token', new EtcdInvalidAuthTokenError('no'), /ETCD_PASSWORD/],
  ['rights that changed', new Error('3 INVALID_ARGUMENT: etcdserver: revision of auth store is old'), /ETCD_PASSWORD/],
  ['a missing right', new EtcdPermissionDeniedError('no'), /grant ETCD_USERNAME .*ETCD_PREFIX/],
  ['an unknown certificate authority', new Error('unable to verify the first certificate'), /ETCD_CA/],
  ['an expired certificate', new Error('certificate has expired'), /ETCD_CA.*expire/],
  ['another host', new Error("Hostname/IP does not match certificate's altnames: IP: 127.0.0.1"), /ETCD_ENDPOINTS/],
] as const)('%s is reported with the variables to check', (_, error, remedy) => {
  expect(remedyOf(error)).toMatch(remedy);
});

it('a failed connection has no remedy for an operator', () => {
  expect(remedyOf(new Error('14 UNAVAILABLE: connect ECONNREFUSED 127.0.0.1:2379'))).toBeUndefined();
  expect(remedyOf('no error at all')).toBeUndefined();
});
