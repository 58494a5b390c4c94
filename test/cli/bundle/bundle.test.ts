import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempDisposableSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { tarGz } from '../../../src/cli/bundle/archive.ts';
import { redactor } from '../../../src/cli/bundle/secrets.ts';
import { VARIABLES } from '../../../src/config/variables.ts';
import { cli } from '../harness.ts';

const KEY_LINE = 'MIIEvQIBADANBgkqhkiG9w0B'.repeat(2);
const KEY = `-----BEGIN PRIVATE KEY-----\n${KEY_LINE}\n-----END PRIVATE KEY-----`;
/** A value for each variable with a secret, and the texts of it that may not leave. */
const VALUES: Readonly<Record<string, { readonly value: string; readonly hidden: readonly string[] }>> = {
  text: { value: 'pa"ss wörd', hidden: ['pa"ss wörd'] },
  PEM: { value: KEY, hidden: [KEY_LINE] },
  'number:key': { value: `1:${'ab'.repeat(32)}\n2:${'cd'.repeat(32)}`, hidden: ['ab'.repeat(32), 'cd'.repeat(32)] },
  'name:token [right]': { value: 'shop:t0ken-of-shop sequences:invoices', hidden: ['t0ken-of-shop'] },
};
const SECRET_ROWS = Object.entries(VARIABLES).filter(([, { secret, unit }]) => secret && unit !== 'quotas');

/** A secret as a text may carry it. */
function written(secret: string): string[] {
  const base64 = Buffer.from(secret).toString('base64');
  return [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret), base64];
}

/** The files of an archive, by their paths without the directory that has them all. */
function unpacked(archive: string, into: string): ReadonlyMap<string, string> {
  execFileSync('tar', ['xzf', archive, '-C', into]);
  const paths = readdirSync(into, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  return new Map(
    paths.map(({ parentPath, name }) => {
      const path = join(parentPath, name);
      return [path.slice(into.length + 1).replace(/^[^/]+\//, ''), readFileSync(path, 'utf8')];
    }),
  );
}

describe('idalloc bundle', () => {
  test('has status, metrics and the end of a log, and a reason for what could not be had', async () => {
    using directory = mkdtempDisposableSync(join(tmpdir(), 'idalloc-bundle-'));
    const server = createServer((request, response) => {
      response.end(request.url === '/metrics' ? 'idalloc_ids_total 5\n' : '{"ready":true,"partitions":[]}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const log = join(directory.path, 'worker.log');
    writeFileSync(log, `${'x'.repeat(2 ** 21)}\n{"msg":"the last line"}\n`);
    const output = join(directory.path, 'bundle.tar.gz');
    const args = ['bundle', address, '--log', log, '--log', join(directory.path, 'none.log'), '--output', output];
    const { code, out, err } = await cli([...args, '--json']);
    server.closeAllConnections();
    server.close();
    expect([code, err]).toEqual([0, '']);
    const failed = ['doctor.json', 'topics.json', 'leases.json', 'logs/1-none.log'].map((name) => `${name}.error.txt`);
    expect(JSON.parse(out)).toMatchObject({ file: output, failed });
    expect(statSync(output).mode & 0o777).toBe(0o600);
    const into = join(directory.path, 'into');
    mkdirSync(into);
    const files = unpacked(output, into);
    const ofWorker = `workers/0-${address.replace(':', '_')}`;
    expect(files.get(`${ofWorker}/metrics.txt`)).toBe('idalloc_ids_total 5\n');
    expect(files.get('workers.json')).toContain('"ready":true');
    expect(files.get('logs/0-worker.log')).toBe('{"msg":"the last line"}\n');
    expect(files.get('doctor.json.error.txt')).toContain('KAFKA_BROKERS');
    expect(files.get('versions.json')).toContain('"idalloc":"1.2.3"');
    expect(files.get('README.txt')).toContain('logs/1-none.log.error.txt');
    const again = await cli(args);
    expect([again.code, again.err]).toEqual([78, expect.stringContaining('could not be written')]);
  });

  test.for(['variables', 'files'] as const)('has none of the secrets that are in %s', async (where) => {
    using directory = mkdtempDisposableSync(join(tmpdir(), 'idalloc-bundle-'));
    const env: Record<string, string> = { AWS_SECRET_ACCESS_KEY: 'of-another-program' };
    const hidden = ['of-another-program'];
    for (const [name, { unit }] of SECRET_ROWS) {
      const { value = '', hidden: parts = [] } = VALUES[unit] ?? {};
      expect(parts, unit).not.toEqual([]);
      const path = join(directory.path, name);
      writeFileSync(path, `${value}\n`);
      if (where === 'files') env[`${name}_FILE`] = path;
      else env[name] = value;
      hidden.push(...parts.flatMap(written));
    }
    const log = join(directory.path, 'worker.log');
    writeFileSync(log, hidden.map((secret) => `before ${secret} after\n`).join(''));
    const output = join(directory.path, 'bundle.tar.gz');
    const { code } = await cli(['bundle', '127.0.0.1:1', '--log', log, '--output', output], env);
    expect(code).toBe(0);
    const into = join(directory.path, 'into');
    mkdirSync(into);
    const files = unpacked(output, into);
    expect(files.get('logs/0-worker.log')).toContain('before [SECRET] after');
    for (const [name, text] of files)
      expect(
        hidden.filter((secret) => text.includes(secret)),
        name,
      ).toEqual([]);
    expect(files.get('variables.json')).toContain(
      where === 'files' ? '"ETCD_PASSWORD_FILE":"(a file)"' : '"ETCD_PASSWORD":"(set)"',
    );
  });

  test('is not written if a secret can not be read, since nothing could be searched for it', async () => {
    const { code, err } = await cli(['bundle', '127.0.0.1:1'], { ETCD_PASSWORD_FILE: '/nowhere/password' });
    expect([code, err]).toEqual([78, expect.stringContaining('so it could not be kept out')]);
  });
});

test('a plain setting of another program is no secret, nor is a quota', () => {
  const redact = redactor({ OTEL_HEADERS: 'on', QUOTAS: 'id.replies.orders 5 5', KAFKA_SASL_PASSWORD: 'x' });
  expect(redact('on id.replies.orders 5 [x]')).toBe('on id.replies.orders 5 [[SECRET]]');
});

test('an archive refuses a path that its format has no room for', () => {
  expect(() => tarGz([{ path: 'x'.repeat(101), text: '' }], 0)).toThrow(RangeError);
  expect(() => tarGz([{ path: 'with space', text: '' }], 0)).toThrow(RangeError);
});
