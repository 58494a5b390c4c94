import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { judgeAudit } from '../../ops/dev/advisories.ts';
import { noticeOf } from '../../ops/dev/notice.ts';
import { readBom, shippedBom } from '../../ops/dev/sbom.ts';
import { idOf, readLockfile, shippedOf } from '../../ops/dev/shipped.ts';

const ROOT = new URL('../../', import.meta.url);
const SHIPPED = shippedOf(readLockfile());

describe('the list of shipped packages', () => {
  test('has the dependencies of package.json, and none of development', () => {
    const { dependencies, devDependencies } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
    const names = new Set(SHIPPED.map(({ name }) => name));
    expect(Object.keys(dependencies).filter((name) => !names.has(name))).toEqual([]);
    expect(names.has('vitest') || names.has('typescript') || names.has('node')).toBe(false);
    expect(Object.keys(devDependencies).length).toBeGreaterThan(0);
  });

  test('has each version once, with its licence', () => {
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

  test('equals NOTICE: run `npm run notice` if this fails', () => {
    expect(readFileSync(new URL('NOTICE', ROOT), 'utf8')).toBe(noticeOf(SHIPPED));
    expect(noticeOf(SHIPPED)).not.toContain('not stated');
  });
});

describe('the SBOM', () => {
  test('has exactly the shipped packages', async () => {
    const bom = await readBom();
    expect(bom.bomFormat).toBe('CycloneDX');
    expect(bom.components.map((component) => component['bom-ref']).sort()).toEqual(SHIPPED.map(idOf).sort());
  });

  test('leaves out packages of development, and references to them', () => {
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
    ['a serious one', audit('low', 'critical'), true, /p-critical \(critical\), p-low/],
    ['a minor one', audit('moderate'), false, /none is high or critical; p-moderate/],
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
