import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { Connections } from '../../src/http/connections.ts';

class FakeSocket extends EventEmitter {
  readonly remoteAddress = '10.0.0.1';
  readonly remotePort: number;
  readonly #closesLate: boolean;
  destroyed = false;

  constructor(remotePort: number, closesLate: boolean) {
    super();
    this.remotePort = remotePort;
    this.#closesLate = closesLate;
  }

  destroy(): void {
    this.destroyed = true;
    if (!this.#closesLate) this.emit('close');
  }
}

/** `closesLate`: sockets that are destroyed report it after the test. */
function stage(maxConnections: number, closesLate = false) {
  let shed = 0;
  let port = 0;
  const connections = new Connections({ maxConnections }, () => {
    shed += 1;
  });
  const open = () => {
    port += 1;
    const socket = new FakeSocket(port, closesLate) as unknown as Socket;
    connections.admit(socket);
    return socket;
  };
  /** Starts a request of the caller; `end` closes its response. */
  const ask = (socket: Socket, caller: string) => {
    const response = new EventEmitter() as unknown as ServerResponse;
    connections.requestStarted(socket, response);
    connections.requestComplete(socket, response);
    const end = () => response.emit('close');
    try {
      connections.claim(socket, caller);
    } catch (error) {
      expect(error).toMatchObject({ status: 429, headers: { 'retry-after': '1' } });
      end();
      return undefined;
    }
    return end;
  };
  /** Idle connections of the caller. */
  const own = (caller: string, count: number) =>
    Array.from({ length: count }, () => {
      const socket = open();
      ask(socket, caller)?.();
      return socket;
    });
  const hold = (caller: string, most: number) => {
    const held = [];
    for (let nth = 0; nth < most; nth += 1) {
      const socket = open();
      const end = ask(socket, caller);
      if (end !== undefined) held.push({ socket, end });
    }
    return held;
  };
  return { connections, open, ask, own, hold, shed: () => shed };
}

const closed = (sockets: readonly Socket[]) => sockets.filter(({ destroyed }) => destroyed).length;

describe('a caller', () => {
  test('may have half of the connections in progress, if it is alone', () => {
    const { hold } = stage(100);
    expect(hold('mallory', 100)).toHaveLength(50);
  });

  test('whose responses are not read leaves connections to others, and to newcomers', () => {
    const { hold, open } = stage(100);
    hold('mallory', 1_000);
    expect(hold('victim', 20)).toHaveLength(20);
    expect(open().destroyed).toBe(false);
  });

  test('gets its share back as its responses end, or their connections close', () => {
    const { hold } = stage(100);
    for (const { end } of hold('mallory', 100).slice(0, 20)) end();
    for (const { socket } of hold('mallory', 100).slice(0, 10)) socket.destroy();
    expect(hold('mallory', 100)).toHaveLength(10);
  });

  test('gets its share back where a connection with two responses closes, of which one never ends', () => {
    const { open, ask, hold } = stage(4);
    for (let nth = 0; nth < 100; nth += 1) {
      const socket = open();
      ask(socket, 'mallory');
      ask(socket, 'mallory');
      socket.destroy();
    }
    expect(hold('mallory', 4)).toHaveLength(2);
  });

  test('with more connections than all others loses its own at the limit, not theirs', () => {
    const { own, shed } = stage(10);
    const victim = own('victim', 3);
    const mallory = own('mallory', 50);
    expect([closed(victim), closed(mallory), shed()]).toEqual([0, 43, 43]);
  });

  test('with more connections than all others loses its own, though it came first', () => {
    const { own, shed } = stage(10);
    const mallory = own('mallory', 8);
    const victim = own('victim', 5);
    expect([closed(victim), closed(mallory), shed()]).toEqual([0, 3, 3]);
  });

  test('keeps its idle connections beside a flood of those that send nothing', () => {
    const { open, ask } = stage(10);
    const victim = [open(), open()];
    for (const socket of victim) ask(socket, 'victim')?.();
    for (let nth = 0; nth < 100; nth += 1) open();
    expect(closed(victim)).toBe(0);
  });
});

test('each newcomer at the limit closes another connection, though none has reported its end yet', () => {
  const { connections, open, shed } = stage(3, true);
  const all = Array.from({ length: 10 }, () => open());
  expect(all.map(({ destroyed }) => destroyed)).toEqual([...new Array(7).fill(true), false, false, false]);
  expect([connections.size, shed()]).toEqual([3, 7]);
});

test('a connection that was closed for another one counts for nobody, though its request is read afterwards', () => {
  const { connections, open, ask, own } = stage(4, true);
  const [first, second] = [open(), open(), open()];
  const victim = own('victim', 1);
  const mallory = own('mallory', 2); // closes the first two
  for (const gone of [first, second]) ask(gone, 'victim');
  expect(connections.inProgress).toBe(0);
  open();
  expect([closed(victim), closed(mallory)]).toEqual([0, 1]);
});

test('when all are to end, those with a response in progress end after it', () => {
  const { connections, open, ask } = stage(10);
  const [idle, busy] = [open(), open()];
  const end = ask(busy, 'a');
  connections.endAll();
  expect([idle.destroyed, busy.destroyed, connections.isEnding(busy)]).toEqual([true, false, true]);
  end?.();
  expect(busy.destroyed).toBe(true);
  const next = open();
  ask(next, 'a')?.();
  expect([next.destroyed, connections.isEnding(next)]).toEqual([false, false]);
});
