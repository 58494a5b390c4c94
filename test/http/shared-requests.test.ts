import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { Connections } from '../../src/http/connections.ts';
import { LoopShare } from '../../src/http/loop-share.ts';
import { boundedServer } from '../../src/http/server.ts';

const COUNT = 60;
const nextTurn = () => new Promise((resolve) => setImmediate(resolve));
const REQUEST = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n';

/**
 * A request on each of many connections at once; each takes the whole time of a turn. Returns the turns in which they
 * were answered.
 */
async function ask(answered: (count: number, cut: () => void) => void = () => undefined): Promise<readonly number[]> {
  let nowMs = 0;
  let turn = 0;
  let isWarm = false;
  const turns: number[] = [];
  const connections = new Connections({ maxConnections: COUNT }, () => undefined);
  const share = new LoopShare(() => nowMs);
  const options = { connections, requestTimeoutMs: 60_000, refused: () => undefined, share };
  const server = boundedServer((_request, response) => {
    turns.push(turn);
    nowMs += 1;
    response.end();
    if (isWarm) answered(turns.length, () => connections.cutAll());
  }, options).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const sockets = Array.from({ length: COUNT }, () => connect({ host: '127.0.0.1', port }).resume());
  const count = () => {
    turn += 1;
    immediate = setImmediate(count);
  };
  let immediate = setImmediate(count);
  onTestFinished(() => {
    clearImmediate(immediate);
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  for (const socket of sockets) socket.on('error', () => undefined).write(REQUEST);
  while (turns.length < COUNT) await nextTurn(); // all are accepted
  turns.length = 0;
  isWarm = true;
  for (const socket of sockets) socket.write(REQUEST);
  await expect.poll(() => turns.length > 0 && connections.inProgress === 0).toBe(true);
  return turns;
}

test('of requests that arrive together a few are answered in a turn, so that others have the event loop meanwhile', async () => {
  const turns = await ask();
  expect(turns).toHaveLength(COUNT);
  const byTurn = [...Map.groupBy(turns, (turn) => turn).values()].map(({ length }) => length);
  expect(Math.max(...byTurn)).toBeLessThanOrEqual(9);
});

test('a request that waits for its turn is forgotten with its connection', async () => {
  const turns = await ask((count, cut) => count === 9 && cut());
  expect(turns).toHaveLength(9);
});
