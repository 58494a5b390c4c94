import {
  castGrpcError,
  EtcdAuthenticationFailedError,
  EtcdInvalidAuthTokenError,
  EtcdPermissionDeniedError,
} from 'etcd3';
import { expect, it } from 'vitest';
import { isFinal, isRefusal, remedyOf } from '../../../src/adapters/etcd/refusal.ts';

/** An error as gRPC passes it on. */
function answer(code: number, text: string): Error {
  return castGrpcError(Object.assign(new Error(`${code} STATUS: ${text}`), { code }));
}

it.each([
  ['a wrong password', new EtcdAuthenticationFailedError('no'), /ETCD_USERNAME and ETCD_PASSWORD/],
  ['an expired token', new EtcdInvalidAuthTokenError('no'), /ETCD_PASSWORD/],
  ['rights that changed', new Error('3 INVALID_ARGUMENT: etcdserver: revision of auth store is old'), /ETCD_PASSWORD/],
  ['a missing right', new EtcdPermissionDeniedError('no'), /grant ETCD_USERNAME .*ETCD_PREFIX/],
  ['an unknown certificate authority', new Error('unable to verify the first certificate'), /ETCD_CA/],
  ['an expired certificate', new Error('certificate has expired'), /ETCD_CA.*expire/],
  [
    'a full database',
    answer(8, 'etcdserver: mvcc: database space exceeded'),
    /NOSPACE.*compact and defragment.*disarm/,
  ],
  ['a corrupt member', answer(15, 'etcdserver: corrupt cluster'), /CORRUPT.*replace that member.*disarm/],
  ['too many writes', answer(2, 'etcdserver: too many requests'), /more writes than it can apply/],
  ['another host', new Error("Hostname/IP does not match certificate's altnames: IP: 127.0.0.1"), /ETCD_ENDPOINTS/],
] as const)('%s is reported with the variables to check', (_, error, remedy) => {
  expect(remedyOf(error)).toMatch(remedy);
});

it('a failed connection has no remedy for an operator', () => {
  expect(remedyOf(new Error('14 UNAVAILABLE: connect ECONNREFUSED 127.0.0.1:2379'))).toBeUndefined();
  expect(remedyOf('no error at all')).toBeUndefined();
});

it.each([
  [8, 'etcdserver: mvcc: database space exceeded', true, true],
  [15, 'etcdserver: corrupt cluster', true, true],
  [7, 'etcdserver: permission denied', true, true],
  [5, 'etcdserver: requested lease not found', true, true],
  [3, 'etcdserver: request is too large', true, true],
  [3, 'etcdserver: authentication failed, invalid user ID or password', true, true],
  [3, 'etcdserver: revision of auth store is old', true, true],
  [16, 'etcdserver: invalid auth token', true, false],
  [2, 'etcdserver: too many requests', true, false],
  [8, 'etcdserver: too many requests', true, false],
  [8, 'Received message larger than max', false, false],
  [14, 'etcdserver: request timed out', false, false],
  [14, 'etcdserver: leader changed', false, false],
  [14, 'etcdserver: no leader', false, false],
  [14, 'connect ECONNREFUSED 127.0.0.1:2379', false, false],
  [4, 'Deadline exceeded', false, false],
  [1, 'Cancelled on client', false, false],
] as const)('status %i "%s": refused %s, by the whole cluster %s', (code, text, refused, final) => {
  const error = answer(code, text);
  expect([isRefusal(error), isFinal(error)]).toEqual([refused, final]);
});
