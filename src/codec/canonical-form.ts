/** Longer schema texts are not read: they come from a registry to which others may write. */
const MAX_SCHEMA_CHARS = 8 * 1024;

const PRIMITIVES = new Set(['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string']);

type Attributes = Readonly<Record<string, unknown>>;

/**
 * The Parsing Canonical Form of a schema's text, without compiling the schema. Undefined for text that is not JSON, is
 * clearly not a schema, or is above 8 KB in either form. It does not validate: compare it with the form of a valid
 * schema.
 */
export function canonicalFormOf(text: string): string | undefined {
  if (text.length > MAX_SCHEMA_CHARS) return undefined;
  try {
    const form = canonical(JSON.parse(text), '');
    return form.length > MAX_SCHEMA_CHARS ? undefined : form;
  } catch {
    return undefined; // also for one that is nested too deeply
  }
}

function canonical(schema: unknown, space: string): string {
  if (typeof schema === 'string') return JSON.stringify(PRIMITIVES.has(schema) ? schema : fullName(schema, space));
  if (Array.isArray(schema)) return `[${schema.map((branch) => canonical(branch, space)).join(',')}]`;
  if (typeof schema !== 'object' || schema === null) throw new TypeError('not a schema');
  const attributes = schema as Attributes;
  const { type } = attributes;
  if (type === 'array') return `{"type":"array","items":${canonical(attributes.items, space)}}`;
  if (type === 'map') return `{"type":"map","values":${canonical(attributes.values, space)}}`;
  if (type === 'record' || type === 'enum' || type === 'fixed') return named(type, attributes, space);
  return canonical(type, space);
}

function named(type: 'record' | 'enum' | 'fixed', attributes: Attributes, outer: string): string {
  const own = attributes.namespace;
  const name = fullName(String(attributes.name), typeof own === 'string' ? own : outer);
  const head = `{"name":${JSON.stringify(name)},"type":"${type}"`;
  if (type === 'enum') return `${head},"symbols":${JSON.stringify(attributes.symbols)}}`;
  if (type === 'fixed') return `${head},"size":${Number(attributes.size)}}`;
  const space = name.slice(0, Math.max(0, name.lastIndexOf('.')));
  const fields = (attributes.fields as readonly Attributes[]).map(
    (field) => `{"name":${JSON.stringify(field.name)},"type":${canonical(field.type, space)}}`,
  );
  return `${head},"fields":[${fields.join(',')}]}`;
}

function fullName(name: string, space: string): string {
  return name.includes('.') || space === '' ? name : `${space}.${name}`;
}
