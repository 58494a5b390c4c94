import type { CliContext } from '../../src/cli/context.ts';
import { runCli } from '../../src/cli/program.ts';

export interface CliRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs one command line inside the test; the environment has nothing but `env`. */
export async function cli(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  stop: AbortSignal = new AbortController().signal,
  about: Partial<CliContext> = {},
): Promise<CliRun> {
  let out = '';
  let err = '';
  let exitCode = 0;
  const context: CliContext = {
    env,
    version: '1.2.3',
    stop,
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    hostIp: () => '192.0.2.1',
    who: () => 'alice@host',
    setExitCode: (code) => {
      exitCode = code;
    },
    now: () => Date.UTC(2026, 5, 2, 16, 5),
    terminal: { input: false, output: false, errors: false },
    ask: async () => '',
    ...about,
  };
  const code = await runCli(args, context);
  return { code: code === 0 ? exitCode : code, out, err };
}
