import { describe, expect, test } from 'vitest';
import { PAGES, readPage } from '../support/docs.ts';

const DECISIONS = PAGES.filter((page) => /^docs\/internals\/decisions\/(?!README)/.test(page));
/** The parts of a decision in their order; those behind the decision may be left out. */
const PARTS = ['Context', 'Decision', 'Rejected', 'Consequences', 'Measured', 'Shown by', 'Not modelled'];

/** The parts that a decision has, as their headings stand at the beginnings of paragraphs. */
function partsOf(page: string): string[] {
  return [...readPage(page).matchAll(/^\*\*([A-Z][a-z]+(?: [a-z]+)?)(?:\.\*\*|\*\* \()/gm)].map(
    ([, name = '']) => name,
  );
}

describe.each(DECISIONS)('%s', (page) => {
  test('says when it was accepted', () => {
    expect(readPage(page)).toMatch(/^# .+\n\nAccepted on \d+ [A-Z][a-z]+ 20\d\d\.\n\n/);
  });

  test('has a context and a decision first, and what shows it or follows from it', () => {
    const parts = partsOf(page).filter((name) => PARTS.includes(name));
    expect(parts.slice(0, 2)).toEqual(['Context', 'Decision']);
    expect(parts.length).toBeGreaterThan(2);
    expect(new Set(parts).size).toBe(parts.length);
  });
});
