import { closeSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, logHolds, startChild, untilReady } from './child.ts';
import { tryLock } from './lock.mjs';
import { ROOT } from './paths.ts';
import { portsOf, USUAL_PORTS } from './ports.ts';

/** Acquiring an identity may wait 35 s for a ceiling, and a restored index takes its time too. */
const READY_TIMEOUT_MS = 90_000;
const MAX_WORKERS = 100;
const TAIL_MS = 200;

export interface WorkerProcess extends Child {
  readonly opsUrl: string;
  /** Undefined if the environment disables the HTTP API. */
  readonly apiUrl: string | undefined;
}

/** The number of a worker of this checkout: each has its own index directory and log. */
export interface WorkerSlot {
  readonly number: number;
  release(): void;
}

/** The lowest number that no running `npm start` of this checkout uses. */
export function claimSlot(stateDir: string): WorkerSlot {
  for (let number = 0; number < MAX_WORKERS; number++) {
    const path = join(stateDir, `worker-${number}.lock`);
    // Try twice: the first attempt may have removed a stale lock.
    const lock = tryLock(path) ?? tryLock(path);
    if (lock?.acquired) return { number, release: lock.release };
  }
  throw new Error(`${MAX_WORKERS} workers of this checkout are running; stop one`);
}

export interface WorkerOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly logFile: string;
  /** The number of its slot: the workers of a checkout take the usual ports and those after them, if they are free. */
  readonly slot: number;
  /** Keeps the ports that it took, for the next start. */
  readonly dir: string;
  readonly signal: AbortSignal;
}

/** Starts `idalloc worker` as a child process, and waits until it logs that it is ready. */
export async function startWorker(options: WorkerOptions): Promise<WorkerProcess> {
  const usual = [USUAL_PORTS.ops, USUAL_PORTS.api].map((port) => port + options.slot);
  const [freeOps, freeApi] = await portsOf(options.dir, usual.length, usual);
  const opsPort = options.env.OPS_PORT || String(freeOps);
  const apiPort = options.env.API_PORT || String(freeApi);
  const child = await startChild({
    name: 'the worker',
    logFile: options.logFile,
    command: process.execPath,
    args: [join(ROOT, 'src/main.ts'), 'worker'],
    cwd: ROOT,
    env: { ...options.env, OPS_PORT: opsPort, API_PORT: apiPort },
  });
  const ready = () => logHolds(child.logFile, 'idalloc ready');
  await untilReady(child, ready, { timeoutMs: READY_TIMEOUT_MS, signal: options.signal });
  const url = (port: string) => `http://127.0.0.1:${port}`;
  return { ...child, opsUrl: url(opsPort), apiUrl: apiPort === 'off' ? undefined : url(apiPort) };
}

/** Passes each line of a file to `onLine`, existing and future ones, until the returned function is called. */
export function follow(file: string, onLine: (line: string) => void): () => void {
  const fd = openSync(file, 'r');
  const chunk = Buffer.alloc(64 * 1024);
  let rest = Buffer.alloc(0);
  const readOn = () => {
    for (let bytes = readSync(fd, chunk); bytes > 0; bytes = readSync(fd, chunk)) {
      rest = Buffer.concat([rest, chunk.subarray(0, bytes)]);
      for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
        onLine(rest.subarray(0, end).toString('utf8'));
        rest = rest.subarray(end + 1);
      }
    }
  };
  const timer = setInterval(readOn, TAIL_MS);
  return () => {
    clearInterval(timer);
    readOn();
    closeSync(fd);
  };
}
