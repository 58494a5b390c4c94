import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../support/docs.ts';

/** What the packages' entries export that can be called, by source; 'all' of it in some. */
const CALLS: readonly (readonly [source: string, names: readonly string[] | 'all'])[] = [
  ['src/client/id-source.ts', 'all'],
  ['src/client/client.ts', ['connect']],
  ['src/client/metric-exports.ts', ['exportToPrometheus']],
  ['src/client/testing.ts', ['connect']],
  ['src/codec/form/keys.ts', ['formKeys']],
  ['src/codec/id-batch.ts', ['expandIds']],
  ['src/core/layout-choice.ts', ['customLayout']],
  ['src/core/presets.ts', ['presetLayout']],
  ['src/ids/ids.ts', 'all'],
];
/** An exported function or a method, with the comment before it if there is one. */
const CALL =
  /(?:\/\*\*(?<text>(?:(?!\*\/)[\s\S])*)\*\/\n)?(?:export function | {2}(?:static async |async )?)(?<name>\w+)(?:<[\w ]+>)?\((?:[^\n]*[{;])?\n/g;

test.for(CALLS)(
  'each public call of %s says in its comment what it throws, for the reference of the API',
  ([source, names]) => {
    const found = [...readFileSync(join(ROOT, source), 'utf8').matchAll(CALL)].map(({ groups }) => groups ?? {});
    const chosen = found.filter(({ name = '' }) =>
      names === 'all' ? !/^(if|for|throw)$/.test(name) : names.includes(name),
    );
    expect(chosen.length).toBeGreaterThanOrEqual(names === 'all' ? 4 : names.length);
    const silent = chosen.filter(({ text = '' }) => !/@throws|Never (throws|rejects)/.test(text));
    expect(silent.map(({ name }) => name)).toEqual([]);
  },
);
