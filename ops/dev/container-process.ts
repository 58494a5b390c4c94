import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { type Child, type Command, startChild } from './child.ts';
import { docker } from './docker-engine.ts';

const REMOVE_MS = 20_000;
const live = new Set<string>();

/** How to run a program of an image as if it were on this machine. */
export interface Container {
  readonly image: string;
  /** uid:gid that owns the files that it writes. */
  readonly user: string | undefined;
}

interface Program {
  readonly command: string;
  readonly args: readonly string[];
  /** The one directory of this machine that it sees, under the same path. */
  readonly dir: string;
  /** Ports that are the same on this machine, at the loopback address. */
  readonly ports?: readonly number[];
}

/** The command that runs a program of an image in the foreground, so that it passes on SIGTERM. */
export function inContainer(name: string, { image, user }: Container, program: Program): Command {
  return {
    command: 'docker',
    args: [
      ...['run', '--rm', '--name', name, '--pull', 'never', '--label', `idalloc.dev=${program.dir}`],
      ...(user === undefined ? [] : ['--user', user]),
      // Otherwise SELinux hides the directory.
      ...['--security-opt', 'label=disable', '--volume', `${program.dir}:${program.dir}`],
      ...(program.ports ?? []).flatMap((port) => ['--publish', `127.0.0.1:${port}:${port}`]),
      ...['--entrypoint', program.command, image, ...program.args],
    ],
  };
}

/** The name of the one container that may use a directory. */
export function containerName(dir: string): string {
  return `idalloc-${basename(dir)}-${createHash('sha256').update(dir).digest('hex').slice(0, 12)}`;
}

/**
 * Starts a server in a container as a child process: it ends with this process, even if this one is killed. If its
 * guard is killed as well, the next start with the same log file removes the container; see `endContainer`.
 */
export async function startContainer(
  what: { readonly name: string; readonly logFile: string },
  container: Container,
  program: Program,
): Promise<Child> {
  const name = containerName(program.dir);
  writeFileSync(recordOf(what.logFile), name);
  removeAtExit(name);
  const child = await startChild({ ...what, ...inContainer(name, container, program) });
  const remove = () => endContainer(what.logFile);
  return {
    ...child,
    stop: async (graceMs) => {
      await child.stop(graceMs);
      await remove();
    },
    kill: async () => {
      await child.kill();
      await remove();
    },
  };
}

/** Removes the container of a server, if one was left behind: call it before its data is used again. */
export async function endContainer(logFile: string): Promise<void> {
  const record = recordOf(logFile);
  if (!existsSync(record)) return;
  const name = readFileSync(record, 'utf8');
  if (name !== '') await docker(['rm', '--force', '--volumes', name], REMOVE_MS);
  live.delete(name);
  rmSync(record, { force: true });
}

function recordOf(logFile: string): string {
  return `${logFile}.container`;
}

/** On the second Ctrl-C, only the docker program is killed with this process. */
function removeAtExit(name: string): void {
  if (live.size === 0) {
    process.once('exit', () => {
      if (live.size > 0) spawnSync('docker', ['rm', '--force', '--volumes', ...live], { timeout: REMOVE_MS });
    });
  }
  live.add(name);
}
