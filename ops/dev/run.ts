import { type Command, signalGroup, spawnGuarded } from './child.ts';

export interface RunOptions extends Command {
  /** What the command is for, in error messages. */
  readonly purpose: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs a command and returns its standard output; standard error is shown. Throws if the exit code is not 0, and after
 * `timeoutMs` or when the signal is aborted, which end the whole process group.
 */
export async function run(options: RunOptions): Promise<string> {
  options.signal?.throwIfAborted();
  const child = spawnGuarded(options, 'pipe', 'inherit');
  const chunks: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk));
  const end = () => signalGroup(child, 'SIGKILL');
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    end();
  }, options.timeoutMs);
  options.signal?.addEventListener('abort', end);
  try {
    const how = await new Promise<string>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => resolve(signal ? `signal ${signal}` : `exit code ${code}`));
    });
    options.signal?.throwIfAborted();
    const output = Buffer.concat(chunks).toString('utf8');
    if (timedOut) throw new Error(`${options.purpose} took longer than ${options.timeoutMs / 1000} s`);
    if (how !== 'exit code 0') {
      const detail = output.trim() === '' ? '' : `:\n${output.trimEnd()}`;
      throw new Error(`${options.purpose} failed (${how})${detail}`);
    }
    return output;
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener('abort', end);
  }
}
