import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { VARIABLES } from '../../src/config/variables.ts';
import { curl } from '../support/curl.ts';
import { Page } from '../support/page.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const run = promisify(execFile);
const page = new Page('how-to/http-callers.md', (text) => text);
/** A worker checks its files once a second. */
const WITHIN = { timeout: 120_000 };

let realm: Realm;
let dir: string;
let worker: WorkerProcess | undefined;
/** The variables that the page has set so far, by name, as bash prints them. */
const set = new Map<string, string>();

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-callers-page-'));
  realm = await Realm.create(suiteServers());
});

afterAll(async () => {
  await realm?.[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

/** Runs a line of bash in the page's directory, with the variables that the page has set before. */
async function bash(line: string): Promise<string> {
  const { stdout } = await run('bash', ['-ec', [...set.values(), line].join('\n')], { cwd: dir });
  return stdout;
}

/** Starts a worker with the page's variables, on a free port of the loopback address. */
async function startWorker(): Promise<void> {
  await worker?.stop();
  const lines = (await bash('env')).split('\n').map((line) => line.split('=', 2) as [string, string]);
  const own = lines.filter(([name]) => name.replace(/_FILE$/, '') in VARIABLES && /^API_(TOKEN|TLS)/.test(name));
  worker = realm.worker(Object.fromEntries(own));
  await worker.ready();
}

/** The output of a curl command of the page, whose arguments the shell expands. */
async function asked(command: string): Promise<string> {
  if (worker === undefined) throw new Error('the page has started no worker yet');
  const args = (await bash(`printf '%s\\n' ${command.replace(/^curl /, '')}`)).trimEnd().split('\n');
  return await curl(args, worker, dir);
}

/** Runs a line of the page, and keeps the variables that it sets. */
async function follow(command: string): Promise<void> {
  const [, unset] = /^unset (\w+)$/.exec(command) ?? [];
  if (unset !== undefined) return void set.delete(unset);
  const names = [...command.matchAll(/(?:^|^export | )([A-Za-z_]+)=/g)].map(([, name = '']) => name);
  if (!/^(export |\w+=)/.test(command)) return void (await bash(command));
  for (const name of names) set.set(name, (await bash(`${command}\ndeclare -p ${name}`)).trimEnd());
}

test.for(page.commands.map((command, at) => ({ command, at })))('$at: $command', async ({ command }) => {
  if (command === 'idalloc worker') return await startWorker();
  if (!command.startsWith('curl ')) return await follow(command);
  await expect.poll(() => asked(command), WITHIN).toMatch(/^\{"ids":\[\{"value_string":"\d+"/);
});

test('the page has commands for tokens, TLS and client certificates', () => {
  expect(page.commands.filter((command) => command.startsWith('curl '))).toHaveLength(3);
  expect(page.commands.filter((command) => command === 'idalloc worker')).toHaveLength(3);
});

test('the page replaces a token of one caller and keeps that of the other', async () => {
  const [, old = ''] = /old="(\w+)"/.exec(set.get('old') ?? '') ?? [];
  expect(old).toMatch(/^[0-9a-f]{64}$/);
  expect(await bash('cat tokens')).not.toContain(old);
  expect(await bash('cat tokens')).toMatch(/^billing:\w+\norders:\w+\n$/);
});
