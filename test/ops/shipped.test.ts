import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { judgeAudit } from '../../ops/dev/advisories.ts';
import { noticeOf } from '../../ops/release/notice.ts';
import { type Bom, bomOfPackage, readBom, withItself } from '../../ops/release/sbom.ts';
import { idOf, readLockfile, shippedOf } from '../../ops/release/shipped.ts';

const ROOT = new URL('../../', import.meta.url);
const MANIFEST = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
const SHIPPED = shippedOf(readLockfile());

describe('the list of shipped packages', () => {
  test('has the dependencies of package.json, and none of development', () => {
    const { dependencies, devDependencies } = MANIFEST;
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

describe('the bill of materials', () => {
  const component = (name: string, version = '1.0.0') => ({ 'bom-ref': `${name}@${version}`, name, version });
  const BOM: Bom = {
    bomFormat: 'CycloneDX',
    metadata: { component: component('directory') },
    components: [component('a'), component('b'), component('c'), component('twice'), component('twice', '2.0.0')],
    dependencies: [
      { ref: 'directory@1.0.0', dependsOn: ['a@1.0.0', 'b@1.0.0', 'twice@1.0.0'] },
      { ref: 'a@1.0.0', dependsOn: ['c@1.0.0'] },
      { ref: 'c@1.0.0', dependsOn: ['a@1.0.0'] },
      { ref: 'b@1.0.0', dependsOn: ['twice@2.0.0'] },
    ],
  };

  test('of the worker has exactly what is shipped', async () => {
    const bom = await readBom();
    expect(bom.bomFormat).toBe('CycloneDX');
    expect(bom.components.map((one) => one['bom-ref']).sort()).toEqual(SHIPPED.map(idOf).sort());
    const worker = bomOfPackage(bom, { name: 'idalloc', version: '1.2.3' }, Object.keys(MANIFEST.dependencies));
    expect(worker.components).toEqual(bom.components);
    expect(worker.metadata.component).toMatchObject({ name: 'idalloc', version: '1.2.3' });
  });

  test('of a package has what it needs, directly or not, and nothing else', () => {
    expect(bomOfPackage(BOM, { name: '@x/y', version: '2.0.0' }, ['a'])).toMatchObject({
      metadata: { component: { name: '@x/y', version: '2.0.0', purl: 'pkg:npm/%40x/y@2.0.0' } },
      components: [component('a'), component('c')],
      dependencies: [
        { ref: '@x/y@2.0.0', dependsOn: ['a@1.0.0'] },
        { ref: 'a@1.0.0', dependsOn: ['c@1.0.0'] },
        { ref: 'c@1.0.0', dependsOn: ['a@1.0.0'] },
      ],
    });
  });

  test('of a package that needs another of ours has that one and its needs', () => {
    const first = bomOfPackage(BOM, { name: 'first', version: '2.0.0' }, ['a']);
    const second = bomOfPackage(withItself(first), { name: 'second', version: '2.0.0' }, ['first']);
    expect(second.components.map(({ name }) => name)).toEqual(['first', 'a', 'c']);
  });

  test.for([
    ['absent', /no version of absent/],
    ['twice', /more than one version of twice/],
  ] as const)(
    'of a package is refused if the lockfile does not have what it needs exactly once: %s',
    ([need, message]) => {
      expect(() => bomOfPackage(BOM, { name: 'x', version: '1.0.0' }, [need])).toThrow(message);
    },
  );
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
