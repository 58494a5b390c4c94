import { once } from 'node:events';
import { createServer as createHttp } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { SASLOptions } from 'kafkajs';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { IdallocError } from '../../../src/errors.ts';
import type { ConnectionConfig } from '../../../src/kafka/wire/connection-config.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import { dialerOf, probeBroker } from '../../../src/kafka/wire/kafkajs-dialer.ts';
import type { BrokerAddress } from '../../../src/kafka/wire/port.ts';
import { seedsOf, unreachable } from '../../../src/kafka/wire/settings.ts';
import { API_VERSIONS, int16, int32, int64, SASL_AUTHENTICATE, SASL_HANDSHAKE, TcpBroker, text } from './tcp-broker.ts';

const HAS_IPV6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
const PLAIN = { mechanism: 'plain', username: 'me', password: 'secret' } as const;
const stack = new AsyncDisposableStack();
afterEach(() => vi.restoreAllMocks());
afterAll(() => stack.disposeAsync());

function dial(address: BrokerAddress, config: ConnectionConfig = {}, signal = new AbortController().signal) {
  return dialerOf(config).dial(address, signal);
}

/** The fault and the message that a dial fails with. */
async function refusal(address: BrokerAddress, config: ConnectionConfig = {}, signal?: AbortSignal): Promise<string> {
  try {
    (await dial(address, config, signal)).close();
  } catch (error) {
    expect(error).toBeInstanceOf(KafkaError);
    return `${(error as KafkaError).errorCode}: ${(error as Error).message}`;
  }
  return 'the dial succeeded';
}

