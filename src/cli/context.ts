import type { Environment } from '../config/parse.ts';
import type { ErrorCode, IdallocError } from '../errors.ts';

/** A command's view of its process; only main.ts accesses the process itself. */
export interface CliContext {
  readonly env: Environment;
  /** The version of this package. */
  readonly version: string;
  /** The commit that it was built from; undefined in a checkout. */
  readonly commit?: string | undefined;
  /** Writes to stdout, where only results go. */
  readonly out: (text: string) => void;
  /** Writes to stderr: questions, progress, errors. */
  readonly err: (text: string) => void;
  /** Aborted by the first SIGINT or SIGTERM. */
  readonly stop: AbortSignal;
  /** The address at which other machines reach this one. */
  readonly hostIp: () => string;
  /** Who runs this process, as user@host, for the journal. */
  readonly who: () => string;
  /** Sets the exit code of a command that failed; the default is 0. */
  readonly setExitCode: (code: number) => void;
  /** Wall milliseconds. */
  readonly now: () => number;
  readonly terminal: Terminal;
  /**
   * Prints a question on stderr and returns the line that is typed; empty at the end of input, or when `stop` aborts.
   */
  readonly ask: (question: string) => Promise<string>;
}

/** Which of the three streams are terminals. */
interface Terminal {
  readonly input: boolean;
  readonly output: boolean;
  readonly errors: boolean;
  /** The width of the terminal in characters; it changes with its window. Undefined if there is none. */
  readonly columns?: number | undefined;
}

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  /** Kafka, etcd or the workers did not answer (EX_UNAVAILABLE). */
  unavailable: 69,
  /** An internal error (EX_SOFTWARE). */
  software: 70,
  /** The configuration is invalid (EX_CONFIG). */
  config: 78,
  /** Stopped by a signal before it was done; the process exits with 128 plus the signal's number. */
  stopped: 130,
} as const;

const LINK_LOCAL = /^fe[89ab]/i;

export const EXIT_HELP = `
Exit codes:
  0   success, and no problem was found
  1   failure, or a problem was found; the output says which
  2   invalid command line
  69  Kafka, etcd or the workers did not answer: the outcome is unknown
  70  internal error of idalloc
  78  invalid configuration; stderr names each variable
  130 stopped by Ctrl-C (143: by SIGTERM) before it was done
  141 the reader of its output exited first, as 'head' does`;

/**
 * The address at which others reach a machine: its first one of IPv4, else of IPv6 that is routed; undefined if it has
 * none.
 */
export function externalIp(
  addresses: readonly { readonly address: string; readonly family: string; readonly internal: boolean }[],
): string | undefined {
  const external = addresses.filter(({ address, internal }) => !internal && !LINK_LOCAL.test(address));
  return (external.find(({ family }) => family === 'IPv4') ?? external[0])?.address;
}

/** A server or worker did not answer, and may have done what was asked for. */
const UNKNOWN_OUTCOMES: readonly ErrorCode[] = ['KAFKA_UNAVAILABLE', 'ETCD_UNAVAILABLE', 'NO_REPLY'];

/** The exit code for an error that ended a command. */
export function exitCodeOf({ code }: IdallocError): number {
  if (code === 'CONFIG_INVALID') return EXIT.config;
  if (code === 'STOPPING') return EXIT.stopped;
  return UNKNOWN_OUTCOMES.includes(code) ? EXIT.unavailable : EXIT.failed;
}
