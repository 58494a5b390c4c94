import { SUITES } from '../../test/integration/suites.ts';
import { cell, pageOf, table } from './markdown.ts';

/** The page with every file of tests on real servers. */
export function realServerTests(): string {
  const rows = (project: string) =>
    Object.entries(SUITES)
      .filter(([, listed]) => listed.project === project)
      .map(([name, { shows, seconds }]) => [`\`${name}\``, cell(shows), String(seconds)]);
  const head = ['file', 'what it alone shows', 's'];
  return pageOf(
    `# Tests on real servers

For whoever changes the code: every file of \`test/integration\`, the suite that runs it, what it shows that nothing before it does, and the
seconds it took on two cores beside other files. [How the guarantees are tested](testing.md) explains the levels.`,
    `## The short suite

\`npm test\`: what only real servers show.\n\n${table(head, rows('short'))}`,
    `## The long suite

\`npm run test:full\`. "Also simulated": the simulator shows it too, in more variants.\n\n${table(head, rows('long'))}`,
    `## The long suite, two files at a time

These are late beside many others.\n\n${table(head, rows('few'))}`,
    `## The long suite, one file at a time

These measure, or break the suite's servers in any order.\n\n${table(head, rows('alone'))}`,
  );
}
