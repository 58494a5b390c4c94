// A lock between processes, as a file that names its holder. Plain JavaScript for the same reason as process-identity.
import { linkSync, mkdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRunning, ownIdentity } from './process-identity.mjs';

/**
 * Removing a stale lock takes microseconds; a mark that is older than this is from a process that was killed meanwhile.
 */
const REMOVAL_ABANDONED_MS = 10_000;

/**
 * Takes the lock file, or returns its holder. A lock whose holder no longer runs (by pid and start time) is stale, and
 * is taken over. Undefined if the file is just being removed: try again.
 * @param {string} path
 */
export function tryLock(path) {
  const own = ownIdentity();
  mkdirSync(dirname(path), { recursive: true });
  if (claim(path, own)) return { acquired: true, release: () => release(path, own) };
  const holder = readHolder(path);
  if (holder && isRunning(holder)) return { acquired: false, holder };
  removeStale(path);
  return undefined;
}

/**
 * Waits for the lock, at most `timeoutMs`. `onWait` is called once, if another process holds it.
 * @param {string} path
 * @param {{ timeoutMs: number, onWait?: (holder: { pid: number }) => void, signal?: AbortSignal }} options
 */
export async function acquireLock(path, options) {
  const deadline = performance.now() + options.timeoutMs;
  let reported = false;
  while (performance.now() < deadline) {
    const result = tryLock(path);
    if (result?.acquired) return result.release;
    if (result && !reported) {
      reported = true;
      options.onWait?.(result.holder);
    }
    await sleep(100, undefined, options.signal ? { signal: options.signal } : {});
  }
  throw new Error(`${path} is still held by another process after ${Math.round(options.timeoutMs / 1000)} s`);
}

/**
 * The file appears with its content, or not at all: a link, unlike an open, never shows half the content.
 * @param {string} path
 * @param {{ pid: number, start: string }} own
 */
function claim(path, own) {
  const draft = `${path}.${own.pid}`;
  writeFileSync(draft, JSON.stringify(own));
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

/** @param {string} path */
function readHolder(path) {
  try {
    const { pid, start } = JSON.parse(readFileSync(path, 'utf8'));
    return typeof pid === 'number' && typeof start === 'string' ? { pid, start } : undefined;
  } catch (error) {
    if (error.code === 'ENOENT' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/**
 * Removes a stale lock. Judging and removing must be one step, else the second of two removers deletes the lock that
 * the first has just taken: a directory beside the lock makes them take turns.
 * @param {string} path
 */
function removeStale(path) {
  const turn = `${path}.removing`;
  try {
    mkdirSync(turn);
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    const age = Date.now() - (statSync(turn, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > REMOVAL_ABANDONED_MS) rmdirSync(turn);
    return;
  }
  try {
    const holder = readHolder(path);
    if (!holder || !isRunning(holder)) rmSync(path, { force: true });
  } finally {
    rmdirSync(turn);
  }
}

/**
 * @param {string} path
 * @param {{ pid: number, start: string }} own
 */
function release(path, own) {
  const holder = readHolder(path);
  if (holder?.pid === own.pid && holder.start === own.start) rmSync(path, { force: true });
}
