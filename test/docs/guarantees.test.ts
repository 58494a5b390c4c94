import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { FINDINGS } from '../../src/cli/audit/found.ts';
import { CHECKS } from '../sim/checker.ts';
import { MUTANTS } from '../sim/mutants.ts';
import { ROOT, readPage } from '../support/docs.ts';

const PAGE = readPage('docs/guarantees.md');
const RULES = readPage('ops/prometheus/rules.yml');

/** The rows of each guarantee: what shows it, by kind. */
const ROWS = PAGE.split(/^## /m)
  .filter((section) => /^G\d/.test(section))
  .flatMap((section) =>
    [...section.matchAll(/^\| (unit|simulator|model|mutants|real servers|noticed by) \| (.+) \|$/gm)].map(
      ([, kind = '', text = '']) => ({ guarantee: section.slice(0, 2), kind, text }),
    ),
  );

const quoted = (text: string) => [...text.matchAll(/"([^"]+)"/g)].map(([, name = '']) => name);
const named = (kind: string) => ROWS.filter((row) => row.kind === kind).flatMap(({ text }) => quoted(text));

describe('the page of guarantees', () => {
  test('has a unit test, a check of the simulator, a mutant, a test on real servers and a sign for each', () => {
    for (const kind of ['unit', 'simulator', 'mutants', 'real servers', 'noticed by']) {
      const guarantees = ROWS.filter((row) => row.kind === kind).map(({ guarantee }) => guarantee);
      expect({ kind, guarantees }).toEqual({ kind, guarantees: ['G1', 'G2', 'G3', 'G4', 'G5', 'G6', 'G7', 'G8'] });
    }
  });

  test('names every check of the simulator but those of the audit and of appends, and no other', () => {
    const elsewhere = ['audited', 'one append at a time', 'marked first', 'honest copies'];
    expect(new Set([...named('simulator'), ...elsewhere])).toEqual(new Set(Object.keys(CHECKS)));
  });

  test('names mutants that exist', () => {
    const known = new Set(MUTANTS.map(({ name }) => name));
    expect(named('mutants').filter((name) => !known.has(name))).toEqual([]);
  });

  const titles = ROWS.filter(({ kind }) => ['unit', 'model', 'real servers'].includes(kind)).flatMap(({ text }) =>
    [...text.matchAll(/`(test\/[^`]+)`((?: "[^"]+",?)+)/g)].flatMap(([, file = '', shown = '']) =>
      quoted(shown).map((title) => ({ file, title })),
    ),
  );

  test.for(titles)('$file has "$title"', ({ file, title }) => {
    expect(existsSync(join(ROOT, file))).toBe(true);
    expect(readPage(file).replaceAll("\\'", "'")).toContain(title);
  });

  test('names alerts and findings that exist', () => {
    const signs = ROWS.filter(({ kind }) => kind === 'noticed by').map(({ text }) => text);
    const alerts = signs.flatMap((text) => text.match(/\bIdalloc\w+/g) ?? []);
    const findings = signs.flatMap((text) => [...text.matchAll(/`([A-Z_]+)`/g)].map(([, code]) => code));
    expect(alerts.filter((name) => !RULES.includes(`alert: ${name}\n`))).toEqual([]);
    expect(findings.filter((code = '') => !(code in FINDINGS))).toEqual([]);
  });

  test('says of each assumption which guarantee needs it', () => {
    const assumed = [...PAGE.matchAll(/^\| (A\d) \|/gm)].map(([, name = '']) => name);
    const guarantees = PAGE.slice(PAGE.indexOf('## G1'));
    expect(assumed.filter((name) => !new RegExp(`\\b${name}\\b`).test(guarantees))).toEqual([]);
  });
});
