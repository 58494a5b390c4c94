import { expect, test } from 'vitest';
import { Rng } from '../sim/rng.ts';
import { diffOf, draw, KINDS, type Mutation, mutated, mutationsOf } from './mutations.ts';
import { distances, isSimulated, parse, readSources, sourcesOf, testsOf } from './sources.ts';

function mutationsIn(text: string): readonly Mutation[] {
  const tree = parse(new Map([['src/a.ts', text]])).get('src/a.ts');
  return tree === undefined ? [] : mutationsOf(tree);
}

/** Each mutation of a text by its kind and the whole text with it. */
function made(text: string): readonly (readonly [string, string])[] {
  return mutationsIn(text).map((one) => [one.kind, mutated(text, one)]);
}

test.each<readonly [keyof typeof KINDS, string, string]>([
  ['operator', 'x = a < b;', 'x = a <= b;'],
  ['operator', 'x = a && b;', 'x = a || b;'],
  ['operator', 'x -= y;', 'x += y;'],
  ['operator', 'x = keys.some((key) => key === a);', 'x = keys.some((key) => key !== a);'],
  ['constant', 'const A_MS = 10_000;', 'const A_MS = (10_000 + 1);'],
  ['constant', 'const A = 0n;', 'const A = (0n + 1n);'],
  ['constant', 'const IS = true;', 'const IS = false;'],
  ['await', 'const a = await b();', 'const a = b();'],
  ['call', 'a.b(c);', ';'],
  ['call', 'if (a) void b();', 'if (a) ;'],
  ['arguments', 'const x = f(a, b);', 'const x = f(b, a);'],
  ['guard', 'for (;;) if (a) { b = c; break; }', 'for (;;) ;'],
  ['condition', 'const x = a ? b : c;', 'const x = !(a) ? b : c;'],
  ['condition', 'if (!a) b = c;', 'if (a) b = c;'],
])('%s: %s can become %s', (kind, from, to) => {
  expect(made(from)).toContainEqual([kind, to]);
});

test('each kind occurs in the sources', () => {
  const texts = new Map([...readSources().texts].filter(([file]) => file.startsWith('src/core/')));
  const found = [...parse(texts).values()].flatMap((tree) => mutationsOf(tree));
  // The core waits for nothing.
  const kinds = [...new Set(found.map(({ kind }) => kind)), 'await'];
  expect(kinds.toSorted()).toEqual(Object.keys(KINDS).toSorted());
});

test.each([
  '// a comment with 1 < 2 && true\n/** and 3 + 4 */',
  "import { a } from './b.ts';",
  'type A = 1 | true;\ninterface B { readonly c: 2 }',
  `const a = \`between \${b + 1} and \${c - 1}\`;`,
  "const a = 'b' + c + d;",
  'throw new RangeError(describe(a + 1, b));',
  "this.#log.warn({ a: b + 1 }, 'c');",
  'const a = { 1: b };',
])('what only people read, types and names stay as they are: %s', (text) => {
  expect(mutationsIn(text)).toEqual([]);
});

test.each(['max', 'imul'])('arguments whose order makes no difference stay in it: %s', (name) => {
  expect(mutationsIn(`const a = Math.${name}(b, c);`)).toEqual([]);
});

test('places are right behind letters of several bytes', () => {
  expect(made("const a = '€ 🎲 µs';\nconst b = c < d;")).toEqual([
    ['operator', "const a = '€ 🎲 µs';\nconst b = c <= d;"],
  ]);
});

test('a diff has the changed lines before and after', () => {
  const text = 'a();\nif (b) {\n  return;\n}\nc();\n';
  const guard = mutationsIn(text).find(({ kind }) => kind === 'guard');
  expect(guard && diffOf(text, guard)).toBe('- if (b) {\n-   return;\n- }\n+ ;');
});

test('a seed draws the same mutations again, and none twice', () => {
  const all = mutationsIn('x = a < b;\ny = 1 + 2;\nf(a, b);\nif (a) g(1);\n').map((one) => ({
    file: 'src/a.ts',
    ...one,
  }));
  const drawn = draw(all, 4, new Rng(7));
  expect(draw(all, 4, new Rng(7))).toEqual(drawn);
  expect(new Set(drawn).size).toBe(4);
  expect(draw(all, 1_000, new Rng(7))).toHaveLength(all.length);
});

const SOURCES = sourcesOf(
  new Map([
    ['src/core/a.ts', ''],
    ['src/core/b.ts', "import {\n  a,\n} from './a.ts';\n"],
    ['src/http/c.ts', "export { b } from '../core/b.ts';\n"],
    ['src/http/types.ts', "import type { A } from '../core/a.ts';\n"],
    ['test/core/b.test.ts', "import { b } from '../../src/core/b.ts';\n"],
    ['test/core/a.test.ts', "import { a } from '../../src/core/a.ts';\n"],
    ['test/http/c.test.ts', "const c = await import('../../src/http/c.ts');\n"],
    ['test/http/types.test.ts', "import { A } from '../../src/http/types.ts';\n"],
    ['test/integration/all.test.ts', "import '../../src/core/a.ts';\n"],
    ['test/sim/simulation.ts', "import { b } from '../../src/core/b.ts';\n"],
  ]),
);

test('a file is covered by the tests that load it, those of its room first, nearest first', () => {
  expect(testsOf('src/core/a.ts', SOURCES)).toEqual([
    'test/core/a.test.ts',
    'test/core/b.test.ts',
    'test/http/c.test.ts',
  ]);
  expect(distances('src/core/a.ts', SOURCES).get('test/http/c.test.ts')).toBe(3);
});

test('a file is simulated if the simulator loads it', () => {
  expect(['src/core/a.ts', 'src/http/c.ts'].map((file) => isSimulated(file, SOURCES))).toEqual([true, false]);
});
