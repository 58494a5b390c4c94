import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { acquireLock } from '../dev/lock.mjs';

const BUILD_TIMEOUT_MS = 20 * 60_000;
const PROGRESS_MS = 10_000;

export interface BuildOptions {
  readonly cache: string;
  /** The name of what is built, for the progress: "Kafka 4.1.1". */
  readonly what: string;
  readonly log: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
}

/** A directory name that changes with the version and with the files that define the build. */
export function cacheName(name: string, version: string, files: readonly string[]): string {
  const hash = createHash('sha256');
  for (const file of files) hash.update(readFileSync(file));
  return `${name}-${version}-${hash.digest('hex').slice(0, 8)}`;
}

/**
 * The cached directory `name`, which is built if it is missing. It is built under another name and renamed, so a
 * directory with this name is complete. One process builds, and others wait for it.
 */
export async function cached(
  name: string,
  options: BuildOptions,
  build: (into: string) => Promise<void>,
): Promise<string> {
  const target = join(options.cache, name);
  if (existsSync(target)) return target;
  mkdirSync(options.cache, { recursive: true });
  const release = await acquireLock(`${target}.lock`, {
    timeoutMs: BUILD_TIMEOUT_MS,
    onWait: ({ pid }) => options.log(`waiting for ${options.what}, which process ${pid} prepares`),
    signal: options.signal,
  });
  const work = mkdtempSync(join(options.cache, 'building-'));
  const startedAt = performance.now();
  const seconds = () => Math.round((performance.now() - startedAt) / 1000);
  const progress = setInterval(() => options.log(`still preparing ${options.what}, ${seconds()} s`), PROGRESS_MS);
  try {
    if (existsSync(target)) return target;
    options.log(`preparing ${options.what}, once per machine; kept in ${options.cache}`);
    await build(work);
    renameSync(work, target);
    options.log(`${options.what} is ready (${seconds()} s)`);
    return target;
  } finally {
    clearInterval(progress);
    rmSync(work, { recursive: true, force: true });
    release();
  }
}
