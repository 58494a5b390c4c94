import type { IncomingMessage } from 'node:http';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { presetLayout } from '../../src/core/presets.ts';
import { startOps } from '../../src/http/ops.ts';
import { checkLocalHost } from '../../src/http/problem.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { ApiStage } from '../support/api-stage.ts';

const FOREIGN = 'pages.example';
const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

const check = (localAddress: string | undefined, host: string | undefined) =>
  checkLocalHost({ socket: { localAddress }, headers: { host } } as IncomingMessage);

describe('a name that may belong to somebody else', () => {
  test.each([FOREIGN, `${FOREIGN}:9464`, '127.0.0.1.example', 'localhost.example', 'a.b', `${FOREIGN}.`])(
    'is refused over the loopback address: %s',
    (host) => {
      for (const address of ['127.0.0.1', '127.0.0.2', '::1', '::ffff:127.0.0.1'])
        expect(() => check(address, host)).toThrow(expect.objectContaining({ status: 421 }));
      expect(() => check('192.0.2.1', host)).not.toThrow();
      expect(() => check(undefined, host)).not.toThrow();
    },
  );

  test.each([
    'localhost',
    'localhost:8080',
    'a.localhost',
    'host.docker.internal:9464',
    '[::1]:1',
    '127.0.0.1',
    'me:1',
  ])('is none of these: %s', (host) => expect(() => check('127.0.0.1', host)).not.toThrow());
});

function ask(port: number, path: string, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path, headers, agent: false }, (answer) => {
      answer.resume().once('end', () => resolve(answer.statusCode));
    });
    asked.once('error', reject).end();
  });
}

test('a page that was led to the port for health and metrics reads nothing there', async () => {
  const layout = presetLayout('default');
  const ready = () => ({ ready: true });
  const ops = await startOps({
    host: '127.0.0.1',
    port: 0,
    ready,
    complete: ready,
    allocating: ready,
    layout,
    status: () => undefined,
    metrics: createMetrics(),
    runtime: RUNTIME,
  });
  open.push(async () => await ops[Symbol.asyncDispose]());
  expect(await ask(ops.port, '/metrics', { host: FOREIGN })).toBe(421);
  expect(await ask(ops.port, '/metrics', { host: `localhost:${ops.port}` })).toBe(200);
});

test('a page that was led to the API gets no ID, unless it has a token', async () => {
  const token = 'token-of-the-shop';
  for (const stage of [new ApiStage(), new ApiStage({ tokens: `shop:${token}` })]) {
    const { app } = stage.api();
    open.push(async () => {
      await app.close();
    });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const { port } = app.server.address() as AddressInfo;
    const headers = { host: FOREIGN, authorization: `Bearer ${token}` };
    const isAnonymous = stage.tokens === '';
    expect(await ask(port, '/api/v1/ids', headers)).toBe(isAnonymous ? 421 : 200);
    expect(stage.issued).toBe(isAnonymous ? 0 : 1);
  }
});
