import { aptInstall, aptObstacle, type Log } from './apt.ts';
import { requireTools, type ToolName, toolFaults } from './toolchain.ts';

interface InstallOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Installs those of the tools that are missing or too old, with apt-get where this process may. Throws one error that
 * names the rest, the cause and the remedy.
 */
export async function ensureTools(names: readonly ToolName[], options: InstallOptions): Promise<void> {
  const { env, log, signal } = options;
  const faults = toolFaults(names, env);
  if (faults.length === 0) return;
  const obstacle = aptObstacle(env);
  if (obstacle !== undefined) return requireTools(names, env, obstacle);
  log(`missing: ${faults.map(({ text }) => text).join(', ')}`);
  try {
    await aptInstall(
      faults.map(({ apt }) => apt),
      env,
      log,
      signal,
    );
  } catch (error) {
    signal?.throwIfAborted();
    return requireTools(names, env, `apt-get failed: ${error instanceof Error ? error.message : error}`);
  }
  requireTools(names, env, 'apt-get installed them, but others come first on the PATH');
}
