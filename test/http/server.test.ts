import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Api } from '../../src/http/api.ts';
import { LoopShare } from '../../src/http/loop-share.ts';
import { ApiStage } from '../support/api-stage.ts';

const HOST = '127.0.0.1';
const open: Api[] = [];
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const { app } of open.splice(0)) await app.close();
});

async function start(limits?: Parameters<ApiStage['api']>[0]) {
  const stage = new ApiStage();
  const api = stage.api(limits);
  open.push(api);
  await api.app.listen({ host: HOST, port: 0 });
  const address = api.app.server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP listener has an address');
  return { stage, api, port: address.port };
}

/** A connection, and everything received on it until the server closes it. */
async function dial(port: number, input = '') {
  const socket = connect({ host: HOST, port, allowHalfOpen: true });
  sockets.push(socket);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.on('error', () => undefined); // a cut connection may come as a reset
  const ended = new Promise<string>((resolve) => {
    const done = () => resolve(Buffer.concat(chunks).toString('latin1'));
    socket.once('end', done).once('close', done);
  });
  await Promise.race([once(socket, 'connect'), ended]);
  socket.write(input);
  return { socket, ended };
}

function expectProblem(answer: string, status: number): void {
  expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  const [head = '', body = ''] = answer.split('\r\n\r\n');
  expect(head.toLowerCase()).toContain('content-type: application/problem+json');
  expect(JSON.parse(body)).toMatchObject({ status });
}

const post = (headers: string, body = '') => `POST /api/v1/id HTTP/1.1\r\nHost: x\r\n${headers}\r\n${body}`;
const CLOSE = 'Connection: close\r\n';

