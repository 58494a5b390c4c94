import { homedir } from 'node:os';
import { join } from 'node:path';

/** The root of this checkout. */
export const ROOT = join(import.meta.dirname, '../..');

/** What `npm start` keeps between runs: the data of its servers, its worker's index, logs, locks. */
export const STATE_DIR = join(ROOT, '.idalloc/dev');

/** Compiled code of what tests start by the hundred: workers, commands, simulators. All but the first save the time. */
export const COMPILE_CACHE = join(ROOT, '.idalloc/compile-cache');

/**
 * Where downloaded jars and built programs are kept. It is outside the checkout, since they depend only on a version: a
 * second clone starts without a download.
 */
export function cacheDir(env: NodeJS.ProcessEnv): string {
  return env.IDALLOC_CACHE_DIR || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'idalloc');
}
