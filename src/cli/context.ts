import type { Environment } from '../config/parse.ts';

/** What a command gets of the process around it; only main.ts reads the process itself. */
export interface CliContext {
  readonly env: Environment;
  /** Writes to stdout, where only results go. */
  readonly out: (text: string) => void;
  /** Writes to stderr, where everything else goes. */
  readonly err: (text: string) => void;
  /** Aborted by the first signal that asks the process to end. */
  readonly stop: AbortSignal;
  /** The address under which others see this machine. */
  readonly hostIp: () => string;
  /** Told by a command that could not do its work; without it the code is 0. */
  readonly setExitCode: (code: number) => void;
}

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  /** A fault of idalloc itself (EX_SOFTWARE). */
  software: 70,
  /** The configuration is faulty (EX_CONFIG). */
  config: 78,
} as const;

export const EXIT_HELP = `
Exit codes:
  0   done
  1   failed; stderr says why
  2   wrong use of the command line
  70  stopped by a fault of idalloc itself
  78  faulty configuration; stderr names each variable`;
