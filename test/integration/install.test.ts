import { execFile } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';
import { ROOT } from '../../ops/dev/paths.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { readPage } from '../support/docs.ts';
import { PackedProjects } from '../support/packed-projects.ts';
import { Page } from '../support/page.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { WorkerProcess } from '../support/worker-process.ts';

const run = promisify(execFile);
const UNITS = join(ROOT, 'ops/systemd');
const TOKEN = 'a-token-of-orders';
/** Exposure in tenths, of 100. */
const MAX_EXPOSURE = 15;
/** What doctor prints of a broker, which a busy machine may make slow. */
const SEES_KAFKA = /^(ok|warn) +Kafka /m;
/** The command that installs and upgrades; test/support/shown-commands.ts names it. */
const INSTALL = 'npm install --prefix /opt/idalloc';

/**
 * A directory that stands for the machine's root, and one with the files that an operator has copied to the machine.
 */
const root = mkdtempSync(join(tmpdir(), 'idalloc-machine-'));
const copied = join(root, 'copied');
const here = (text: string) => text.replaceAll(/(?<![\w.])\/(?=(opt|etc|var)\/)/g, `${root}/`);
const page = new Page('operations/install.md', here);

let obstacle: string | undefined;
let realm: Realm;
let worker: WorkerProcess | undefined;
let ports: readonly number[];

