// The one file that a fresh clone can run: no dependency, any Node from 20 on. It updates node_modules to the lockfile
// and then runs the Node version that ops/node pins, if the lockfile has one for this platform.
// Usage: node ops/dev/bootstrap.mjs start|test|idalloc [arguments], [options of Node] FILE.ts [arguments], or TOOL
// [arguments] with a program of an installed package. All scripts of package.json but `build`, which is for the image,
// run by it.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { developmentServers } from './development.mjs';
import { isInstalled, packagePaths } from './install-state.mjs';
import { acquireLock } from './lock.mjs';
import { parseProcStat } from './process-identity.mjs';
import { canRewrite, progress } from './progress.mjs';

const OLDEST_NODE = 20;
const INSTALL_TIMEOUT_MS = 15 * 60_000;
const PARENT_CHECK_MS = 200;
/** How often an installation shows how far it is: a line that is rewritten, or one more line of a log. */
const INSTALL_SHOWN_MS = canRewrite(process.stderr, process.env) ? 1_000 : 15_000;
const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const BIN = join(ROOT, 'node_modules/.bin');
/** Compiled code of the command: with a cache from the start on, Node does not load its compiler of TypeScript. */
const COMPILED = join(ROOT, '.idalloc/compiled');
const PINNED = JSON.parse(readFileSync(join(ROOT, 'ops/node/package.json'), 'utf8')).version;
const PROGRAMS = { start: 'ops/dev/start.ts', test: 'ops/dev/test.ts', idalloc: 'src/main.ts' };
/** What a command that takes long is going to do. The others print only their own output. */
const PLANS = {
  start: 'npm start: dependencies, Kafka and etcd, topics, a worker, one request; Ctrl-C stops it',
  test: 'npm test: dependencies, then the checks and tests',
};
/** The commands that own child processes, and so must notice when this process is killed. */
const SUPERVISED = ['start', 'test'];
/** The exit code of idalloc for an invalid configuration. */
const EXIT_CONFIG = 78;
const IS_FILE = /\.m?[jt]s$/;

function fail(message) {
  process.stderr.write(`idalloc: ${message}\n`);
  process.exit(1);
}

function readIfThere(path) {
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
}

function readLockfile() {
  const lockfile = readIfThere(join(ROOT, 'package-lock.json'));
  if (lockfile === undefined) fail('package-lock.json is missing; restore it with `git checkout package-lock.json`');
  return lockfile;
}

/** Whether the lockfile has a Node for this platform. npm silently skips an optional package that it can't fetch. */
function hasPinnedNode() {
  return readLockfile().includes(`"node_modules/node-${process.platform}-${process.arch}"`);
}

function installed() {
  const record = readIfThere(join(ROOT, 'node_modules/.package-lock.json'));
  return isInstalled(readLockfile(), record) && (!hasPinnedNode() || existsSync(join(BIN, 'node')));
}

/** The Node for everything else. */
function node() {
  if (hasPinnedNode()) return join(BIN, 'node');
  const major = (version) => Number(version.split('.')[0]);
  if (major(process.versions.node) >= major(PINNED)) return process.execPath;
  const platform = `${process.platform}-${process.arch}`;
  return fail(
    `the lockfile has no Node for ${platform}, and this is ${process.version}: install Node ${major(PINNED)} or later`,
  );
}

/** Shows how many packages are there, until it is cleared: npm itself says nothing for a minute or two. */
function showInstalling() {
  const paths = packagePaths(readLockfile()).map((path) => join(ROOT, path, 'package.json'));
  return setInterval(() => {
    const there = paths.filter(existsSync).length;
    progress.step(`installing dependencies (npm ci, once): ${there} of ${paths.length} packages`);
  }, INSTALL_SHOWN_MS);
}

