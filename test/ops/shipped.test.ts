import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { judgeAudit } from '../../ops/dev/advisories.ts';
import { noticeOf } from '../../ops/release/notice.ts';
import { readBom, shippedBom } from '../../ops/release/sbom.ts';
import { idOf, readLockfile, shippedOf } from '../../ops/release/shipped.ts';

const ROOT = new URL('../../', import.meta.url);
const SHIPPED = shippedOf(readLockfile());

describe('what is shipped', () => {
  test('is what package.json needs, and not what development does', () => {
    const { dependencies, devDependencies } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
    const names = new Set(SHIPPED.map(({ name }) => name));
    expect(Object.keys(dependencies).filter((name) => !names.has(name))).toEqual([]);
    expect(names.has('vitest') || names.has('typescript') || names.has('node')).toBe(false);
    expect(Object.keys(devDependencies).length).toBeGreaterThan(0);
  });

  test('each version stands there once, with its licence', () => {
    const packages = {
      '': { version: '1.0.0' },
      'node_modules/@a/b': { version: '1.0.0', license: 'MIT' },
      'node_modules/c/node_modules/@a/b': { version: '1.0.0', license: 'MIT' },
      'node_modules/c/node_modules/d': { version: '2.0.0' },
      'node_modules/e': { version: '1.0.0', license: 'MIT', dev: true },
    };
    expect(shippedOf({ packages })).toEqual([
      { name: '@a/b', version: '1.0.0', license: 'MIT' },
      { name: 'd', version: '2.0.0', license: 'not stated' },
    ]);
  });

  test('NOTICE names it all: run `npm run notice` when this fails', () => {
    expect(readFileSync(new URL('NOTICE', ROOT), 'utf8')).toBe(noticeOf(SHIPPED));
    expect(noticeOf(SHIPPED)).not.toContain('not stated');
  });
});

describe('the SBOM', () => {
  test('has exactly what is shipped', async () => {
    const bom = await readBom();
    expect(bom.bomFormat).toBe('CycloneDX');
    expect(bom.components.map((component) => component['bom-ref']).sort()).toEqual(SHIPPED.map(idOf).sort());
  });

  test('leaves out what only development needs, and every mention of it', () => {
    const bom = {
      bomFormat: 'CycloneDX',
      metadata: { component: { 'bom-ref': 'us@1' } },
      components: [{ 'bom-ref': 'a@1' }, { 'bom-ref': 'dev@1' }],
      dependencies: [
        { ref: 'us@1', dependsOn: ['a@1', 'dev@1'] },
        { ref: 'dev@1', dependsOn: ['a@1'] },
      ],
    };
    expect(shippedBom(bom, new Set(['a@1']))).toMatchObject({
      components: [{ 'bom-ref': 'a@1' }],
      dependencies: [{ ref: 'us@1', dependsOn: ['a@1'] }],
    });
  });
});

describe('advisories', () => {
  const audit = (...severities: string[]) =>
    JSON.stringify({
      vulnerabilities: Object.fromEntries(severities.map((severity) => [`p-${severity}`, { severity }])),
    });

  test.each([
    ['none', audit(), false, /none$/],
    ['a grave one', audit('low', 'critical'), true, /p-critical \(critical\), p-low/],
    ['a small one', audit('moderate'), false, /none is grave; p-moderate/],
    [
      'a registry without an answer',
      '{"message":"405 Method Not Allowed - POST https://r.example/x"}',
      false,
      /not be checked: 405/,
    ],
    ['no answer', '', false, /not be checked/],
    ['something else', 'null', false, /not be checked/],
  ])('%s', (_, output, failed, text) => {
    const verdict = judgeAudit(output);
    expect(verdict.failed).toBe(failed);
    expect(verdict.text).toMatch(text);
    expect(verdict.text).not.toContain('r.example');
  });
});