async function listening(server: Server): Promise<BrokerAddress> {
  stack.defer(() => void server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}

const talking = (talk: (socket: Socket) => void) =>
  listening(createServer((socket) => talk(socket.on('error', () => {}))));
const http = () => listening(createHttp((_, response) => response.end()));
const saying = (bytes: Buffer) => talking((socket) => socket.once('data', () => socket.write(bytes)));
const hangingUp = () => talking((socket) => socket.once('data', () => socket.end()));

test.runIf(HAS_IPV6)('a broker that listens on an IPv6 address is reached by it, in brackets', async () => {
  await using broker = await TcpBroker.start(() => 'say nothing', '::1');
  const [seed] = seedsOf([`[::1]:${broker.address.port}`]);
  (await dial(seed as BrokerAddress)).close();
  expect(broker.calls).not.toEqual([]);
});

describe('a failed dial reports the cause and the remedy', () => {
  test('when nothing listens', async () => {
    expect(await refusal({ host: '127.0.0.1', port: 1 })).toMatch(/^UNREACHABLE: 127\.0\.0\.1:1: .*ECONNREFUSED/);
    expect(await refusal({ host: '::1', port: 1 })).toMatch(/^UNREACHABLE: \[::1\]:1: /);
    expect(await refusal({ host: 'localhost', port: 1 })).toMatch(/^UNREACHABLE: localhost:1: .*ECONNREFUSED/);
  });

  test.for([
    ['a web server', http, 'UNREACHABLE: ADDRESS: the server there is not a Kafka broker: does that port want TLS?'],
    [
      'a port that wants TLS',
      () => saying(Buffer.of(0x15, 3, 3, 0, 2, 2, 10)),
      'UNREACHABLE: ADDRESS: it answers with TLS: does that port want TLS?',
    ],
    [
      'a server that hangs up',
      hangingUp,
      'UNREACHABLE: ADDRESS: the connection was closed without a response: does that port want TLS?',
    ],
    [
      'negative nonsense',
      () => saying(int32(-1)),
      'UNREACHABLE: ADDRESS: the server there is not a Kafka broker: does that port want TLS?',
    ],
  ] as const)('when the server is %s', async ([, start, said]) => {
    const address = await start();
    expect(await refusal(address)).toBe(said.replace('ADDRESS', `127.0.0.1:${address.port}`));
  });

  test('when a plaintext port is dialled with TLS', async () => {
    expect(await refusal(await http(), { ssl: true })).toMatch(/^LOGIN_REFUSED: .*does not speak TLS/);
    expect(await refusal(await hangingUp(), { ssl: true })).toMatch(/^UNREACHABLE: .*does that port speak TLS\?/);
  });

  test('when the certificates are none, as those of a file that is half written', async () => {
    const half = { ca: '-----BEGIN', cert: 'of mine', key: 'secret' };
    const text = await refusal(await hangingUp(), { ssl: half });
    expect(text).toMatch(/^UNREACHABLE: .*: the options of TLS can't be used \(.*\): check the certificates$/);
    expect(text).not.toContain('secret');
  });

  test('when a broker is too old', async () => {
    await using broker = await TcpBroker.start();
    broker.versions = { 1: [0, 10] };
    expect(await refusal(broker.address)).toMatch(
      /^UNREACHABLE: .*the broker supports versions 0 to 10 of Fetch.*Kafka 2\.3/,
    );
    const tooOld = await dial(broker.address).catch((error: unknown) => error);
    const settings = { brokers: ['hub:9093'], clientId: 'me', tls: true };
    expect(unreachable(tooOld, settings).message).toMatch(
      /^the brokers hub:9093 answer, but can't be used \(.*0 to 10 of Fetch.*Kafka 2\.3 or later\)$/,
    );
    broker.versions = { 3: [7, 13] };
    expect(await refusal(broker.address)).toMatch(/^UNREACHABLE: .*the broker supports versions 7 to 13 of Metadata/);
    broker.versions = { 11: [0, 4] };
    expect(await refusal(broker.address)).toMatch(/0 to 4 of JoinGroup, but version 5 is needed: use Kafka 2\.3/);
  });

  test.for([
    [
      'a rejected password',
      int16(0),
      Buffer.concat([int16(58), text('Invalid password'), int32(-1), int64(0)]),
      /^LOGIN_REFUSED: .*Invalid password/,
    ],
    ['a rejected mechanism', int16(33), 'say nothing', /^LOGIN_REFUSED: .*mechanism/],
    ['a listener without logins', int16(34), 'say nothing', /^LOGIN_REFUSED: /],
    ['a connection that is closed meanwhile', int16(0), 'hang up', /^UNREACHABLE: /],
  ] as const)('when a login meets %s', async ([, error, reply, said]) => {
    await using broker = await TcpBroker.start(({ apiKey }) =>
      apiKey === SASL_HANDSHAKE ? Buffer.concat([error, int32(1), text('PLAIN')]) : reply,
    );
    expect(await refusal(broker.address, { sasl: PLAIN })).toMatch(said);
  });

  test.for([
    ['scram-sha-256', 100_001, 1, /^LOGIN_REFUSED: .*demands 100001 iterations, at most 100000 are allowed: /],
    ['scram-sha-512', 100_001, 1, /^LOGIN_REFUSED: .*demands 100001 iterations/],
    ['scram-sha-256', 100_000, 2, /^LOGIN_REFUSED: .*SHA256 authentication failed: the proof was received/],
    ['scram-sha-512', 4_096, 2, /^LOGIN_REFUSED: .*SHA512 authentication failed: the proof was received/],
  ] as const)(
    'when a %s login demands %i iterations, after %i messages',
    async ([mechanism, count, messages, said]) => {
      const answered = (fields: string) =>
        Buffer.concat([int16(0), int16(-1), int32(fields.length), Buffer.from(fields), int64(0)]);
      await using broker = await TcpBroker.start(({ apiKey, body }) => {
        if (apiKey === SASL_HANDSHAKE) return Buffer.concat([int16(0), int32(1), text(mechanism.toUpperCase())]);
        const nonce = /,r=([\w-]+)$/.exec(body.toString('latin1'))?.[1];
        return answered(nonce === undefined ? 'e=the proof was received' : `r=${nonce}x,s=c2FsdA==,i=${count}`);
      });
      expect(await refusal(broker.address, { sasl: { ...PLAIN, mechanism } as SASLOptions })).toMatch(said);
      expect(broker.calls.filter(({ apiKey }) => apiKey === SASL_AUTHENTICATE)).toHaveLength(messages);
    },
  );

  test('when the token provider fails, which is not a rejected login', async () => {
    await using broker = await TcpBroker.start(() => Buffer.concat([int16(0), int32(1), text('OAUTHBEARER')]));
    const sasl = {
      mechanism: 'oauthbearer',
      oauthBearerProvider: () => Promise.reject(new Error('no token today')),
    } as const;
    expect(await refusal(broker.address, { sasl })).toMatch(/^UNREACHABLE: .*no token today/);
  });
});

describe('a cancelled dial', () => {
  const timers = new Set<unknown>();
  const watchTimers = () => {
    const [set, clear] = [globalThis.setTimeout, globalThis.clearTimeout];
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, delayMs?: number) => {
      const timer = set(run, delayMs);
      timers.add(timer);
      return timer;
    }) as typeof setTimeout);
    vi.spyOn(globalThis, 'clearTimeout').mockImplementation((timer) => {
      timers.delete(timer);
      clear(timer as NodeJS.Timeout);
    });
  };

  test.for([
    ['before it connects', async (giveUp: () => void) => giveUp()],
    ['while the broker is silent', (giveUp: () => void, broker: TcpBroker) => asked(broker).then(giveUp)],
  ] as const)('%s ends with CLOSED, without a socket or a timer', async ([, when]) => {
    await using broker = await TcpBroker.start();
    broker.send = () => {};
    watchTimers();
    const controller = new AbortController();
    const refused = refusal(broker.address, {}, controller.signal);
    await when(() => controller.abort(), broker);
    expect(await refused).toMatch(/^CLOSED: /);
    expect(timers.size).toBe(0);
    await expect.poll(() => broker.sockets.size).toBe(0);
  });

  test('to a black-hole address ends with CLOSED', async () => {
    const controller = new AbortController();
    const refused = refusal({ host: '192.0.2.1', port: 9092 }, {}, controller.signal);
    controller.abort();
    expect(await refused).toMatch(/^CLOSED: /);
  });
});

