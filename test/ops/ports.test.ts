import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { allFree, freePorts, portsOf } from '../../ops/dev/ports.ts';

/** The first port that Linux gives to outgoing connections. */
const EPHEMERAL = 32_768;

test('free ports differ, and no outgoing connection takes one while its server restarts', async () => {
  const ports = await freePorts(50);
  expect(new Set(ports).size).toBe(50);
  expect(Math.max(...ports)).toBeLessThan(EPHEMERAL);
  expect(await allFree(ports)).toBe(true);
});

test('a server takes its usual port while nobody has it, else the port that it had last time', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-ports-'));
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as AddressInfo;
  try {
    const taken = await portsOf(dir, 2, [port]);
    expect(taken).not.toContain(port);
    expect(await portsOf(dir, 2, [port])).toEqual(taken);
    await new Promise((resolve) => other.close(resolve));
    expect(await portsOf(dir, 2, [port])).toEqual([port, taken[1]]);
  } finally {
    other.close();
    rmSync(dir, { recursive: true });
  }
});
