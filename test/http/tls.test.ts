import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls, { connect, type TLSSocket } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Api } from '../../src/http/api.ts';
import type { TlsSettings } from '../../src/http/tls-server.ts';
import { ApiStage } from '../support/api-stage.ts';
import { type Certificate, CertificateAuthority } from '../support/certificates.ts';
import { FakeLedger } from '../support/fake-ledger.ts';

const HOST = '127.0.0.1';
const GET = 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n';
const open: Api[] = [];
const sockets: { destroy(): void }[] = [];
let dir: string;
let authority: CertificateAuthority;
let server: Certificate;

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-tls-'));
  authority = new CertificateAuthority(dir);
  server = authority.issue('server');
});

afterAll(() => rmSync(dir, { recursive: true }));

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const { app } of open.splice(0)) await app.close();
});

const read = (file: string) => readFileSync(file, 'utf8');
const caOf = () => read(authority.own.certFile);

async function start({
  limits,
  pem = {},
  ...options
}: {
  limits?: Parameters<ApiStage['api']>[0];
  pem?: Partial<TlsSettings>;
} & ConstructorParameters<typeof ApiStage>[0] = {}) {
  const stage = new ApiStage(options);
  const api = stage.api(limits, { cert: () => read(server.certFile), key: () => read(server.keyFile), ...pem });
  open.push(api);
  await api.app.listen({ host: HOST, port: 0 });
  const address = api.app.server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP listener has an address');
  return { stage, api, port: address.port };
}

/** A connection after its handshake, and everything received on it until the server closes it. */
async function dial(port: number, input = '', own: { cert?: string; key?: string } = {}) {
  const socket = connect({ host: HOST, port, ca: caOf(), ...own });
  sockets.push(socket);
  socket.on('error', () => undefined); // a cut connection may come as a reset
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  const ended = new Promise<string>((resolve) => socket.once('close', () => resolve(answer)));
  await Promise.race([once(socket, 'secureConnect'), ended]);
  socket.write(input);
  return { socket, ended };
}

/** The status of a request, or the code of the error with which the connection failed. */
async function ask(port: number, own: { cert?: string; key?: string } = {}, headers: Record<string, string> = {}) {
  const agent = new Agent({ ca: caOf(), ...own });
  sockets.push(agent);
  try {
    const asked = request({ host: HOST, port, path: '/api/v1/ids', method: 'GET', agent, headers }).end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    answer.resume();
    return answer.statusCode;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  }
}

const ownOf = ({ certFile, keyFile }: Certificate) => ({ cert: read(certFile), key: read(keyFile) });

