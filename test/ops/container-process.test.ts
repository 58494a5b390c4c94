import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { logHolds, untilReady } from '../../ops/dev/child.ts';
import { containerName, endContainer, inContainer, startContainer } from '../../ops/dev/container-process.ts';

const CONTAINER = { image: 'it:1', user: '7:8' };
let dir: string;
let calls: string;
let logFile: string;

/** A docker program that notes its calls; `run` serves until SIGTERM. */
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-container-'));
  calls = join(dir, 'calls');
  logFile = join(dir, 'log');
  const serve = 'trap "exit 0" TERM; echo up; while :; do sleep 0.05; done';
  writeFileSync(join(dir, 'docker'), `#!/bin/sh\necho "$*" >>${calls}\n[ "$1" = run ] || exit 0\n${serve}\n`);
  chmodSync(join(dir, 'docker'), 0o755);
  vi.stubEnv('PATH', `${dir}:${process.env.PATH}`);
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(dir, { recursive: true });
});

const program = () => ({ command: 'serve', args: ['--now'], dir, ports: [4001] });
const callsOf = (verb: string) =>
  readFileSync(calls, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith(`${verb} `));

test('a program in a container sees one directory, under its own path, and has its ports on the loopback address', () => {
  const { args } = inContainer('name', CONTAINER, program());
  const text = args.join(' ');
  for (const part of [`--volume ${dir}:${dir}`, '--publish 127.0.0.1:4001:4001', '--user 7:8']) {
    expect(text).toContain(part);
  }
  expect(text).toMatch(/--entrypoint serve it:1 --now$/);
});

test('containers of different directories have different names', () => {
  expect(containerName('/a/kafka')).not.toBe(containerName('/b/kafka'));
});

test('a stopped container is removed, and leaves no record', async () => {
  const child = await startContainer({ name: 'it', logFile }, CONTAINER, program());
  await untilReady(child, () => logHolds(logFile, 'up'), { timeoutMs: 30_000 });
  await child.stop();
  expect(child.ended()).toBe('exit code 0');
  expect(callsOf('rm')).toEqual([`rm --force --volumes ${containerName(dir)}`]);
  expect(existsSync(`${logFile}.container`)).toBe(false);
});

test('a container that a killed process left behind is removed before its data is used again, and only once', async () => {
  writeFileSync(`${logFile}.container`, 'idalloc-left');
  await endContainer(logFile);
  await endContainer(logFile);
  expect(callsOf('rm')).toEqual(['rm --force --volumes idalloc-left']);
});
