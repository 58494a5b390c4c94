import { expect, test } from 'vitest';
import { EXIT, exitCodeOf, externalIp } from '../../src/cli/context.ts';
import { IdallocError } from '../../src/errors.ts';

const address = (text: string, internal = false) => {
  return { address: text, family: text.includes(':') ? 'IPv6' : 'IPv4', internal };
};

test.each([
  ['the first of IPv4', ['fd00::2', '10.0.0.2', '10.0.0.3'], '10.0.0.2'],
  ['that of IPv6 where there is no other', ['fd00::2'], 'fd00::2'],
  ['none that is valid on one link only', ['fe80::1', 'febf::1', '2001:db8::1'], '2001:db8::1'],
  ['none, if it has only such', ['fe80::1'], undefined],
])('the address of a machine is %s', (_what, others, own) => {
  const loopback = [address('127.0.0.1', true), address('::1', true)];
  expect(externalIp([...loopback, ...others.map((one) => address(one))])).toBe(own);
});

test.each(['KAFKA_UNAVAILABLE', 'ETCD_UNAVAILABLE', 'NO_REPLY'] as const)('%s leaves the outcome unknown', (code) => {
  expect(exitCodeOf(new IdallocError(code, ''))).toBe(EXIT.unavailable);
});
