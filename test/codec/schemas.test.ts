import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { renderSchemas, SCHEMAS_MODULE } from '../../ops/dev/schemas.ts';
import { LEDGER_SCHEMAS, SCHEMAS } from '../../src/codec/schemas.ts';

test('the schemas in the code are those of schemas/*.avsc; else run `npm run schemas`', () => {
  expect(readFileSync(SCHEMAS_MODULE, 'utf8')).toBe(renderSchemas());
});

test.for(Object.entries({ ...SCHEMAS, ...LEDGER_SCHEMAS }))(
  'the text of %s is that of its file, byte for byte',
  ([name, text]) => {
    expect(text).toBe(readFileSync(new URL(`../../schemas/${name}.avsc`, import.meta.url), 'utf8'));
  },
);
