import { VARIABLES } from '../../src/config/variables.ts';
import type { WorkerProcess } from './worker-process.ts';

/** curl, as far as the pages use it, at the default ports: they stand for those of this worker. */
export async function curl(args: readonly string[], worker: WorkerProcess): Promise<string> {
  let method = 'GET';
  let url = '';
  const headers: [string, string][] = [];
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? '';
    if (arg === '-s') continue;
    if (arg === '-X') method = args[++at] ?? '';
    else if (arg === '-H') headers.push((args[++at] ?? '').split(': ') as [string, string]);
    else if (arg.startsWith('-')) throw new Error(`this stand-in for curl has no option ${arg}`);
    else url = arg;
  }
  const [, port, path = ''] = /^localhost:(\d+)(\/.*)$/.exec(url) ?? [];
  const there = port === VARIABLES.API_PORT.fallback ? `${await worker.api()}${path}` : undefined;
  if (there === undefined && port !== VARIABLES.OPS_PORT.fallback) throw new Error(`nothing listens at ${url}`);
  const answer = await (there === undefined ? worker.ops(path) : fetch(there, { method, headers }));
  return `${await answer.text()}\n`;
}