async function npmCi() {
  progress.step('installing dependencies (npm ci; it takes a minute or two, once)');
  const npmScript = process.env.npm_execpath;
  const [command, ...prefix] = npmScript?.endsWith('.js') ? [process.execPath, npmScript] : ['npm'];
  // Standard output stays clean, since with --json a program reads it.
  const child = spawn(
    command,
    [...prefix, 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--no-progress', '--loglevel=error'],
    {
      cwd: ROOT,
      stdio: ['ignore', 2, 2],
    },
  );
  const shown = showInstalling();
  const { error, code, signal } = await new Promise((resolve) => {
    child.once('error', (error) => resolve({ error }));
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  clearInterval(shown);
  progress.settle();
  if (error) fail(`npm can't be run (${error.message}); install npm, which comes with Node.js`);
  if (signal) fail(`npm ci was killed by ${signal}`);
  if (code !== 0) fail(`npm ci failed with exit code ${code}; its messages are above`);
}

async function install() {
  if (installed()) return;
  const release = await acquireLock(join(ROOT, '.idalloc/install.lock'), {
    timeoutMs: INSTALL_TIMEOUT_MS,
    onWait: ({ pid }) => progress.step(`waiting for the installation by process ${pid}`),
  });
  try {
    if (!installed()) await npmCi();
    if (!installed())
      fail(
        'npm ci succeeded, but node_modules does not match package-lock.json, or the pinned Node could not be fetched; remove node_modules and try again',
      );
  } finally {
    release();
  }
}

/** The processes that must be alive for this one to continue: npm's shell, and npm above it, if /proc shows that. */
function ancestors() {
  const parent = process.ppid;
  try {
    return `${parent} ${parseProcStat(readFileSync(`/proc/${parent}/stat`, 'utf8')).parent}`;
  } catch {
    return String(parent); // no /proc on this system, or the parent has just ended: only its pid is known
  }
}

/** npm forwards signals, but not when it is killed: that shows as changed ancestors. */
function watchNpm(child) {
  if (!process.env.npm_lifecycle_event) return;
  const before = ancestors();
  const timer = setInterval(() => {
    if (ancestors() === before) return;
    clearInterval(timer);
    child.kill('SIGTERM');
  }, PARENT_CHECK_MS);
  timer.unref();
}

function handOver(command, options, args) {
  const servers =
    command === 'idalloc' ? developmentServers(join(ROOT, '.idalloc/dev/servers.json'), process.env) : undefined;
  const file = PROGRAMS[command] ?? (IS_FILE.test(command) ? command : undefined);
  const [program, ...first] = file ? [node(), ...options, join(ROOT, file)] : [join(BIN, command)];
  const child = spawn(program, [...first, ...args], {
    // The channel carries no messages: when it closes, the child knows that this process has ended.
    stdio: ['inherit', 'inherit', 'inherit', ...(SUPERVISED.includes(command) ? ['ipc'] : [])],
    env: {
      ...process.env,
      ...servers?.variables,
      PATH: `${BIN}${delimiter}${process.env.PATH ?? ''}`,
      KAFKAJS_NO_PARTITIONER_WARNING: '1',
      ...(command === 'idalloc' ? { NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? COMPILED } : {}),
    },
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to the child as well; twice would mean "immediately".
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    });
  }
  watchNpm(child);
  child.on('error', (error) => fail(`${program} can't be run: ${error.message}; remove node_modules and try again`));
  child.on('exit', (code, signal) => {
    if (code === EXIT_CONFIG && servers?.missing) process.stderr.write(`idalloc: ${servers.missing}\n`);
    process.exit(signal ? 128 + constants.signals[signal] : code);
  });
}

const words = process.argv.slice(2);
const at = words.findIndex((word) => !word.startsWith('-'));
const [options, [command = '', ...args]] = [words.slice(0, Math.max(0, at)), words.slice(at)];
if (Number(process.versions.node.split('.')[0]) < OLDEST_NODE) {
  fail(`Node ${OLDEST_NODE} or later is needed, this is ${process.version}; see https://nodejs.org/en/download`);
}
if (command === '') fail(`usage: bootstrap.mjs ${Object.keys(PROGRAMS).join('|')}|FILE.ts|TOOL [arguments]`);
if (Object.hasOwn(PLANS, command)) progress.say(PLANS[command]);
await install();
progress.settle();
handOver(command, options, args);
