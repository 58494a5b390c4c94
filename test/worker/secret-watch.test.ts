import { chmodSync, mkdtempDisposableSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Config, loadWorkerConfig } from '../../src/config/config.ts';
import { SecretFile } from '../../src/config/secret-file.ts';
import type { Log } from '../../src/log.ts';
import { SecretWatch } from '../../src/worker/secret-watch.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

it('reports once that a secret was replaced, and once that its file is not valid', async () => {
  const runtime = new VirtualRuntime();
  let content = 'first';
  const check = (text: string) => (text === '' ? { problem: 'is empty' } : { text });
  const file = new SecretFile('KAFKA_SASL_PASSWORD_FILE', '/f', content, () => content, check);
  const lines: string[] = [];
  const line = (level: string) => (fields: object, message: string) =>
    lines.push(`${level}: ${message} ${JSON.stringify(fields)}`);
  const log = { info: line('info'), error: line('error') } as unknown as Log;
  using _ = new SecretWatch([file], runtime, log);
  for (content of ['first', 'second', 'second', '', '', 'third']) await runtime.until(runtime.sleep(5_000));
  expect(lines.map((each) => each.split(' ')[0])).toEqual(['info:', 'error:', 'info:']);
  expect(lines[1]).toMatch(/KAFKA_SASL_PASSWORD_FILE.*is empty/);
  expect(lines.join()).not.toMatch(/first|second|third/);
});

/** The log of a watch; a line is its level, its variable and its first words. */
function logged() {
  const lines: string[] = [];
  const line = (level: string) => (fields: { variable: string; missing?: string }, message: string) => {
    const missing = fields.missing === undefined ? '' : ` (${fields.missing})`;
    lines.push(`${level} ${fields.variable}: ${message.split(/[:;]/)[0]}${missing}`);
  };
  return { lines, log: { info: line('info'), warn: line('warn'), error: line('error') } as unknown as Log };
}

describe('a replaced certificate', () => {
  const WORKER = { KAFKA_BROKERS: 'kafka:9092', ETCD_ENDPOINTS: 'http://etcd:2379', DATACENTER_ID: '4' };

  function loaded(dir: string): Config {
    const { certFile, keyFile } = new CertificateAuthority(dir).issue('server');
    for (const [name, from] of [
      ['cert', certFile],
      ['key', keyFile],
    ] as const) {
      writeFileSync(join(dir, name), readFileSync(from), { mode: 0o600 });
    }
    return loadWorkerConfig({ ...WORKER, API_TLS_CERT_FILE: join(dir, 'cert'), API_TLS_KEY_FILE: join(dir, 'key') });
  }

  it.each([
    ['a certificate cut off', 'cert', (text: string) => text.slice(0, 200)],
    ['a certificate of rubbish', 'cert', (text: string) => text.replace(/M/g, 'A')],
    ['a key of rubbish', 'key', (text: string) => text.replace(/M/g, 'A')],
  ])('is reported as invalid, not as used, when it is %s, and the old one stays in use', async (_, name, damage) => {
    using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-watch-'));
    const config = loaded(dir.path);
    const runtime = new VirtualRuntime();
    const { lines, log } = logged();
    using _watch = new SecretWatch(config.secretFiles, runtime, log);
    const good = readFileSync(join(dir.path, name), 'utf8');
    writeFileSync(join(dir.path, name), damage(good));
    await runtime.until(runtime.sleep(12_000));
    expect(lines).toEqual([`error API_TLS_${name.toUpperCase()}_FILE: secret file invalid`]);
    expect(config.api?.tls?.[name as 'cert' | 'key']()).toBe(good.trimEnd());
  });

  it('is reported as used when its key was replaced too; until then the file that is missing is named, once', async () => {
    using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-watch-'));
    const config = loaded(dir.path);
    const runtime = new VirtualRuntime();
    const { lines, log } = logged();
    using _watch = new SecretWatch(config.secretFiles, runtime, log);
    const { certFile, keyFile } = new CertificateAuthority(dir.path).issue('other');
    writeFileSync(join(dir.path, 'cert'), readFileSync(certFile));
    await runtime.until(runtime.sleep(12_000));
    const alone = 'warn API_TLS_CERT_FILE: secret file replaced, but the other file of the pair does not match it';
    expect(lines).toEqual([`${alone} (${join(dir.path, 'key')})`]);
    writeFileSync(join(dir.path, 'key'), readFileSync(keyFile));
    await runtime.until(runtime.sleep(12_000));
    expect(lines.slice(1).sort()).toEqual(
      ['CERT', 'KEY'].map((name) => `info API_TLS_${name}_FILE: secret file replaced`),
    );
  });
});

describe.skipIf(process.platform === 'win32')('the rights on a secret file', () => {
  const check = (text: string) => ({ text });

  /** The warnings about a file with this mode and content: at the start, and after it was replaced. */
  async function warnings(variable: string, mode: number, content: string): Promise<[number, number]> {
    using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-watch-'));
    const path = join(dir.path, 'secret');
    writeFileSync(path, content);
    chmodSync(path, mode);
    const runtime = new VirtualRuntime();
    const { lines, log } = logged();
    const file = new SecretFile(variable, path, content, (from) => readFileSync(from, 'utf8'), check);
    using _watch = new SecretWatch([file], runtime, log);
    const atStart = lines.length;
    await runtime.until(runtime.sleep(12_000));
    expect(lines).toHaveLength(atStart);
    writeFileSync(path, `${content} `);
    await runtime.until(runtime.sleep(12_000));
    const expected = `warn ${variable}: secret file open to every user of this machine`;
    const warned = lines.filter((line) => line.startsWith('warn'));
    expect(warned.every((line) => line === expected)).toBe(true);
    return [atStart, warned.length - atStart];
  }

  it.each([
    [0o644, 'KAFKA_SASL_PASSWORD_FILE', 'pw', 'once at the start and once when it is replaced', [1, 1]],
    [0o602, 'KAFKA_SASL_PASSWORD_FILE', 'pw', 'since anybody may replace it', [1, 1]],
    [0o644, 'KAFKA_KEY_FILE', '-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----', 'since it has a key', [1, 1]],
    [0o640, 'KAFKA_SASL_PASSWORD_FILE', 'pw', 'not at all: only a group may read it', [0, 0]],
    [0o644, 'KAFKA_CA_FILE', '-----BEGIN CERTIFICATE-----', 'not at all: certificates are public', [0, 0]],
    [0o644, 'QUOTAS_FILE', 'id.replies.a 5', 'not at all: quotas are no secret', [0, 0]],
  ] as const)('%o of %s with %s are warned about %s', async (mode, variable, content, _, expected) => {
    expect(await warnings(variable, mode, content)).toEqual(expected);
  });
});