describe('a malformed request gets a problem', () => {
  test.each([
    ['no HTTP', 'hello\r\n\r\n', 400],
    ['a TLS greeting', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400],
    ['another version', 'GET /api/v1/ids HTTP/3.7\r\n\r\n', 400],
    ['no Host', `GET /api/v1/ids HTTP/1.1\r\n${CLOSE}\r\n`, 400],
    ['an unknown method', `BREW /api/v1/ids HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['a method of WebDAV', `PROPFIND /api/v1/ids HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 405],
    ['a supported method at the wrong path', `DELETE /api/v1/id HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 405],
    ['an unknown path', `GET / HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 404],
    ['a space in a header name', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n`, 400],
    ['a zero byte in a header', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n`, 400],
    ['two Host headers', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nhost: x\r\n${CLOSE}\r\n`, 400],
    ['a request line without a version', 'GET /api/v1/ids\r\n\r\n', 400],
    ['a bare line feed in a header', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nA: b\nc\r\n\r\n`, 400],
    ['two lengths', post('Content-Length: 1\r\nContent-Length: 2\r\n', 'ab'), 400],
    ['a length beside chunks', post('Content-Length: 2\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n'), 400],
    ['a negative length', post('Content-Length: -1\r\n'), 400],
    ['a length past all numbers', post(`Content-Length: ${'9'.repeat(30)}\r\n`), 400],
    ['a chunk of no size', post('Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n', 'xyz\r\n'), 400],
    ['too large a body', post(`${CLOSE}Content-Type: application/json\r\nContent-Length: 9000000\r\n`, '{'), 413],
    [
      'too large a chunked body',
      post(`${CLOSE}Transfer-Encoding: chunked\r\n`, `800\r\n${'x'.repeat(2_048)}\r\n`),
      413,
    ],
    ['a body of another type', post(`${CLOSE}Content-Type: text/plain\r\nContent-Length: 1\r\n`, 'x'), 415],
    ['a body without a type', post(`${CLOSE}Content-Length: 1\r\n`, 'x'), 415],
    ['a body with an invalid type', post(`${CLOSE}Content-Type: ;;;\r\nContent-Length: 1\r\n`, 'x'), 415],
    [
      'a body with an unsupported field',
      post(`${CLOSE}Content-Type: application/json\r\nContent-Length: 11\r\n`, '{"count":9}'),
      400,
    ],
    ['a deep body', post(`${CLOSE}Content-Type: application/json\r\nContent-Length: 1000\r\n`, '['.repeat(1_000)), 400],
    ['an expectation', post(`${CLOSE}Expect: miracles\r\n`), 417],
    ['a long URL', `GET /api/v1/ids?${'x'.repeat(3_000)} HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 414],
    ['a URL longer than all headers', `GET /${'x'.repeat(100_000)} HTTP/1.1\r\nHost: x\r\n\r\n`, 431],
    ['long headers', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nA: ${'x'.repeat(9_000)}\r\n\r\n`, 431],
    ['many headers', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n${'A: b\r\n'.repeat(50_000)}\r\n`, 431],
    ['a bad escape', `GET /api/v1/ids/%E0%A4%A HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['a way out of the path', `GET /api/v1/ids/..%2f..%2fetc HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['a long ID', `GET /api/v1/ids/${'9'.repeat(1_500)} HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['a count in other digits', `GET /api/v1/ids?count=%D9%A1 HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['two counts', `GET /api/v1/ids?count=1&count=2 HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['a forged prototype', `GET /api/v1/ids?__proto__[count]=1 HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`, 400],
    ['a long key', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nIdempotency-Key: ${'k'.repeat(256)}\r\n${CLOSE}\r\n`, 400],
    ['an empty key', `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nIdempotency-Key:\r\n${CLOSE}\r\n`, 400],
  ])('%s', async (_, input, status) => {
    const { port, stage } = await start();
    const { ended } = await dial(port, input);
    expectProblem(await ended, status);
    expect(stage.issued).toBe(0);
    expect(stage.faults).toEqual([]);
    expect(stage.answered.map((answered) => answered.status)).toEqual([status]);
    const after = await fetch(`http://${HOST}:${port}/api/v1/ids`);
    expect(after.status).toBe(200);
  });
});

describe('slow clients', () => {
  const limits = { maxConnections: 512, requestTimeoutMs: 300 };

  test.each([
    ['nothing', ''],
    ['half a request line', 'GET /api'],
    ['headers without an end', 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n'],
    ['headers without their body', post('Content-Type: application/json\r\nContent-Length: 100\r\n', '{')],
  ])('that send %s get 408 at the timeout', async (_, input) => {
    const { port, stage } = await start(limits);
    const { ended } = await dial(port, input);
    expectProblem(await ended, 408);
    expect(stage.issued).toBe(0);
  });

  test('that trickle bytes get 408, too', async () => {
    const { port } = await start(limits);
    const { socket, ended } = await dial(port, 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nA: ');
    const drip = setInterval(() => socket.write('x'), 20);
    expectProblem(await ended, 408);
    clearInterval(drip);
  });

  test('that disconnect during a large response leave nothing behind', async () => {
    const { port, api } = await start();
    const { socket } = await dial(port, 'GET /api/v1/ids?count=100000 HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'data');
    socket.pause();
    expect(api.inFlight()).toBe(1);
    socket.destroy();
    await expect.poll(() => api.inFlight()).toBe(0);
  });
});

describe('connections', () => {
  test('are kept without a request for as long as it is configured', async () => {
    const { port } = await start({ maxConnections: 512, requestTimeoutMs: 60_000, keepAliveMs: 700_000 });
    const { headers } = await fetch(`http://${HOST}:${port}/api/v1/ids`);
    expect(headers.get('keep-alive')).toBe('timeout=700');
  });

  const limits = { maxConnections: 3, requestTimeoutMs: 60_000 };
  const GET = 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n\r\n';

  test.each([
    ['has sent nothing', '', ''],
    ['has sent half of its headers', 'GET /api/v1/ids HTTP/1.1\r\nA: ', 'b'],
    ['has sent half of its body', post('Content-Length: 9\r\n', '{'), ' '],
  ])('at the limit the one that %s is cut, however busy it is', async (_, input, more) => {
    const { port } = await start(limits);
    const slow = await dial(port, input);
    const others = [await dial(port), await dial(port)];
    slow.socket.write(more);
    const newcomer = await dial(port, `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`);
    expect(await slow.ended).toBe('');
    expect(await newcomer.ended).toMatch(/^HTTP\/1\.1 200 /);
    expect(others.map(({ socket }) => socket.closed)).toEqual([false, false]);
  });

  test('at the limit the one idle longest since its last response is cut', async () => {
    const { port } = await start(limits);
    const [first, second, third] = [await dial(port), await dial(port), await dial(port)];
    for (const { socket } of [first, third]) {
      const answered = once(socket, 'data');
      socket.write(GET);
      await answered;
    }
    await dial(port);
    await second.ended;
    await dial(port);
    await first.ended;
    expect(third.socket.closed).toBe(false);
  });

  test('that are all being answered are not cut for another', async () => {
    const { port, stage, api } = await start(limits);
    const held = Promise.withResolvers<void>();
    stage.before = () => held.promise;
    const busy = await Promise.all([1, 2, 3].map(() => dial(port, GET.replace('\r\n\r\n', `\r\n${CLOSE}\r\n`))));
    await expect.poll(() => api.inFlight()).toBe(3);
    const fourth = await dial(port, GET);
    expect(await fourth.ended).toBe('');
    held.resolve();
    for (const { ended } of busy) expect(await ended).toMatch(/^HTTP\/1\.1 200 /);
    expect((await fetch(`http://${HOST}:${port}/api/v1/ids`)).status).toBe(200);
  });

  test('that flood requests without reading responses are cut, and few requests are handled', async () => {
    const { port, stage, api } = await start();
    let parsed = 0;
    api.app.server.on('request', () => {
      parsed += 1;
    });
    const { ended } = await dial(port, 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(10_000));
    await ended;
    expect(stage.issued).toBeLessThanOrEqual(2);
    expect(parsed).toBeLessThanOrEqual(32);
  });

  test('that pipeline a second request get both responses, in order', async () => {
    const { port } = await start();
    const counts = [150, 2];
    const requests = counts.map((count, nth) => {
      const close = nth === counts.length - 1 ? CLOSE : '';
      return `GET /api/v1/ids?count=${count} HTTP/1.1\r\nHost: x\r\nPadding: ${'x'.repeat(700)}\r\n${close}\r\n`;
    });
    const { ended } = await dial(port, requests.join(''));
    const answers = (await ended).split('HTTP/1.1 200 OK').slice(1);
    expect(answers.map((answer) => answer.match(/"value_hex"/g)?.length)).toEqual(counts);
  });

  test('that send a request before reading a large response get both responses, in order', async () => {
    const { port, api } = await start();
    const accepted = once(api.app.server, 'connection') as Promise<[Socket]>;
    const { socket, ended } = await dial(port, 'GET /api/v1/ids?count=100000 HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'data');
    socket.pause();
    const [other] = await accepted;
    let written = -1;
    const isStuck = () => {
      const before = written;
      written = other.bytesWritten;
      return other.writableNeedDrain && written === before;
    };
    await expect.poll(isStuck).toBe(true);
    // Its body comes after node has paused the connection.
    socket.write(post(`${CLOSE}Content-Type: application/json\r\nContent-Length: 1000\r\n`, '{}'.padEnd(1_000)));
    await expect.poll(() => api.inFlight()).toBe(2);
    socket.resume();
    const [, large = '', small = ''] = (await ended).split('HTTP/1.1 200 OK');
    expect(large.match(/"value_hex"/g)).toHaveLength(100_000);
    expect(small).toMatch(/\{"id":"\d+"\}$/);
  });

  test('get their responses at the end of a turn, unless there is only one', async () => {
    const runLast = vi.spyOn(LoopShare.prototype, 'runLast');
    onTestFinished(() => runLast.mockRestore());
    const { port } = await start();
    const get = `GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n${CLOSE}\r\n`;
    expect(await (await dial(port, get)).ended).toMatch(/^HTTP\/1\.1 200 /);
    expect(runLast).not.toHaveBeenCalled();
    await dial(port);
    expect(await (await dial(port, get)).ended).toMatch(/^HTTP\/1\.1 200 /);
    expect(runLast).toHaveBeenCalledTimes(1);
  });

  test('are kept alive for the next request', async () => {
    const { port } = await start();
    const { socket, ended } = await dial(port);
    for (let turn = 0; turn < 3; turn += 1) {
      const answered = once(socket, 'data');
      socket.write(`GET /api/v1/ids HTTP/1.1\r\nHost: x\r\n${turn === 2 ? CLOSE : ''}\r\n`);
      await answered;
    }
    expect((await ended).match(/HTTP\/1\.1 200/g)).toHaveLength(3);
  });
});
