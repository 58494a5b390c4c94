import { versions } from 'node:process';
import { IdallocError } from '../client/index.ts';

/** What testcontainers 12 needs. An older Node fails inside one of its packages, with an error that names no remedy. */
const OLDEST_MAJOR = 22;
const OLDEST_MINOR = 22;

/**
 * Fails on a Node that can't load testcontainers.
 *
 * @throws IdallocError CONFIG_INVALID with what to do.
 */
export function requireNode(version: string): void {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major > OLDEST_MAJOR || (major === OLDEST_MAJOR && minor >= OLDEST_MINOR)) return;
  const needed = `needs Node ${OLDEST_MAJOR}.${OLDEST_MINOR} or later, as testcontainers does, and this is ${version}`;
  const remedy = 'run these tests with a newer Node; for tests without containers there is MemoryWorkers';
  throw new IdallocError('CONFIG_INVALID', `@idalloc/testcontainers ${needed}: ${remedy} of @idalloc/client/testing`);
}

requireNode(versions.node);
