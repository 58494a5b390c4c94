import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { formatHostPort, isHostPort, parseHostPort } from '../../src/core/host-port.ts';

const names = fc.stringMatching(/^[A-Za-z0-9._-]{1,60}$/);
const hosts = fc.oneof(
  fc.ipV4(),
  fc.ipV6(),
  fc.ipV6().map((ip) => `${ip}%eth0`),
  names,
);
const ports = fc.integer({ min: 1, max: 65_535 });

describe('host:port', () => {
  it('is read back as the address that was written, whether its host is a name, IPv4 or IPv6', () => {
    fc.assert(
      fc.property(hosts, ports, (host, port) => {
        expect(parseHostPort(formatHostPort({ host, port }))).toEqual({ host, port });
      }),
    );
  });

  it('is written as it was read', () => {
    fc.assert(
      fc.property(hosts, ports, (host, port) => {
        const text = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
        expect(formatHostPort(parseHostPort(text))).toBe(text);
      }),
    );
  });

  it('is written differently for different addresses', () => {
    expect(formatHostPort({ host: '::1', port: 9092 })).toBe('[::1]:9092');
    expect(formatHostPort({ host: '::1:9', port: 92 })).toBe('[::1:9]:92');
  });

  test.each([
    ...['', 'kafka', 'kafka:', ':9092', 'kafka:0', 'kafka:65536', 'kafka:9092 ', 'kafka :9092', 'kafka:9o92'],
    ...['http://kafka:9092', 'kafka:9092/', 'user:secret@kafka:9092', 'a:1,b:2'],
    ...['::1:9092', '2001:db8::1:9092', '::1', '[::1]', '[::1]:', '[::1]9092', '[kafka]:9092', '[127.0.0.1]:9092'],
    ...['[::1::2]:9092', '[1:2:3]:9092', '[::12345]:9092', '[::1%]:9092', '[]:9092'],
  ])('is not %j', (text) => {
    expect(isHostPort(text)).toBe(false);
    expect(() => parseHostPort(text)).toThrow(
      /^must be host:port, with an IPv6 address in brackets as in \[::1\]:9092$/,
    );
  });
});
