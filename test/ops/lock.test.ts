import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { acquireLock, tryLock } from '../../ops/dev/lock.mjs';
import { ownIdentity } from '../../ops/dev/process-identity.mjs';

let dir: string;
let path: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-lock-'));
  path = join(dir, 'deep/er/x.lock');
});

afterEach(() => rmSync(dir, { recursive: true }));

function holdBy(content: string): void {
  mkdirSync(join(dir, 'deep/er'), { recursive: true });
  writeFileSync(path, content);
}

const STALE = JSON.stringify({ pid: process.pid, start: 'another boot/1' });

test('a free lock is taken, names its holder, and is free again after the release', () => {
  const lock = tryLock(path);
  expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual(ownIdentity());
  if (!lock?.acquired) throw new Error('the lock was free');
  lock.release();
  expect(existsSync(path)).toBe(false);
});

test('a lock whose holder runs is not taken, and its holder is returned', () => {
  tryLock(path);
  expect(tryLock(path)).toEqual({ acquired: false, holder: ownIdentity() });
});

test('a lock of an earlier process with a reused pid is stale, and so is a truncated one', () => {
  for (const content of [STALE, '', '{"pid":', '{}']) {
    holdBy(content);
    expect(tryLock(path)).toBeUndefined();
    const lock = tryLock(path);
    if (!lock?.acquired) throw new Error(`not taken over from: ${content}`);
    lock.release();
  }
});

test('only one process removes a stale lock', () => {
  holdBy(STALE);
  mkdirSync(`${path}.removing`);
  tryLock(path);
  expect(readFileSync(path, 'utf8')).toBe(STALE);
});

test('a process that was killed while it removed a stale lock does not block the lock forever', () => {
  holdBy(STALE);
  mkdirSync(`${path}.removing`);
  utimesSync(`${path}.removing`, 1, 1);
  tryLock(path);
  tryLock(path);
  expect(tryLock(path)?.acquired).toBe(true);
});

test('releasing keeps a lock that another process has taken since', () => {
  const lock = tryLock(path);
  if (!lock?.acquired) throw new Error('the lock was free');
  writeFileSync(path, STALE);
  lock.release();
  expect(readFileSync(path, 'utf8')).toBe(STALE);
});

test('waiting for a held lock ends at its time limit, and reports the holder once', async () => {
  tryLock(path);
  const reported: number[] = [];
  const wait = acquireLock(path, { timeoutMs: 250, onWait: ({ pid }) => reported.push(pid) });
  await expect(wait).rejects.toThrow('still held');
  expect(reported).toEqual([process.pid]);
});

test('a stale lock is taken over without reporting a wait', async () => {
  holdBy(STALE);
  let reported = false;
  const release = await acquireLock(path, {
    timeoutMs: 5_000,
    onWait: () => {
      reported = true;
    },
  });
  release();
  expect(reported).toBe(false);
});
