import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
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

test('a port that a process was given goes to no other while that runs, though nothing listens on it', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-ports-'));
  const program = `
    import { freePorts } from ${JSON.stringify(new URL('../../ops/dev/ports.ts', import.meta.url))};
    console.log(JSON.stringify(await freePorts(2)));
    process.stdin.resume(); // until it is killed
  `;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  try {
    const [line] = await once(child.stdout, 'data');
    const theirs = JSON.parse(String(line)) as number[];
    const remember = () => writeFileSync(join(dir, 'ports.json'), JSON.stringify(theirs));
    remember();
    for (const port of await portsOf(dir, 2, theirs)) expect(theirs).not.toContain(port);
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    remember();
    expect(await portsOf(dir, 2)).toEqual(theirs);
  } finally {
    child.kill('SIGKILL');
    rmSync(dir, { recursive: true });
  }
});

test('a server takes its usual port while nobody has it, else the port that it had last time', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-ports-'));
  const other = createServer();
  const [port = 0] = await freePorts(1);
  await new Promise<void>((resolve) => other.listen(port, '127.0.0.1', resolve));
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
