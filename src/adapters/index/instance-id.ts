import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { IdallocError } from '../../errors.ts';

const FILE = 'instance-id';
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * The name of this worker in the request group, stored in its index directory: a process that restarts with the same
 * directory is the same member. The caller holds the directory's lock, so two processes can't share a name.
 *
 * @throws IdallocError INDEX_UNUSABLE when the directory can't be read or written.
 */
export function instanceIdIn(directory: string, newUuid: () => string): string {
  const path = join(directory, FILE);
  const stored = read(path);
  if (stored !== undefined && UUID.test(stored)) return stored;
  const fresh = newUuid();
  try {
    writeFileSync(`${path}.new`, fresh);
    renameSync(`${path}.new`, path);
  } catch (error) {
    throw unusable(path, error);
  }
  return fresh;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw unusable(path, error);
  }
}

function unusable(path: string, cause: unknown): IdallocError {
  const message = `${path} can't be read or written: check INDEX_DIR (${(cause as Error).message})`;
  return new IdallocError('INDEX_UNUSABLE', message, { cause });
}
