import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { packageTools, skipping } from './example-tools.ts';
import { run, TIMEOUT_MS } from './packed-projects.ts';

/** The tools, or why they can't be had; CI has them. */
export const TOOLS = skipping(await packageTools());

/** A package of the tools. */
export function toolPath(name: string): string {
  return join(TOOLS.path, 'node_modules', name);
}

/** Runs a tool that is a script of Node in a project. */
export async function tool(name: string, args: readonly string[], cwd: string): Promise<string> {
  const { stdout } = await run(process.execPath, [join(TOOLS.path, 'node_modules/.bin', name), ...args], {
    cwd,
    timeout: TIMEOUT_MS,
    env: { ...process.env, NODE_PATH: undefined, NO_COLOR: '1', CI: '1' },
  });
  return stdout;
}

const CPUS: Readonly<Record<string, readonly string[]>> = { x64: ['x64'], arm64: ['arm64', 'aarch64'] };

/** The program of a runtime, whose packages are one for each processor: `path` has `CPU` for its name. */
export function runtimeOf(path: string): string {
  const names = (CPUS[process.arch] ?? []).map((cpu) => toolPath(path.replace('CPU', cpu)));
  const found = names.find(existsSync);
  if (found === undefined) throw new Error(`the tools have no ${path} for ${process.arch}`);
  return found;
}
