// Plain JavaScript, because bootstrap.mjs needs it before the pinned Node, which runs TypeScript, is installed.
import { existsSync, readFileSync } from 'node:fs';
import { isRunning } from './process-identity.mjs';

/**
 * The variables that say which servers a command uses. With one of them set, the servers of `npm start` are not used.
 */
const CHOOSING = ['KAFKA_BROKERS', 'ETCD_ENDPOINTS'];

/**
 * The variables with which a command uses the servers that `npm start` runs, from the file that it announces them in.
 * `missing` says why there are none, and what to do.
 * @param {string} file
 * @param {NodeJS.ProcessEnv} env
 * @returns {{ variables: Record<string, string> } | { missing: string } | undefined} undefined if `env` names servers
 */
export function developmentServers(file, env) {
  if (CHOOSING.some((name) => env[name])) return undefined;
  const remedy = `run \`npm start\` in another terminal, or set ${CHOOSING.join(' and ')}`;
  const found = existsSync(file) ? parse(readFileSync(file, 'utf8')) : undefined;
  if (found === undefined) return { missing: `no \`npm start\` of this checkout runs: ${remedy}` };
  const { owner, commands } = found;
  if (!isRunning(owner)) {
    return { missing: `the \`npm start\` of this checkout (process ${owner.pid}) has ended: ${remedy}` };
  }
  if (commands === undefined) {
    return {
      missing: `the \`npm start\` of this checkout (process ${owner.pid}) is not ready yet: try again in a moment`,
    };
  }
  return { variables: Object.fromEntries(Object.entries(commands).filter(([name]) => !env[name])) };
}

/**
 * @param {string} text
 * @returns {{ owner: { pid: number, start: string }, commands?: Record<string, string> } | undefined}
 */
function parse(text) {
  try {
    const value = JSON.parse(text);
    return typeof value.owner?.pid === 'number' && typeof value.owner.start === 'string' ? value : undefined;
  } catch {
    return undefined; // of another version of this checkout
  }
}
