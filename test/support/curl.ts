import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request as requestTls } from 'node:https';
import { resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { VARIABLES } from '../../src/config/variables.ts';
import type { WorkerProcess } from './worker-process.ts';

interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [string, string])[];
  /** The files of --cacert, --cert and --key. */
  readonly files: Readonly<Record<string, string>>;
}

const TLS_OPTIONS: Readonly<Record<string, string>> = { '--cacert': 'ca', '--cert': 'cert', '--key': 'key' };

/** Parses the arguments of curl; throws for options that no page has used yet. */
function parse(args: readonly string[]): Call {
  let [method, url] = ['GET', ''];
  const headers: [string, string][] = [];
  const files: Record<string, string> = {};
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? '';
    const file = TLS_OPTIONS[arg];
    if (arg === '-s') continue;
    if (arg === '-X') method = args[++at] ?? '';
    else if (arg === '-H') headers.push((args[++at] ?? '').split(': ') as [string, string]);
    else if (file !== undefined) files[file] = args[++at] ?? '';
    else if (arg.startsWith('-'))
      throw new Error(`test/support/curl.ts does not support the option ${arg}: add it there`);
    else url = arg;
  }
  return { method, url, headers, files };
}

/**
 * The output of curl, for the options that the pages use, with `worker` at the default ports. File names are relative
 * to `dir`. Rejects when the connection fails.
 */
export async function curl(args: readonly string[], worker: WorkerProcess, dir = '.'): Promise<string> {
  const { method, url, headers, files } = parse(args);
  const [, secure, port, path = ''] = /^(https:\/\/)?localhost:(\d+)(\/.*)$/.exec(url) ?? [];
  if (port !== VARIABLES.API_PORT.fallback && port !== VARIABLES.OPS_PORT.fallback) {
    throw new Error(`the pages may only use the default ports of a worker, not ${url}`);
  }
  if (port === VARIABLES.OPS_PORT.fallback) return `${await (await worker.ops(path)).text()}\n`;
  const api = await worker.api();
  if (secure === undefined) {
    return `${await (await fetch(`${api}${path}`, { method, headers: headers.map(([...pair]) => pair) })).text()}\n`;
  }
  const pems = Object.entries(files).map(([name, file]) => [name, readFileSync(resolve(dir, file))] as const);
  const to = { host: '127.0.0.1', servername: 'localhost', port: new URL(api).port, path, method, agent: false };
  const asked = requestTls({ ...to, headers: Object.fromEntries(headers), ...Object.fromEntries(pems) }).end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  return `${await text(answer)}\n`;
}
