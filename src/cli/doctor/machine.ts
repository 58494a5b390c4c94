import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, readFile, statfs } from 'node:fs/promises';
import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import { dirname, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import { tlsOf } from '../../kafka/wire/settings.ts';
import { spanText } from '../output.ts';
import { type Check, fault, ok, warn } from './checks.ts';

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

/** Compares the clocks by the Date header of etcd's HTTP endpoint, which has whole seconds. */
export async function checkClock(
  endpoint: string,
  tls: Config['etcd']['tls'],
  timeoutMs: number,
  now: () => number,
): Promise<Check> {
  const sentMs = now();
  try {
    const reportedMs = Date.parse(await dateOf(new URL('/version', endpoint), tls, timeoutMs));
    const receivedMs = now();
    if (Number.isNaN(reportedMs)) throw new Error('its response has no Date header');
    return judgeClock(endpoint, reportedMs, sentMs, receivedMs);
  } catch (error) {
    const fix = 'none needed if the endpoint serves gRPC only: workers compare their clock with the brokers';
    return warn(`clock against ${endpoint}`, `unknown: ${describeError(error)}`, fix);
  }
}

/** The built-in fetch does not support client certificates. */
function dateOf(url: URL, tls: Config['etcd']['tls'], timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const take = (answer: IncomingMessage) => {
      answer.resume();
      resolve(answer.headers.date ?? '');
    };
    const options = { signal: AbortSignal.timeout(timeoutMs), agent: false };
    const request =
      url.protocol === 'https:'
        ? getHttps(url, { ...options, ...tlsOf(tls ?? {}) }, take)
        : getHttp(url, options, take);
    request.once('error', reject);
  });
}

const CLOCK_ADVICE =
  'run NTP with slewing: chronyd without makestep (or makestep 1 3, for the boot only), or ntpd -x; never ntpd -g, never a step';

/** The worker acts on a drift of more than this. */
const DRIFT_MS = 1_000;

/**
 * Compares our clock with a server that reported its time in whole seconds, between `sentMs` and `receivedMs` of our
 * clock. Only what is certain counts: the server's time was in [reportedMs, reportedMs + 1000).
 */
export function judgeClock(server: string, reportedMs: number, sentMs: number, receivedMs: number): Check {
  const name = `clock against ${server}`;
  const [least, most] = [reportedMs - receivedMs, reportedMs + 999 - sentMs];
  if (least > DRIFT_MS) return fault(name, `this machine is at least ${spanText(least)} behind`, CLOCK_ADVICE);
  if (most < -DRIFT_MS) return fault(name, `this machine is at least ${spanText(-most)} ahead`, CLOCK_ADVICE);
  return ok(name, `within ${spanText(Math.max(Math.abs(least), Math.abs(most)))}`);
}

/** `line`: the output of `chronyc -c tracking`. Undefined for any other text. */
export function judgeChrony(line: string): Check | undefined {
  const fields = line.trim().split(',');
  const offsetMs = Number(fields[4]) * 1_000;
  if (fields.length < 14 || Number.isNaN(offsetMs)) return undefined;
  const detail = `chrony: ${fields[13]}, stratum ${fields[2]}, off by ${offsetMs.toFixed(3)} ms`;
  const synchronised = fields[13] === 'Normal' && fields[2] !== '0';
  return synchronised ? ok('NTP', detail) : fault('NTP', detail, CLOCK_ADVICE);
}

/** `text`: the output of `timedatectl show`. Undefined if it has no NTP state. */
export function judgeTimedatectl(text: string): Check | undefined {
  const value = /^NTPSynchronized=(yes|no)$/m.exec(text)?.[1];
  if (value === undefined) return undefined;
  if (value === 'yes') return ok('NTP', 'timedatectl: synchronised');
  return fault('NTP', 'timedatectl: not synchronised', CLOCK_ADVICE);
}

function unknownNtp(): Check {
  return warn('NTP', 'neither chronyc nor timedatectl reports a synchronised clock', CLOCK_ADVICE);
}

/** `text`: the content of chrony.conf. A step after the boot ejects every worker of the machine. */
export function judgeChronyConf(text: string): Check | undefined {
  const rule = /^[ \t]*makestep[ \t]+(\S+)[ \t]+(-?\d+)/m.exec(text);
  if (rule === null) return undefined;
  const [, threshold, limit] = rule;
  if (Number(limit) >= 0 && Number(limit) <= 3) return undefined;
  return warn(
    'NTP steps',
    `chrony.conf has 'makestep ${threshold} ${limit}': the clock may step at any time`,
    CLOCK_ADVICE,
  );
}

const OPEN_FILES = 4_096;

/** `text`: the content of /proc/self/limits. Undefined if it has no limit of open files. */
export function judgeLimits(text: string): Check | undefined {
  const soft = /^Max open files\s+(\d+|unlimited)/m.exec(text)?.[1];
  if (soft === undefined) return undefined;
  const detail = `${soft} open files`;
  if (soft === 'unlimited' || Number(soft) >= OPEN_FILES) return ok('limits', detail);
  return warn(
    'limits',
    detail,
    `raise it to ${OPEN_FILES} or more with ulimit -n, LimitNOFILE= or the container's ulimits`,
  );
}

const LITTLE_BYTES = 2 ** 30;
const NO_BYTES = 100 * 2 ** 20;

export function judgeDisk(directory: string, writable: boolean, freeBytes: number): Check {
  const name = 'index directory';
  const detail = `${directory}, ${(freeBytes / 2 ** 30).toFixed(1)} GiB free`;
  if (!writable) return fault(name, `${detail}, not writable`, 'let the worker write there, or set INDEX_DIR');
  if (freeBytes < NO_BYTES) return fault(name, detail, 'free disk space: the index is a copy of the ledger');
  if (freeBytes < LITTLE_BYTES) return warn(name, detail, 'free disk space: the index is a copy of the ledger');
  return ok(name, detail);
}
