import { expect, test } from 'vitest';
import type { Mutant } from './mutant.ts';
import { changedMutants, firstSeed, type Git, otherMutants, rotation } from './mutants.ts';

const mutant = (file: string): Mutant => ({ name: file, patches: [{ file, from: 'a', to: 'b' }] });
const MUTANTS = Array.from({ length: 40 }, (_, i) => mutant(`src/${i}.ts`));
const names = (mutants: readonly Mutant[]) => mutants.map(({ name }) => name);

/** A checkout at `head` whose files `changed` differ from the last release. */
function checkout(options: { head: string; changed?: readonly string[]; shallow?: boolean; tag?: string }): Git {
  const { head, changed = [], shallow = false, tag } = options;
  return (command, ...args) => {
    if (command === 'rev-parse') return args[0] === 'HEAD' ? head : String(shallow);
    if (command === 'describe') return tag;
    if (command === 'log') return 'version-commit';
    if (command === 'diff' && args.at(-1) === (tag ?? 'version-commit')) return changed.join('\n');
    throw new Error(`git ${command} ${args.join(' ')} is not expected`);
  };
}

const [ONE, OTHER] = ['1a2b3c4d5e6f', '1a2b3c4d5e70'];

test('two commits play seeds that do not overlap, and one commit always the same', () => {
  const [one, other] = [firstSeed(300, checkout({ head: ONE })), firstSeed(300, checkout({ head: OTHER }))];
  expect(Math.abs(one - other)).toBeGreaterThanOrEqual(300);
  expect(firstSeed(300, checkout({ head: ONE }))).toBe(one);
});

test('outside a git checkout the seeds begin with 1, and all mutants are simulated', () => {
  const none: Git = () => undefined;
  expect([rotation(none), firstSeed(300, none)]).toEqual([0, 1]);
  expect(changedMutants(MUTANTS, none)).toEqual(MUTANTS);
});

test.each([undefined, 'v1.0.0'])(
  'every mutant of a file that changed since the release is simulated (tag %s)',
  (tag) => {
    const changed = ['src/3.ts', 'src/29.ts', 'README.md'];
    const chosen = names(
      changedMutants(MUTANTS, checkout({ head: ONE, changed, ...(tag === undefined ? {} : { tag }) })),
    );
    expect(chosen.slice(0, 2)).toEqual(['src/3.ts', 'src/29.ts']);
    expect(new Set(chosen).size).toBe(2 + 15);
  },
);

test('at most 30 mutants of changed files are simulated, which rotate by commit', () => {
  const changed = MUTANTS.map(({ patches }) => patches[0]?.file ?? '');
  const chosenAt = (head: string) => names(changedMutants(MUTANTS, checkout({ head, changed })));
  expect(new Set(chosenAt(ONE)).size).toBe(30);
  expect(chosenAt(OTHER)).not.toEqual(chosenAt(ONE));
});

test('the other mutants rotate by commit', () => {
  const chosenAt = (head: string) => names(changedMutants(MUTANTS, checkout({ head })));
  expect(chosenAt(ONE)).toHaveLength(15);
  expect(chosenAt(OTHER)).not.toEqual(chosenAt(ONE));
});

test('in a shallow clone, which does not have the release, all mutants are simulated', () => {
  expect(changedMutants(MUTANTS, checkout({ head: ONE, shallow: true }))).toEqual(MUTANTS);
});

test('the long suite simulates exactly the mutants that the short one leaves out at the same commit', () => {
  const changed = MUTANTS.map(({ patches }) => patches[0]?.file ?? '');
  for (const at of [
    checkout({ head: ONE, changed }),
    checkout({ head: ONE }),
    checkout({ head: ONE, shallow: true }),
  ]) {
    const [short, long] = [changedMutants(MUTANTS, at), otherMutants(MUTANTS, at)];
    expect(names([...short, ...long]).toSorted()).toEqual(names(MUTANTS).toSorted());
  }
  expect(otherMutants(MUTANTS, checkout({ head: ONE, changed })).length).toBeGreaterThan(0);
});
