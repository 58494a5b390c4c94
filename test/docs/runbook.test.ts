import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { UNREADY_REASONS } from '../../src/core/gate.ts';
import { ERRORS } from '../../src/errors.ts';

const RUNBOOK = readFileSync(new URL('../../docs/operations/runbook.md', import.meta.url), 'utf8');
const CODES = new Set<string>([...Object.keys(ERRORS), ...UNREADY_REASONS]);

/** The text under each heading of the third level. */
const ENTRIES = new Map(
  RUNBOOK.split(/^### /m)
    .slice(1)
    .map((text) => {
      const [heading = '', ...lines] = text.split('\n');
      const end = lines.findIndex((line) => line.startsWith('## '));
      return [heading, (end < 0 ? lines : lines.slice(0, end)).join('\n')] as const;
    }),
);

describe('the runbook', () => {
  it.for([...CODES])('explains %s and what to do', (code) => {
    expect(ENTRIES.get(code)).toMatch(/- \*\*Means\*\* \S[\s\S]*- \*\*Do\*\* \S/);
  });

  it('has no entry for a code that does not exist', () => {
    expect([...ENTRIES.keys()].filter((heading) => !CODES.has(heading))).toEqual([]);
  });
});
