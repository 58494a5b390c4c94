import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { UNREADY_REASONS } from '../src/core/gate.ts';
import { ERRORS } from '../src/errors.ts';
import { createMetrics } from '../src/metrics.ts';

const RUNBOOK = readFileSync(new URL('../ops/runbook.md', import.meta.url), 'utf8');
const README = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
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

async function existing(): Promise<(string | undefined)[]> {
  const { body } = await createMetrics().render();
  return [...body.matchAll(/^# TYPE (idalloc_\w+)/gm)].map(([, name]) => name);
}

describe('the runbook', () => {
  it.for([...CODES])('says what %s means and what to do', (code) => {
    expect(ENTRIES.get(code)).toMatch(/- \*\*Means\*\* \S[\s\S]*- \*\*Do\*\* \S/);
  });

  it('has no entry for what does not exist', () => {
    expect([...ENTRIES.keys()].filter((heading) => !CODES.has(heading))).toEqual([]);
  });

  it.each([
    ['the runbook', RUNBOOK],
    ['README', README],
  ])('names metrics that exist: %s', async (_, text) => {
    const named = new Set([...text.matchAll(/`(idalloc_\w+)/g)].map(([, name]) => name));
    expect(named.size).toBeGreaterThan(3);
    const metrics = await existing();
    expect([...named].filter((name) => !metrics.includes(name))).toEqual([]);
  });

  it('README names every metric', async () => {
    expect((await existing()).filter((name) => !README.includes(`\`${name}`))).toEqual([]);
  });

  it('links only to headings that it has', () => {
    const anchors = [...RUNBOOK.matchAll(/^#+ (.+)$/gm)].map(([, text = '']) =>
      text
        .toLowerCase()
        .replaceAll(/[^a-z0-9 _-]/g, '')
        .replaceAll(' ', '-'),
    );
    const links = [...RUNBOOK.matchAll(/\]\(#([^)]+)\)/g)].map(([, anchor]) => anchor);
    expect(links.length).toBeGreaterThan(0);
    for (const link of links) expect(anchors).toContain(link);
  });
});