describe('over TLS', () => {
  test('requests are answered, and plain HTTP is not', async () => {
    const { port, stage } = await start();
    expect(await ask(port)).toBe(200);
    const plain = connectTcp({ host: HOST, port });
    plain.on('error', () => undefined); // a cut connection may come as a reset
    let answer = '';
    plain.on('data', (chunk) => {
      answer += chunk.toString('latin1');
    });
    plain.write(`${GET}\r\n`);
    await once(plain, 'close');
    expect(answer).not.toContain('HTTP');
    expect(stage.issued).toBe(1);
    expect(stage.faults).toEqual([]);
  });

  test('a flood of requests on one connection is cut, and few are handled', async () => {
    const { port, stage, api } = await start();
    let parsed = 0;
    api.app.server.on('request', () => {
      parsed += 1;
    });
    const { ended } = await dial(port, `${GET}\r\n`.repeat(10_000));
    await ended;
    expect(stage.issued).toBeLessThanOrEqual(2);
    expect(parsed).toBeLessThanOrEqual(32);
  });

  test.each([
    ['does not begin its handshake', async (port: number) => connectTcp({ host: HOST, port })],
    ['sends nothing after it', async (port: number) => (await dial(port)).socket],
  ])('at the limit the connection that %s is cut', async (_, slow) => {
    const { port, api, stage } = await start({ limits: { maxConnections: 2, requestTimeoutMs: 60_000 } });
    const accepted = once(api.app.server, 'connection');
    const first = await slow(port);
    sockets.push(first);
    first.on('error', () => undefined);
    await accepted;
    const second = await dial(port);
    const { ended } = await dial(port, `${GET}Connection: close\r\n\r\n`);
    expect(await ended).toMatch(/^HTTP\/1\.1 200 /);
    if (!first.closed) await once(first, 'close');
    expect(second.socket.closed).toBe(false);
    expect(stage.shed).toBe(1);
  });

  test.each([
    ['a handshake', async (port: number) => connectTcp({ host: HOST, port }).on('error', () => undefined)],
    ['a request', async (port: number) => (await dial(port, GET)).socket],
  ])('a client slow with %s is cut at the timeout', async (_, slow) => {
    const { port } = await start({ limits: { maxConnections: 9, requestTimeoutMs: 300 } });
    const socket = await slow(port);
    socket.resume();
    if (!socket.closed) await once(socket, 'close');
  });

  test('stopping does not wait for handshakes', async () => {
    const { port, api } = await start({ limits: { maxConnections: 9, requestTimeoutMs: 60_000 } });
    const accepted = once(api.app.server, 'connection');
    const socket = connectTcp({ host: HOST, port }).on('error', () => undefined);
    sockets.push(socket);
    await accepted;
    api.app.server.close();
    api.app.server.closeAllConnections();
    await api.app.close();
    if (!socket.closed) await once(socket.resume(), 'close');
  });

  test('an address that begins a hundred in a second gets no other before the next', async () => {
    const { port, stage, api } = await start();
    stage.standsAtMs = 5_000;
    const begin = async () => {
      const accepted = once(api.app.server, 'connection');
      const socket = connectTcp({ host: HOST, port }).on('error', () => undefined);
      sockets.push(socket);
      const [own] = await accepted;
      return !(own as Socket).destroyed;
    };
    for (let nth = 0; nth < 100; nth += 1) expect(await begin()).toBe(true);
    expect([await begin(), stage.shed]).toEqual([false, 1]);
    stage.standsAtMs += 1_000;
    expect([await begin(), stage.shed]).toEqual([true, 1]);
  });

  test('the next connection gets a new certificate, unless its key is missing', async () => {
    let shown = server;
    let key = server;
    const pem = { cert: () => read(shown.certFile), key: () => read(key.keyFile) };
    const { port, stage } = await start({ pem });
    const nameOf = async () => {
      stage.aheadMs += 1_000;
      const { socket } = await dial(port);
      return (socket as TLSSocket).getPeerCertificate().subject.CN;
    };
    expect(await nameOf()).toBe('server');
    const next = authority.issue('renewed');
    shown = next;
    expect(await nameOf()).toBe('server');
    expect(stage.faults).toHaveLength(1);
    key = next;
    expect(await nameOf()).toBe('renewed');
    expect(stage.faults).toHaveLength(1);
  });
});

describe('where the process would accept TLS 1.1', () => {
  const usual = [tls.DEFAULT_MIN_VERSION, tls.DEFAULT_CIPHERS] as const;

  beforeAll(() => {
    tls.DEFAULT_MIN_VERSION = 'TLSv1.1';
    tls.DEFAULT_CIPHERS = 'DEFAULT@SECLEVEL=0'; // OpenSSL allows TLS 1.1 only at this level
  });

  afterAll(() => {
    [tls.DEFAULT_MIN_VERSION, tls.DEFAULT_CIPHERS] = usual;
  });

  /** The version that a client of at most this version gets, or undefined if it is refused. */
  async function agreed(port: number, maxVersion: 'TLSv1.1' | 'TLSv1.2') {
    const socket = connect({ host: HOST, port, ca: caOf(), minVersion: 'TLSv1.1', maxVersion });
    sockets.push(socket);
    const failed = new Promise<undefined>((resolve) => socket.once('error', () => resolve(undefined)));
    return await Promise.race([once(socket, 'secureConnect').then(() => socket.getProtocol()), failed]);
  }

  test('the server requires TLS 1.2, with its first certificate and with a renewed one', async () => {
    let shown = server;
    const { port, stage } = await start({ pem: { cert: () => read(shown.certFile), key: () => read(shown.keyFile) } });
    for (const next of [server, authority.issue('renewed-for-1.2')]) {
      shown = next;
      stage.aheadMs += 1_000;
      expect(await agreed(port, 'TLSv1.1')).toBe(undefined);
      expect(await agreed(port, 'TLSv1.2')).toBe('TLSv1.2');
    }
  });
});

