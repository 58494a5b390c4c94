import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const MAIN = join(import.meta.dirname, '../../src/main.ts');
const execute = promisify(execFile);

/** Loaded before the program: prints on stderr, at the end, the packages and rooms that were loaded. */
const RECORDER = `
import { registerHooks } from 'node:module';
const loaded = new Set();
registerHooks({
  load(url, context, next) {
    const [, name] = /.*\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url) ?? /\\/src\\/((?:adapters\\/|kafka\\/)?[^/]+)\\/[^/]+$/.exec(url) ?? [];
    loaded.add(name ?? url);
    return next(url, context);
  },
});
process.on('exit', () => process.stderr.write(JSON.stringify([...loaded])));
`;

/** What only the work of a command needs, and neither its help nor a command without a server. */
const SERVERS = [
  ...['kafkajs', 'etcd3', '@grpc/grpc-js', 'fastify', 'avsc', 'prom-client', 'cockatiel', 'node:sqlite', 'lz4-napi'],
  ...['adapters/etcd', 'adapters/index', 'adapters/registry', 'kafka/wire', 'kafka/loops', 'kafka/records'],
  ...['client', 'http', 'worker', 'pipeline', 'identity'],
];
const FORMATS = ['pino', 'zod', '@noble/hashes', '@noble/ciphers'];

let dir = '';
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-start-'));
  writeFileSync(join(dir, 'recorder.mjs'), RECORDER);
});
afterAll(() => rmSync(dir, { recursive: true }));

/** The packages, rooms and modules of Node that a command line loads. */
async function loadedBy(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string[]> {
  const recorder = pathToFileURL(join(dir, 'recorder.mjs')).href;
  const run = execute(process.execPath, ['--import', recorder, MAIN, ...args], {
    env: { NODE_COMPILE_CACHE: join(dir, 'compiled'), ...env },
  });
  const { stderr } = await run.catch((error: { readonly stderr: string }) => error);
  return JSON.parse(stderr.slice(stderr.lastIndexOf('[')));
}

describe('a start loads only what the command line needs', () => {
  test.for([['--help'], ['decode', '1'], ['range', '--from', '2h', '--to', 'now'], ['layout', 'default']])(
    'idalloc %s loads nothing that talks to servers',
    async (args) => {
      const loaded = await loadedBy(args);
      expect(loaded).toContain('commander');
      expect(loaded.filter((name) => [...SERVERS, 'pino'].includes(name))).toEqual([]);
    },
  );

  test.for([
    ['--version'],
    ...['request', 'audit', 'trace', 'replay', 'leases', 'deadletters', 'namespace', 'topics', 'doctor'].map((name) => [
      name,
      '--help',
    ]),
  ])('idalloc %s loads no package that only the work needs', async (args) => {
    const loaded = await loadedBy(args);
    expect(loaded).toContain('commander');
    expect(loaded.filter((name) => [...SERVERS, ...FORMATS].includes(name))).toEqual([]);
  });

  test('idalloc worker --help loads no package but that of its variables', async () => {
    const loaded = await loadedBy(['worker', '--help']);
    expect(loaded).toContain('zod');
    expect(loaded.filter((name) => SERVERS.includes(name))).toEqual([]);
  });

  test('idalloc request loads nothing of etcd, of the HTTP API or of the index', async () => {
    const loaded = await loadedBy(['request', '--reply-topic', 'orders'], { KAFKA_BROKERS: '127.0.0.1:1' });
    expect(loaded).toContain('kafkajs');
    const others = ['etcd3', '@grpc/grpc-js', 'fastify', 'prom-client', 'node:sqlite', 'worker', 'pipeline', 'http'];
    expect(loaded.filter((name) => others.includes(name))).toEqual([]);
  });
});

test('a command that crashes says why, with the stack, and exits with 70', async () => {
  const crashing = `process.on('newListener', (name) => name === 'uncaughtException' && process.nextTick(() => { throw new Error('a bug') }))`;
  const args = ['--import', `data:text/javascript,${encodeURIComponent(crashing)}`, MAIN, 'decode', '1'];
  await expect(execute(process.execPath, args)).rejects.toMatchObject({
    code: 70,
    stderr: expect.stringMatching(/^idalloc crashed: a bug\nError: a bug\n {4}at /),
  });
});

describe('the cache of compiled code', () => {
  test.for<[string, Readonly<Record<string, string>>]>([
    ['can not be written', { XDG_CACHE_HOME: '/dev/null' }],
    ['is disabled', { NODE_DISABLE_COMPILE_CACHE: '1' }],
    ['is elsewhere', { NODE_COMPILE_CACHE: '/dev/null/compiled' }],
  ])('when it %s, the program runs as before', async ([, env]) => {
    const { stdout, stderr } = await execute(process.execPath, [MAIN, '--version'], { env });
    expect({ stdout, stderr }).toEqual({ stdout: expect.stringMatching(/^\d+\.\d+\.\d+(-dev)?\n$/), stderr: '' });
  });
});