beforeAll(async () => {
  obstacle = await ensurePrograms({ 'systemd-analyze': 'systemd' }, (line) =>
    process.stderr.write(`install: ${line}\n`),
  );
  if (obstacle !== undefined && process.env.CI) throw new Error(`CI is set, so the unit must be tested: ${obstacle}`);
  realm = await Realm.create(suiteServers());
  ports = await freePorts(2);
  for (const dir of [copied, `${root}/etc/systemd/system`]) mkdirSync(dir, { recursive: true });
  using projects = await PackedProjects.build();
  const tarball = projects.packed.find(({ name }) => name === 'idalloc')?.tarball ?? '';
  const [, named] = readPage('docs/operations/install.md').match(/^Copy `dist\/packages\/(\S+)` /m) ?? [];
  await bash(`cp ${dirname(tarball)}/${named} .`);
  expect(readdirSync(copied)).toEqual([basename(tarball)]);
  const unit = readFileSync(join(UNITS, 'idalloc.service'), 'utf8').replace('/usr/bin/node', process.execPath);
  writeFileSync(join(copied, 'idalloc.service'), here(unit));
  writeFileSync(join(copied, 'secrets.conf'), here(readFileSync(join(UNITS, 'secrets.conf'), 'utf8')));
  const settings = { ...realm.env, API_PORT: ports[0], OPS_PORT: ports[1] };
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`);
  writeFileSync(join(copied, 'idalloc.env'), here(readFileSync(join(UNITS, 'idalloc.env'), 'utf8')) + lines.join(''));
  writeFileSync(join(copied, 'api-tokens'), `orders:${TOKEN}\n`);
});

afterAll(async () => {
  await worker?.stop();
  await realm?.[Symbol.asyncDispose]();
  rmSync(root, { recursive: true, force: true });
});

/** Runs a line as root's bash would on the machine. */
async function bash(line: string): Promise<string> {
  const env = { ...process.env, SYSTEMD_UNIT_PATH: `${root}/etc/systemd/system:` };
  const { stdout, stderr } = await run('bash', ['-ec', here(line)], { cwd: copied, env });
  return stdout + stderr;
}

/** The settings of the installed unit and its drop-in, in order. */
function settingsOf(): { readonly name: string; readonly value: string }[] {
  const dir = `${root}/etc/systemd/system`;
  const files = [join(dir, 'idalloc.service'), join(dir, 'idalloc.service.d/secrets.conf')].filter(existsSync);
  return files.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/^(\w+)=(.*)$/gm)].map(([, name = '', value = '']) => ({ name, value })),
  );
}

/** Starts what the unit says, with its variables, files and credentials, and without its confinement. */
async function startService(): Promise<void> {
  await worker?.stop();
  const settings = settingsOf();
  const all = (wanted: string) => settings.flatMap(({ name, value }) => (name === wanted ? [value] : []));
  const credentials = join(root, 'run/credentials/idalloc.service');
  for (const [id = '', file = ''] of all('LoadCredential').map((value) => value.split(':'))) {
    mkdirSync(credentials, { recursive: true });
    rmSync(join(credentials, id), { force: true });
    copyFileSync(file, join(credentials, id));
    chmodSync(join(credentials, id), 0o400);
  }
  const expanded = (text: string) => text.replaceAll('%d', credentials).replaceAll('%C', `${root}/var/cache`);
  const pairs = [
    ...all('EnvironmentFile').flatMap((file) =>
      readFileSync(file, 'utf8')
        .split('\n')
        .filter((line) => /^\w+=/.test(line)),
    ),
    ...all('Environment').flatMap((value) => expanded(value).split(' ')),
  ];
  const env = Object.fromEntries(pairs.map((pair) => [pair.replace(/=.*/, ''), pair.replace(/^\w+=/, '')]));
  const [program = ''] = all('ExecStart');
  mkdirSync(dirname(env.INDEX_DIR ?? ''), { recursive: true });
  worker = new WorkerProcess(env, program.split(' '));
  await worker.ready();
}

const fetched = async (path: string, headers: Record<string, string> = {}) =>
  await fetch(`http://127.0.0.1:${ports[0]}${path}`, { headers });

test.for(page.commands.map((command, at) => ({ command, at })))('$at: $command', async ({ command }, context) => {
  if (obstacle !== undefined) context.skip(obstacle);
  if (command.startsWith('systemctl daemon-reload'))
    return expect(await bash('systemd-analyze verify /etc/systemd/system/idalloc.service')).toBe('');
  if (command.startsWith('systemctl ')) return await startService();
  if (command.startsWith('curl ')) {
    const ask = async () => {
      const answer = await fetch(`http://127.0.0.1:${ports[1]}/readyz`);
      return [answer.status, await answer.text()];
    };
    return await expect.poll(ask).toEqual([200, '{"status":"ready"}']);
  }
  if (command.startsWith('/opt/')) return expect(await doctor(command)).toMatch(SEES_KAFKA);
  const printed = await bash(command);
  if (command.startsWith('systemd-analyze')) expect(printed).toBe('');
});

/** The output of the page's call of doctor, with the settings that the line before it reads. */
async function doctor(command: string): Promise<string> {
  const before = page.commands[page.commands.indexOf(command) - 1];
  return await bash(`${before}\n${command.replace('/opt/', `${process.execPath} /opt/`)} || true`);
}

test('a verified unit is one that systemd would not complain about: it complains about a misspelled one', async (context) => {
  if (obstacle !== undefined) context.skip(obstacle);
  const wrong = join(root, 'wrong.service');
  writeFileSync(wrong, readFileSync(join(copied, 'idalloc.service'), 'utf8').replace('TimeoutStopSec', 'TimeoutStop'));
  const { stdout, stderr } = await run('systemd-analyze', ['verify', wrong]);
  expect(stdout + stderr).toContain('TimeoutStop');
});

test('the unit is rated as the page says', async (context) => {
  if (obstacle !== undefined) context.skip(obstacle);
  const unit = join(copied, 'idalloc.service');
  const { stdout } = await run('systemd-analyze', ['security', '--offline=true', `--threshold=${MAX_EXPOSURE}`, unit]);
  const [, exposure = ''] = /Overall exposure level for idalloc\.service: ([\d.]+)/.exec(stdout) ?? [];
  await context.annotate(`systemd-analyze security: ${exposure}`);
  expect(readFileSync(join(ROOT, 'docs/operations/install.md'), 'utf8')).toContain(`rates it ${exposure} of 10`);
});

test('after the upgrade the installed worker serves, with its tokens, and stops on SIGTERM well before it would be killed', async (context) => {
  if (obstacle !== undefined) context.skip(obstacle);
  expect(page.commands.filter((command) => command.startsWith(INSTALL))).toHaveLength(2);
  expect((await fetched('/api/v1/ids')).status).toBe(401);
  expect((await fetched('/api/v1/ids', { authorization: `Bearer ${TOKEN}` })).status).toBe(200);
  const timeouts = settingsOf().flatMap(({ name, value }) => (name === 'TimeoutStopSec' ? [Number(value)] : []));
  expect(timeouts).toEqual([60]);
  await worker?.stop();
  expect(await worker?.ended()).toEqual({ code: 0, signal: null });
});