describe('with a client CA', () => {
  const mutual = () => ({ pem: { clientCa: caOf } });

  test('a certificate signed by it is required, and its common name is the caller', async () => {
    const ledger = new FakeLedger();
    const { port, stage } = await start({ ...mutual(), perSecond: 1, ledger });
    const [orders, billing] = [authority.issue('orders'), authority.issue('billing')];
    expect(await ask(port)).toMatch(/^(ECONNRESET|ERR_SSL|EPIPE)/);
    expect(stage.issued).toBe(0);
    const key = { 'idempotency-key': 'k' };
    expect(await ask(port, ownOf(orders), key)).toBe(200);
    expect(await ask(port, ownOf(orders))).toBe(429);
    expect(await ask(port, ownOf(billing), key)).toBe(200);
    expect(ledger.asked.map((asked) => String(asked.key))).toEqual(['http/orders/k', 'http/billing/k']);
    expect(new Set(stage.answered.map(({ caller }) => caller))).toEqual(new Set(['mtls']));
  });

  test('a certificate of another CA is rejected', async () => {
    const elsewhere = mkdtempSync(join(dir, 'other-'));
    const { port, stage } = await start(mutual());
    const other = new CertificateAuthority(elsewhere).issue('orders');
    expect(await ask(port, ownOf(other))).toMatch(/^(ECONNRESET|ERR_SSL|EPIPE)/);
    expect(stage.issued).toBe(0);
  });

  /** A request over a connection that is kept; rejects if that has ended. */
  function keep(port: number, own: { cert: string; key: string }) {
    const agent = new Agent({ ca: caOf(), ...own, keepAlive: true, maxSockets: 1 });
    sockets.push(agent);
    return async () => {
      const asked = request({ host: HOST, port, path: '/api/v1/ids', method: 'GET', agent }).end();
      const [answer] = (await once(asked, 'response')) as [IncomingMessage];
      await once(answer.resume(), 'end');
      return answer.statusCode;
    };
  }

  test('a kept connection ends with its certificate', async () => {
    const { port, stage } = await start(mutual());
    const kept = keep(port, ownOf(authority.issue('ending')));
    expect([await kept(), await kept()]).toEqual([200, 200]);
    stage.aheadMs = 3 * 86_400_000;
    await expect(kept()).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(stage.issued).toBe(2);
  });

  test('another client CA ends what the one before had accepted, and its sessions', async () => {
    const other = new CertificateAuthority(mkdtempSync(join(dir, 'next-')));
    let ca = caOf();
    const { port, stage } = await start({ pem: { clientCa: () => ca } });
    const own = ownOf(authority.issue('orders'));
    const kept = keep(port, own);
    expect(await kept()).toBe(200);
    const { socket } = await dial(port, `${GET}\r\n`, own);
    const [session] = (await once(socket, 'session')) as [Buffer];
    ca = read(other.own.certFile);
    stage.aheadMs += 1_000;
    const resumed = connect({ host: HOST, port, ca: caOf(), ...own, session });
    sockets.push(resumed);
    const refused = once(resumed, 'close');
    resumed.on('error', () => undefined);
    resumed.write(`${GET}\r\n`);
    await refused;
    await expect(kept()).rejects.toMatchObject({ code: expect.stringMatching(/^(ECONNRESET|ERR_SSL|EPIPE)/) });
    expect(stage.issued).toBe(2);
    expect(await ask(port, ownOf(other.issue('orders')))).toBe(200);
  });

  test('another certificate of the server ends no connection', async () => {
    let shown = server;
    const pem = { clientCa: caOf, cert: () => read(shown.certFile), key: () => read(shown.keyFile) };
    const { port, stage } = await start({ pem });
    const kept = keep(port, ownOf(authority.issue('staying')));
    expect(await kept()).toBe(200);
    shown = authority.issue('renewed-for-clients');
    stage.aheadMs += 1_000;
    expect(await kept()).toBe(200);
  });

  test('a token is also required where any are configured, and names the caller', async () => {
    const { port, stage } = await start({ ...mutual(), tokens: 'shop:token-of-the-shop' });
    const own = ownOf(authority.issue('orders'));
    expect(await ask(port, own)).toBe(401);
    expect(await ask(port, own, { authorization: 'Bearer token-of-the-shop' })).toBe(200);
    expect(stage.answered.map(({ caller }) => caller)).toEqual(['anonymous', 'shop']);
  });
});
