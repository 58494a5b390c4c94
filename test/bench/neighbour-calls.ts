import { Agent, get } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import type { FloodTarget } from './neighbour-flood.ts';

/**
 * The floods of the neighbour bench that go to a worker's listeners. They come from another address than the calls that
 * are measured, since the listeners charge an address for what has no caller.
 */
const HOST = { host: '127.0.0.1', localAddress: '127.0.0.2' } as const;
const SLOW_READERS = 350;
const OPS_CONNECTIONS = 50;
const HANDSHAKES_PER_S = 274;
const RETRY_MS = 5;

/** Floods until the signal; calls `begun` once it does. */
type CallFlood = (target: FloodTarget, ended: AbortSignal, begun: () => void) => Promise<void>;

export const CALL_FLOODS: Readonly<Record<string, CallFlood>> = {
  /** 350 connections that ask for 100,000 IDs and do not read them. */
  http: async ({ apiPort, token }, ended, begun) => {
    const input = `POST /api/v1/ids?count=100000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: 0\r\n\r\n`;
    const sockets = Array.from({ length: SLOW_READERS }, () => {
      const socket = connect({ ...HOST, port: apiPort });
      socket.on('error', () => undefined).pause();
      socket.write(input);
      return socket;
    });
    begun();
    while (!ended.aborted) await sleep(100);
    for (const socket of sockets) socket.destroy();
  },
  /** 50 connections to the ops port that ask for the status, or for an ID to be read, as fast as they are answered. */
  ops: async ({ opsPort }, ended, begun) => {
    const agent = new Agent({ keepAlive: true, maxSockets: OPS_CONNECTIONS });
    const ask = async (nth: number) => {
      const path = nth % 2 === 0 ? '/status' : `/decode?id=11765245205603${1_000 + (nth % 9_000)}`;
      const answered = Promise.withResolvers<boolean>();
      get({ ...HOST, port: opsPort, agent, path }, (response) => {
        response.resume().once('close', () => answered.resolve(true));
      }).once('error', () => answered.resolve(false));
      if (!(await answered.promise)) await sleep(RETRY_MS);
    };
    begun();
    const asking = Array.from({ length: OPS_CONNECTIONS }, async (_, connection) => {
      for (let nth = connection; !ended.aborted; nth += 1) await ask(nth);
    });
    await Promise.all(asking);
    agent.destroy();
  },
  /** 274 TLS handshakes a second with the HTTP API, each on a new connection that asks nothing. */
  handshakes: async ({ apiPort }, ended, begun) => {
    begun();
    const startedMs = performance.now();
    for (let made = 0; !ended.aborted; await sleep(RETRY_MS)) {
      for (; made < ((performance.now() - startedMs) * HANDSHAKES_PER_S) / 1_000; made += 1) {
        const socket = connectTls({ ...HOST, port: apiPort, rejectUnauthorized: false }, () => socket.destroy());
        socket.on('error', () => undefined);
      }
    }
  },
};
