import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, readFile, statfs } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { Config } from '../../config/config.ts';
import {
  type Check,
  judgeChrony,
  judgeChronyConf,
  judgeDisk,
  judgeLimits,
  judgeTimedatectl,
  unknownNtp,
} from './checks.ts';

const TOOL_TIMEOUT_MS = 5_000;
const CHRONY_CONFS = ['/etc/chrony/chrony.conf', '/etc/chrony.conf'];
const LIMITS = '/proc/self/limits';

/** Checks this machine: clock synchronisation, limits, and the disk of the index. */
export async function checkMachine({ indexDir }: Config): Promise<Check[]> {
  const chrony = judgeChrony(await output('chronyc', ['-c', 'tracking']));
  const ntp = chrony ?? judgeTimedatectl(await output('timedatectl', ['show'])) ?? unknownNtp();
  const confs = await Promise.all(CHRONY_CONFS.map(contents));
  const limits = judgeLimits(await contents(LIMITS));
  return [ntp, confs.map(judgeChronyConf), limits, await checkDisk(indexDir)]
    .flat()
    .filter((check) => check !== undefined);
}

/** The output of a tool; empty if it is missing or fails. */
async function output(tool: string, args: readonly string[]): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(tool, [...args], { timeout: TOOL_TIMEOUT_MS });
    return stdout;
  } catch {
    return '';
  }
}

async function contents(path: string): Promise<string> {
  return await readFile(path, 'utf8').catch(() => '');
}

/** The worker creates a missing directory, so the nearest existing parent counts. */
async function checkDisk(indexDir: string): Promise<Check> {
  let directory = resolve(indexDir);
  while (!(await may(directory, constants.F_OK)) && dirname(directory) !== directory) directory = dirname(directory);
  const { bavail, bsize } = await statfs(directory);
  return judgeDisk(resolve(indexDir), await may(directory, constants.W_OK | constants.X_OK), bavail * bsize);
}

async function may(path: string, mode: number): Promise<boolean> {
  return await access(path, mode).then(
    () => true,
    () => false,
  );
}
