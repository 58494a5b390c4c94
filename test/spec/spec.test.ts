import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { readPage } from '../support/docs.ts';
import { quint, skipping } from '../support/example-tools.ts';
import { examples } from '../support/examples.ts';
import { seeded } from '../support/seeded.ts';

const QUINT = skipping(await quint());
const SAMPLES = examples(600, 60);
const STEPS = 50;

/** Each specification, and what must occur in some of its histories, or the invariants were tested on nothing. */
const SPECIFICATIONS: Readonly<Record<string, readonly string[]>> = {
  ceilings: [
    's.uses.length() > 3',
    's.forgot != Set() and s.uses.length() > 0',
    's.operator.stage == "rebuilt" and s.uses.length() > 0',
  ],
  ledger: ['s.replied.size() > 1', 's.life == 1 and s.head.end > 0', 's.copies.get("A").losses > 0'],
  sequences: ['s.replied.size() > 1', 's.life > 0 and s.replied.size() > 0'],
};

const sourceOf = (name: string) => readFileSync(join(import.meta.dirname, `${name}.qnt`), 'utf8');
const namesOf = (source: string, pattern: RegExp) => [...source.matchAll(pattern)].map(([, name = '']) => name);

/** The values in the section of invariants. */
function invariantsOf(source: string): string[] {
  const from = source.indexOf('  // Invariants');
  return namesOf(source.slice(from, source.indexOf('  // What each part prevents')), /^ {2}val (\w+) =/gm);
}

/** Runs the tool, which must not look for an evaluator elsewhere. Resolves with its output, whatever its verdict. */
async function run(command: string, file: string, args: readonly string[]): Promise<string> {
  const program = join(QUINT.path, 'node_modules/@informalsystems/quint/dist/src/cli.js');
  const all = [program, command, file, '--backend=typescript', ...args];
  const env = { ...process.env, NO_COLOR: '1' };
  try {
    const { stdout } = await promisify(execFile)(process.execPath, all, { env });
    return stdout;
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { readonly stdout?: string; readonly stderr?: string };
    return `${stdout}${stderr}`;
  }
}

/** The outcome of each history of a file, by its name. */
async function outcomes(name: string, source: string): Promise<Readonly<Record<string, string>>> {
  const place = await mkdtemp(join(tmpdir(), 'idalloc-spec-'));
  try {
    const file = join(place, `${name}.qnt`);
    await writeFile(file, source);
    const output = await run('test', file, [`--main=${name}`, '--match=^(without|whole)', '--max-samples=1']);
    return Object.fromEntries(
      [...output.matchAll(/\b((?:without|whole)\w+) (passed|failed)/g)].map(([, run = '', verdict = '']) => [
        run,
        verdict,
      ]),
    );
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

describe.each(Object.keys(SPECIFICATIONS))('the specification of %s', (name) => {
  const source = sourceOf(name);
  const histories = namesOf(source, /^ {2}run (\w+) =/gm);
  const invariants = invariantsOf(source);

  test('has a history that breaks an invariant for each part that can be left out, and one for each invariant', () => {
    const parts = new Set(namesOf(source, /keeps\("([^"]+)"\)/g));
    expect(new Set(namesOf(source, /= start\("([^"]+)"\)/g))).toEqual(parts);
    const broken = namesOf(source.slice(source.indexOf('  run ')), /not\((\w+)\)/g);
    expect(new Set(broken)).toEqual(new Set(invariants));
  });

  test('has the invariants that docs/guarantees.md names', () => {
    const row = new RegExp(`\`test/spec/${name}\\.qnt\`((?: "\\w+",?)+)`, 'g');
    const named = namesOf(readPage('docs/guarantees.md'), row).flatMap((text) => namesOf(text, /"(\w+)"/g));
    expect(named.toSorted()).toEqual(invariants.toSorted());
  });

  test.skipIf(QUINT.why)(
    `breaks an invariant without a part, in a history that the whole rule has not${QUINT.title}`,
    async () => {
      const whole = source
        .slice(source.indexOf('  run '))
        .replaceAll(/run without(\w+) = start\("[^"]+"\)/g, 'run whole$1 = start("")');
      const both = source.replace(/\}\s*$/, whole);
      const expected = histories.flatMap((run) => [
        [run, 'passed'],
        [run.replace('without', 'whole'), 'failed'],
      ]);
      expect(await outcomes(name, both)).toEqual(Object.fromEntries(expected));
    },
  );

  test.skipIf(QUINT.why)(`keeps its invariants in random histories${QUINT.title}`, async () => {
    const seed = `0x${seeded(`specification of ${name}`)
      .below(2 ** 31)
      .toString(16)}`;
    const output = await run('run', join(import.meta.dirname, `${name}.qnt`), [
      ...[`--main=${name}`, `--max-samples=${SAMPLES}`, `--max-steps=${STEPS}`, `--seed=${seed}`, '--verbosity=1'],
      ...['--invariants', ...invariants],
      ...['--witnesses', ...(SPECIFICATIONS[name] ?? [])],
    ]);
    expect(output).toContain('[ok] No violation found');
    expect(output).not.toContain('witnessed in 0 trace');
  });
});
