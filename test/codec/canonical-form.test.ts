import { afterEach, describe, expect, it, vi } from 'vitest';
import { canonicalForm, loadSchema, schemaFingerprint, schemaText } from '../../src/codec/avro.ts';
import { canonicalFormOf } from '../../src/codec/canonical-form.ts';
import { SCHEMAS } from '../../src/codec/schemas.ts';

afterEach(() => vi.unstubAllGlobals());

describe('the canonical form of a schema text', () => {
  it.for(Object.keys(SCHEMAS) as (keyof typeof SCHEMAS)[])('of %s is that of the compiled schema', (name) => {
    const { type, fingerprint } = loadSchema(name, 1_000);
    expect(canonicalFormOf(schemaText(name))).toBe(canonicalForm(type));
    expect(schemaFingerprint(schemaText(name))).toEqual(fingerprint);
  });

  it('does not depend on attributes, white space and the way in which names are written', () => {
    const { namespace, name, ...rest } = JSON.parse(schemaText('id-request'));
    const other = { ...rest, 'avro.java.string': 'String', name: `${namespace}.${name}` };
    expect(canonicalFormOf(JSON.stringify(other))).toBe(canonicalFormOf(schemaText('id-request')));
  });

  it('is found without compiling code', () => {
    vi.stubGlobal('Function', () => {
      throw new Error('compiled');
    });
    expect(schemaFingerprint(schemaText('id-request'))).toBeDefined();
  });

  it('is refused for texts above 8 KB, nested ones, and what is not a schema', () => {
    const fields = Array.from({ length: 500 }, (_, i) => ({ name: `f${i}`, type: 'int' }));
    expect(schemaFingerprint(JSON.stringify({ type: 'record', name: 'R', fields }))).toBeUndefined();
    expect(schemaFingerprint(`${'['.repeat(9_000)}`)).toBeUndefined();
    const names = { type: 'record', name: 'R', namespace: 'n'.repeat(2_000), fields: fields.slice(0, 100) };
    const types = names.fields.map((field) => ({ ...field, type: 'X' }));
    expect(schemaFingerprint(JSON.stringify({ ...names, fields: types }))).toBeUndefined();
    for (const text of ['', '7', 'null', '{}', '{"type":7}']) expect(schemaFingerprint(text)).toBeUndefined();
  });
});
