#!/usr/bin/env node
import { readFileSync, writeSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { constants, homedir, hostname, networkInterfaces, userInfo } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';

/**
 * Keeps compiled code for the next start, unless NODE_DISABLE_COMPILE_CACHE is set; NODE_COMPILE_CACHE names another
 * directory. It is a directory of this user, not Node's default below /tmp: whoever can write there could choose the
 * code that runs here. If it can't be written, every start compiles again.
 */
function cacheCompiledCode(): void {
  let home: string;
  try {
    home = homedir();
  } catch {
    return; // a user ID without an account, as some orchestrators choose it
  }
  enableCompileCache(join(process.env.XDG_CACHE_HOME || join(home, '.cache'), 'idalloc', 'compiled'));
}

/**
 * Without this flag V8 watches which places in the code make objects that survive, and makes all later ones from there
 * in the memory for old objects. These keep the young objects alive that they point to: beside a flood, a worker then
 * needs half as much memory again, and a collection takes 10 ms rather than 1. Set before other code is compiled, since
 * the cache keeps code for one set of flags.
 */
setFlagsFromString('--no-allocation-site-pretenuring');

/**
 * V8 collects the whole heap once it has grown by a share that V8 chooses, and counts as growth what is read and sent,
 * though that is outside of the heap. For a heap of 45 MB this was 25 MB: beside a flood of large requests all of it
 * was collected once a second. It may triple instead, within the limit of `--max-old-space-size`.
 */
setFlagsFromString('--heap-growing-percent=200');

const args = process.argv.slice(2);
cacheCompiledCode();
// A static import would be compiled before the cache is on.
const { EXIT, externalIp } = await import('./cli/context.ts');
const { runCli } = await import('./cli/program.ts');
const { visible } = await import('./core/visible.ts');
const { describeError } = await import('./errors.ts');
/** A worker's, which has to log its crash; the others are for people, and start faster without a logger. */
const createLogger = args[0] === 'worker' ? (await import('./log.ts')).createLogger : undefined;

/** The address of this machine as others see it, or 127.0.0.1 if it has none. */
function hostIp(): string {
  return externalIp(Object.values(networkInterfaces()).flatMap((list) => list ?? [])) ?? '127.0.0.1';
}

/** A user without an account has only a number. */
function who(): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    user = `uid-${process.getuid?.() ?? 'unknown'}`;
  }
  return `${user}@${hostname()}`;
}

function manifest(): { readonly version: string; readonly gitHead?: string } {
  return JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
}
const { version, gitHead: commit } = manifest();

const stop = new AbortController();
let signalNumber = 2;
const PARENT_CHECK_MS = 500;

/** After an unexpected error nothing in this process can be trusted, so it exits and its lease expires. */
function crash(error: unknown): never {
  const what = `idalloc crashed: ${describeError(error)}`;
  const log = createLogger?.({ level: 'fatal', destination: 'stdout' });
  if (log !== undefined) log.fatal({ err: error }, what);
  else writeSync(process.stderr.fd, visible(`${what}\n${error instanceof Error ? error.stack : ''}\n`));
  process.exit(EXIT.software);
}

process.on('uncaughtException', crash);
process.on('unhandledRejection', crash);

/**
 * The reader of our output may stop early, as `head` does. Node ignores SIGPIPE; the exit code is that of its usual
 * end.
 */
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(128 + constants.signals.SIGPIPE);
  crash(error);
});

for (const [signal, number] of [
  ['SIGINT', 2],
  ['SIGTERM', 15],
] as const) {
  process.on(signal, () => {
    if (stop.signal.aborted) process.exit(128 + number);
    signalNumber = number;
    stop.abort();
  });
}

/**
 * npx passes a SIGTERM on to its shell only, which ends: a worker would keep serving, with nobody to stop it. It stops
 * when its parent is gone.
 */
function stopWithShell(): void {
  const shell = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === shell) return;
    clearInterval(timer);
    signalNumber = 15;
    stop.abort();
  }, PARENT_CHECK_MS);
  timer.unref();
}

if (args[0] === 'worker' && process.env.npm_command === 'exec') stopWithShell();

/** Resolves to an empty answer on a stop signal and at the end of input. */
async function ask(question: string): Promise<string> {
  const { createInterface } = await import('node:readline');
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  return new Promise((resolve) => {
    stop.signal.addEventListener('abort', () => lines.close(), { once: true });
    lines.once('close', () => resolve(''));
    lines.once('SIGINT', () => process.kill(process.pid, 'SIGINT'));
    lines.question(question, (answer) => {
      resolve(answer);
      lines.close();
    });
  });
}

let exitCode = 0;
const result = await runCli(args, {
  version,
  commit,
  env: process.env,
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  stop: stop.signal,
  hostIp,
  who,
  setExitCode: (code) => {
    exitCode = code;
  },
  now: () => Date.now(),
  terminal: {
    input: process.stdin.isTTY === true,
    output: process.stdout.isTTY === true,
    errors: process.stderr.isTTY === true,
    get columns() {
      return process.stdout.columns ?? process.stderr.columns;
    },
  },
  ask,
});
// Output to a pipe may still be buffered, and must not be lost.
await Promise.all([process.stdout, process.stderr].map((stream) => new Promise((done) => stream.write('', done))));
// Clients may leave timers behind, so exit explicitly; everything that matters has been awaited.
const code = result === EXIT.ok ? exitCode : result;
process.exit(code === EXIT.stopped ? 128 + signalNumber : code);
