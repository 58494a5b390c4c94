import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { REFERENCE_PAGES, referencePath, renderReference } from '../../ops/dev/reference.ts';
import { VARIABLES } from '../../src/config/variables.ts';
import { ERRORS } from '../../src/errors.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';

describe('the generated reference', () => {
  test.for([...REFERENCE_PAGES])('%s is current; else run `npm run docs:reference`', (page) => {
    expect(readFileSync(referencePath(page), 'utf8')).toBe(renderReference(page));
  });

  test('has every variable, with its default', () => {
    const page = renderReference('configuration.md');
    const missing = Object.entries(VARIABLES).filter(([name, { fallback }]) => {
      const row = page.split('\n').find((line) => line.startsWith(`- \`${name}\``)) ?? '';
      return row === '' || (fallback !== undefined && !row.includes(`, \`${fallback}\`): `));
    });
    expect(missing).toEqual([]);
  });

  test('has every metric that a worker serves', async () => {
    const { body } = await createMetrics().render();
    const served = [...body.matchAll(/^# TYPE (idalloc_\w+)/gm)].map(([, name = '']) => name);
    expect(served.length).toBeGreaterThan(20);
    const page = renderReference('metrics.md');
    expect(served.filter((name) => !new RegExp(`^- \`${name}[\`{]`, 'm').test(page))).toEqual([]);
  });

  test('has the flags of each error code, and its status over HTTP', () => {
    const rows = renderReference('error-codes.md').split('\n');
    const yes = (is: boolean) => (is ? 'yes' : '');
    const poor = Object.entries(ERRORS).filter(([code, { retryable, deadLetter }]) => {
      const row = rows.find((line) => line.startsWith(`| [\`${code}\`](../operations/runbook.md#`)) ?? '';
      const [, retry = '', letter = '', status = ''] = row.split(' |').map((text) => text.trim());
      return [retry, letter].join() !== [yes(retryable), yes(deadLetter)].join() || !/^(\d{3})?$/.test(status);
    });
    expect(poor).toEqual([]);
    expect(rows.find((line) => line.includes('QUOTA_EXCEEDED'))).toMatch(/\| yes \| {2}\| 429 \|$/);
  });

  test('has the options of each command', () => {
    const page = renderReference('cli.md');
    for (const heading of [
      '## idalloc leases\n',
      '## idalloc replay',
      '## idalloc deadletters resend',
      '## idalloc worker',
    ]) {
      expect(page).toContain(heading);
    }
    expect(page).toMatch(/^- `--dry-run`: only show what would be read again/m);
    expect(page.match(/`--sequence-bits <n>`/g)).toHaveLength(1);
  });

  test('has what a command prints below what its help explains', () => {
    const [, trace = ''] = /\n## idalloc trace\n(.*?)\n## /s.exec(renderReference('cli.md')) ?? [];
    expect(trace).toMatch(/--correlation-id finds .*```\n\n```console\n\$ idalloc trace \d+\n/s);
  });
});
