import { describe, expect, it } from 'vitest';
import { UNREADY_REASONS } from '../../src/core/gate.ts';
import { ERRORS } from '../../src/errors.ts';
import { REMEDIES } from '../../src/worker/remedies.ts';
import { readPage } from '../support/docs.ts';

const CODES = new Set<string>([...Object.keys(ERRORS), ...UNREADY_REASONS]);
const ALWAYS = /^\*\*Meaning\*\*: \S[\s\S]*^\*\*Check\*\*: \S[\s\S]*^\*\*Remedy\*\*: \S/m;

/** The text under each heading of the third level, with what its section says before the first of them. */
const ENTRIES = new Map(
  readPage('docs/operations/runbook.md')
    .split(/^## /m)
    .flatMap((section) => {
      const [intro = '', ...entries] = section.split(/^### /m);
      return entries.map((entry) => [entry.split('\n')[0] ?? '', { intro, entry }] as const);
    }),
);

/** The paragraph of an entry, without links and markup. */
function paragraphOf(reason: string, name: 'Meaning' | 'Remedy'): string {
  const { entry = '' } = ENTRIES.get(reason) ?? {};
  const [, paragraph = ''] = new RegExp(`\\*\\*${name}\\*\\*: ([\\s\\S]*?)(?=\\n\\n|$)`).exec(entry) ?? [];
  const plain = paragraph
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/[`*†]/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
  return plain.replace(/^(?!etcd)./, (first) => first.toUpperCase());
}

describe('the runbook', () => {
  it.for([...UNREADY_REASONS])('says of %s what the status page says, in src/worker/remedies.ts', (reason) => {
    const [meaning, remedy] = [paragraphOf(reason, 'Meaning'), paragraphOf(reason, 'Remedy')];
    expect({ meaning, remedy }).toEqual(REMEDIES[reason]);
  });

  it.for([...ENTRIES])('has meaning, check and remedy of %s, in this order', ([, { entry }]) => {
    expect(entry).toMatch(ALWAYS);
  });

  it.for([...ENTRIES])('says for %s, or for its section, what one sees and how to verify', ([, { intro, entry }]) => {
    expect(/^\*\*Symptom\*\*: \S/m.test(entry) || /^The symptom is /m.test(intro)).toBe(true);
    expect(/^\*\*Verify\*\*: \S/m.test(entry) || /\bVerify (that|by) /.test(intro)).toBe(true);
  });

  it('has an entry for each code', () => {
    expect([...CODES].filter((code) => !ENTRIES.has(code))).toEqual([]);
  });

  it('has no entry for a code that does not exist', () => {
    const codes = [...ENTRIES.keys()].filter((heading) => /^[A-Z_]+$/.test(heading));
    expect(codes.filter((heading) => !CODES.has(heading))).toEqual([]);
  });
});
