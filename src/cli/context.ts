import type { Environment } from '../config/parse.ts';
import type { IdallocError } from '../errors.ts';

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
  /** Wall milliseconds. */
  readonly now: () => number;
  readonly terminal: Terminal;
  /** Shows a question on stderr and gives the line that is typed; empty at the end of input, or when told to stop. */
  readonly ask: (question: string) => Promise<string>;
}

/** Which of the three streams somebody sits at. */
interface Terminal {
  readonly input: boolean;
  readonly output: boolean;
  readonly errors: boolean;
}

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  /** Kafka or etcd did not answer (EX_UNAVAILABLE). */
  unavailable: 69,
  /** A fault of idalloc itself (EX_SOFTWARE). */
  software: 70,
  /** The configuration is faulty (EX_CONFIG). */
  config: 78,
  /** Ended by a signal before it was done; the process makes 128 and the signal's number of it. */
  stopped: 130,
} as const;

export const EXIT_HELP = `
Exit codes:
  0   done, and nothing wrong was found
  1   failed, or found something wrong; the output says what
  2   wrong use of the command line
  69  Kafka or etcd did not answer: nothing is known
  70  stopped by a fault of idalloc itself
  78  faulty configuration; stderr names each variable
  130 stopped by Ctrl-C (143: by SIGTERM) before it was done
  141 the reader of its output ended first, as 'head' does`;

/** The exit code for a fault that ended a command. */
export function exitCodeOf({ code }: IdallocError): number {
  if (code === 'CONFIG_INVALID') return EXIT.config;
  if (code === 'STOPPING') return EXIT.stopped;
  return code === 'KAFKA_UNAVAILABLE' || code === 'ETCD_UNAVAILABLE' ? EXIT.unavailable : EXIT.failed;
}