test('a dial that has succeeded can no longer be cancelled: its connection is closed as a connection', async () => {
  await using broker = await TcpBroker.start(() => Buffer.concat([int32(0), int16(0)]));
  const controller = new AbortController();
  const link = await dial(broker.address, {}, controller.signal);
  controller.abort();
  expect(await link.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' })).toEqual({ throttleMs: 0 });
  link.close();
});

async function asked(broker: TcpBroker): Promise<void> {
  await expect.poll(() => broker.calls.length).toBeGreaterThan(0);
}

test('a dial whose settings never come ends with CLOSED when it is cancelled, and connects to nothing', async () => {
  await using broker = await TcpBroker.start();
  const controller = new AbortController();
  const dialed = dialerOf(() => new Promise<never>(() => undefined)).dial(broker.address, controller.signal);
  controller.abort();
  await expect(dialed).rejects.toMatchObject({ errorCode: 'CLOSED' });
  expect(broker.sockets.size).toBe(0);
});

test('a dial whose settings fail rejects with what they failed with', async () => {
  const error = new KafkaError('UNREACHABLE', 'the vault is sealed');
  const dialed = dialerOf(() => Promise.reject(error)).dial({ host: '127.0.0.1', port: 1 }, AbortSignal.timeout(9_000));
  await expect(dialed).rejects.toBe(error);
});

test('each connection logs in with the settings of its own time, and renews its session with the current ones', async () => {
  await using broker = await TcpBroker.start(({ apiKey }) => {
    if (apiKey === SASL_HANDSHAKE) return Buffer.concat([int16(0), int32(1), text('PLAIN')]);
    if (apiKey === SASL_AUTHENTICATE) return Buffer.concat([int16(0), int16(-1), int32(0), int64(60_000)]);
    return Buffer.concat([int32(0), int16(0)]);
  });
  let elapsedS = 0;
  vi.spyOn(process, 'hrtime').mockImplementation(([sinceS] = [0, 0]) => [elapsedS - sinceS, 0]);
  let reads = 0;
  const dialer = dialerOf(async () => {
    reads += 1;
    return { sasl: { ...PLAIN, password: `password-${reads}` } };
  });
  const signal = new AbortController().signal;
  const links = [await dialer.dial(broker.address, signal), await dialer.dial(broker.address, signal)];
  elapsedS = 55;
  const [link] = links;
  const beat = () => link?.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' });
  await Promise.all([beat(), beat(), beat()]);
  const logins = broker.calls.filter(({ apiKey }) => apiKey === SASL_AUTHENTICATE);
  const passwords = logins.map(({ body }) => /password-\d/.exec(body.toString())?.[0]);
  expect(passwords).toEqual(['password-1', 'password-2', 'password-3']);
  for (const one of links) one.close();
  await Promise.all(links.map(({ ended }) => ended));
});

test.for([
  ['a long session, as long before its end as configured', 60_000, 49, 50],
  ['a short session, after half of it', 4_000, 1, 2],
] as const)('%s is renewed before the next call', async ([, lifetimeMs, earlyS, dueS]) => {
  await using broker = await TcpBroker.start(({ apiKey }) => {
    if (apiKey === SASL_HANDSHAKE) return Buffer.concat([int16(0), int32(1), text('PLAIN')]);
    if (apiKey === SASL_AUTHENTICATE) return Buffer.concat([int16(0), int16(-1), int32(0), int64(lifetimeMs)]);
    return Buffer.concat([int32(0), int16(0)]);
  });
  let elapsedS = 0;
  vi.spyOn(process, 'hrtime').mockImplementation(([sinceS] = [0, 0]) => [elapsedS - sinceS, 0]);
  const link = await dial(broker.address, { sasl: PLAIN, reauthenticationThreshold: 10_000 });
  const beat = () => link.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' });
  const logins = () => broker.calls.filter(({ apiKey }) => apiKey === SASL_AUTHENTICATE).length;
  elapsedS = earlyS;
  await beat();
  expect(logins()).toBe(1);
  elapsedS = dueS;
  await Promise.all([beat(), beat()]);
  expect(logins()).toBe(2);
  link.close();
  await link.ended;
});

test.for([
  ['for its password', int16(0), Buffer.concat([int16(58), text('Gone'), int32(-1), int64(0)])],
  ['for its mechanism', int16(33), 'say nothing'],
  ['for coming too early', int16(34), 'say nothing'],
] as const)('a renewed login that is rejected %s ends the connection', async ([, error, reply]) => {
  let isWelcome = true;
  await using broker = await TcpBroker.start(({ apiKey }) => {
    const isHandshake = apiKey === SASL_HANDSHAKE;
    if (isHandshake) return Buffer.concat([isWelcome ? int16(0) : error, int32(1), text('PLAIN')]);
    return isWelcome ? Buffer.concat([int16(0), int16(-1), int32(0), int64(60_000)]) : reply;
  });
  let elapsedS = 0;
  vi.spyOn(process, 'hrtime').mockImplementation(([sinceS] = [0, 0]) => [elapsedS - sinceS, 0]);
  const link = await dial(broker.address, { sasl: PLAIN });
  [isWelcome, elapsedS] = [false, 55];
  await expect(link.call('metadata', { topics: [] })).rejects.toMatchObject({ errorCode: 'LOGIN_REFUSED' });
  await link.ended;
});

test('a renewed login for which the settings have none ends the connection, and says why', async () => {
  await using broker = await TcpBroker.start(({ apiKey }) =>
    apiKey === SASL_HANDSHAKE
      ? Buffer.concat([int16(0), int32(1), text('PLAIN')])
      : Buffer.concat([int16(0), int16(-1), int32(0), int64(60_000)]),
  );
  let elapsedS = 0;
  vi.spyOn(process, 'hrtime').mockImplementation(([sinceS] = [0, 0]) => [elapsedS - sinceS, 0]);
  const cause = new IdallocError('CONFIG_INVALID', 'sasl must be an object');
  const dialer = dialerOf(async () => {
    if (elapsedS > 0) throw cause;
    return { sasl: PLAIN };
  });
  const link = await dialer.dial(broker.address, new AbortController().signal);
  elapsedS = 55;
  await expect(link.call('metadata', { topics: [] })).rejects.toMatchObject({ errorCode: 'LOGIN_REFUSED', cause });
  await link.ended;
});

test('the configuration is not modified, so that it may be frozen', async () => {
  await using broker = await TcpBroker.start(() => Buffer.concat([int16(33), int32(0)]));
  const config = Object.freeze({ sasl: Object.freeze({ ...PLAIN }), ssl: false, clientId: 'me' });
  expect(await refusal(broker.address, config)).toMatch(/^LOGIN_REFUSED/);
  expect(Object.keys(config.sasl)).toEqual(['mechanism', 'username', 'password']);
});

test('a broker reports its newest version of Fetch without a login', async () => {
  await using broker = await TcpBroker.start();
  broker.versions = { 1: [4, 17] };
  const { fetchVersion, latencyMs } = await probeBroker(broker.address, undefined, 10_000);
  expect(fetchVersion).toBe(17);
  expect(latencyMs).toBeGreaterThan(0);
  expect(broker.calls.map(({ apiKey, apiVersion }) => [apiKey, apiVersion])).toEqual([[API_VERSIONS, 0]]);
  await expect.poll(() => broker.sockets.size).toBe(0);
});

test.for([
  [
    'hangs up',
    (broker: TcpBroker) => (broker.send = (socket) => void socket.destroy()),
    /closed without a response/,
    60_000,
  ],
  ['stays silent', (broker: TcpBroker) => (broker.send = () => {}), /no response in 200 ms/, 200],
  [
    'speaks another protocol',
    (broker: TcpBroker) => (broker.send = (socket) => void socket.write('HTTP/1.1 400')),
    /not a Kafka broker/,
    60_000,
  ],
] as const)('a server that %s is not a broker', async ([, script, said, limitMs]) => {
  await using broker = await TcpBroker.start();
  script(broker);
  await expect(probeBroker(broker.address, undefined, limitMs)).rejects.toThrow(said);
  await expect.poll(() => broker.sockets.size).toBe(0);
});

test('a plaintext port dialled with TLS is not a broker', async () => {
  await using broker = await TcpBroker.start();
  await expect(probeBroker(broker.address, {}, 10_000)).rejects.toThrow();
});
