import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, describe, expect, test } from 'vitest';
import { freePorts } from '../../ops/dev/ports.ts';
import { ApiListener } from '../../src/http/api-listener.ts';
import { ApiStage } from '../support/api-stage.ts';

const HOST = '127.0.0.1';
const listeners: ApiListener[] = [];

afterEach(async () => {
  for (const listener of listeners.splice(0)) await listener.stop();
});

/** On a port of its own, which nothing takes while the listener has closed it. */
async function start(port?: number, drainMs = 60_000) {
  const stage = new ApiStage();
  const lines: { readonly message: string; readonly port?: number }[] = [];
  const listener = await ApiListener.open({
    host: HOST,
    port: port ?? (await freePorts(1))[0] ?? 0,
    createApi: (isEnding) => stage.api(undefined, undefined, isEnding),
    drainMs,
    log: (_level, message, fields) => lines.push({ message, ...fields }),
  });
  listeners.push(listener);
  const opened = lines[0]?.port ?? 0;
  const status = async () =>
    await fetch(`http://${HOST}:${opened}/api/v1/ids`).then(
      (response) => response.status,
      () => 'refused',
    );
  return { stage, listener, lines, port: opened, status };
}

/** APIs that take their time to close, and how many have closed. */
function lingering() {
  let closed = 0;
  const createApi = () => {
    const api = new ApiStage().api();
    api.app.addHook('onClose', async () => {
      await nextTurn();
      closed += 1;
    });
    return api;
  };
  return { createApi, closed: () => closed };
}

describe('the port', () => {
  test.each(['CLOCK_BACKWARD', 'CLOCK_FORWARD', 'CLOCK_FROZEN', 'CLOCK_DRIFT', 'LEASE_LOST'] as const)(
    'closes on %s, stays closed for other reasons after it, and is the same when the gate opens',
    async (reason) => {
      const { listener, status } = await start();
      expect(await status()).toBe(200);
      listener.gateChanged(reason);
      expect(await status()).toBe('refused');
      listener.gateChanged('NO_IDENTITY');
      expect(await status()).toBe('refused');
      listener.gateChanged(undefined);
      await expect.poll(status).toBe(200);
    },
  );

  test.each(['STARTING', 'LEASE_SUSPENDED', 'NO_IDENTITY', 'KAFKA_UNAVAILABLE', 'POOL_EXHAUSTED'] as const)(
    'stays open on %s, and answers with it',
    async (reason) => {
      const { stage, listener, status } = await start();
      stage.reason = reason;
      listener.gateChanged(reason);
      expect(await status()).toBe(503);
    },
  );

  test('cuts open connections when it closes', async () => {
    const { listener, port } = await start();
    const idle = connect({ host: HOST, port });
    idle.on('error', () => undefined); // a cut connection may come as a reset
    await once(idle, 'connect');
    const closed = once(idle, 'close');
    listener.gateChanged('LEASE_LOST');
    await closed;
  });

  test('follows the gate, however fast it opens and closes', async () => {
    const { listener, status } = await start();
    for (let turn = 0; turn < 50; turn += 1) {
      listener.gateChanged('LEASE_LOST');
      listener.gateChanged(undefined);
    }
    await expect.poll(status).toBe(200);
    for (let turn = 0; turn < 50; turn += 1) {
      listener.gateChanged(undefined);
      listener.gateChanged('LEASE_LOST');
    }
    await expect.poll(status).toBe('refused');
  });

  test('taken by another process meanwhile is retried until it is free', async () => {
    const { listener, lines, port, status } = await start();
    listener.gateChanged('LEASE_LOST');
    await expect.poll(() => lines.at(-1)?.message).toBe('the HTTP port is closed');
    const other = createServer((_, response) => response.writeHead(418).end()).listen(port, HOST);
    await once(other, 'listening');
    listener.gateChanged(undefined);
    await expect.poll(() => lines.at(-1)?.message).toContain('retrying');
    other.close();
    other.closeAllConnections();
    await expect.poll(status).toBe(200);
  });

  test('taken at the start is CONFIG_INVALID, with the variable', async () => {
    const { port } = await start();
    await expect(start(port)).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('API_PORT'),
    });
  });

  test('taken at the start leaves nothing open behind the error', async () => {
    const { port } = await start();
    const { createApi, closed } = lingering();
    const opened = ApiListener.open({ host: HOST, port, createApi, drainMs: 0, log: () => undefined });
    await expect(opened).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    expect(closed()).toBe(1);
  });
});

describe('the end', () => {
  test('that is announced leaves the port open, and each response ends its connection, those after a reopening too', async () => {
    const { listener, port, status } = await start();
    const kept = async () => (await fetch(`http://${HOST}:${port}/api/v1/ids`)).headers.get('connection');
    expect(await kept()).toBe('keep-alive');
    listener.announceEnd();
    expect([await status(), await kept()]).toEqual([200, 'close']);
    listener.gateChanged('LEASE_LOST');
    listener.gateChanged(undefined);
    await expect.poll(status).toBe(200);
    expect(await kept()).toBe('close');
  });

  test('finishes responses in progress, rejects new connections, and does not wait for idle ones', async () => {
    const { stage, listener, port, status } = await start();
    const idle = connect({ host: HOST, port });
    idle.on('error', () => undefined); // a cut connection may come as a reset
    await once(idle, 'connect');
    const held = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    stage.before = () => {
      begun.resolve();
      return held.promise;
    };
    const answer = fetch(`http://${HOST}:${port}/api/v1/ids?count=50000`);
    await begun.promise;
    const stopped = listener.stop();
    expect(await status()).toBe('refused');
    held.resolve();
    expect(await (await answer).json()).toMatchObject({ ids: { length: 50_000 } });
    await stopped;
  });

  test('does not wait longer than its limit', async () => {
    const { stage, listener, port } = await start(0, 100);
    const begun = Promise.withResolvers<void>();
    stage.before = () => {
      begun.resolve();
      return new Promise(() => undefined);
    };
    const answer = fetch(`http://${HOST}:${port}/api/v1/ids`);
    const cut = expect(answer).rejects.toThrow();
    await begun.promise;
    await listener.stop();
    await cut;
  });

  test('is logged when all of it is closed', async () => {
    const { createApi, closed } = lingering();
    const lines: string[] = [];
    const log = (_level: string, message: string) => lines.push(`${message}: ${closed()}`);
    const listener = await ApiListener.open({ host: HOST, port: 0, createApi, drainMs: 0, log });
    await listener.stop();
    expect(lines).toEqual(['the HTTP API is listening: 0', 'the HTTP port is closed: 1']);
  });

  test('is final', async () => {
    const { listener, status } = await start();
    await listener.stop();
    listener.gateChanged(undefined);
    await listener.stop();
    expect(await status()).toBe('refused');
  });
});
