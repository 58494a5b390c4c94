import { type FieldRole, type FieldSpec, type LayoutSpec, layoutText } from './layout.ts';

/** The name of every layout that is not a preset. */
export const CUSTOM = 'custom';

/** The syntax of parseFields, for error messages. */
export const FIELDS_HELP =
  'role:bits or role:bits:label, separated by commas, from the highest bits to the lowest; the roles are timestamp, ' +
  'datacenter, worker and sequence';

const FIELD = /^(timestamp|datacenter|worker|sequence):([0-9]{1,2})(?::([a-z][a-z0-9_-]{0,31}))?$/;
const MAX_FIELDS = 4;
const LAYOUT = /^([^;]*);tick_ms=([0-9]{1,16});epoch_ms=([0-9]{1,16});start_below=([0-9]{1,16})$/;

/**
 * Parses fields such as `timestamp:41,worker:10:shard,sequence:12`; the default label is the role. layoutProblems
 * checks whether they form a layout. Throws RangeError for a syntax error.
 */
export function parseFields(text: string): readonly FieldSpec[] {
  const items = text.split(',').map((item) => item.trim());
  if (items.length > MAX_FIELDS) throw new RangeError(`has ${items.length} fields, must have at most ${MAX_FIELDS}`);
  return items.map((item): FieldSpec => {
    const [, role, bits, label] = FIELD.exec(item) ?? [];
    if (role === undefined) throw new RangeError(`has '${item.slice(0, 40)}', must be ${FIELDS_HELP}`);
    return { role: role as FieldRole, bits: Number(bits), label: label ?? role };
  });
}

/** The inverse of parseFields, without labels that only repeat the role. */
export function fieldsText(fields: readonly FieldSpec[]): string {
  return fields.map(({ role, bits, label }) => `${role}:${bits}${label === role ? '' : `:${label}`}`).join(',');
}

/** The inverse of `layoutText`, as a custom layout. Throws RangeError for any other text. */
export function parseLayoutText(text: string): LayoutSpec {
  const [, fields = '', tickMs, epochMs, sequenceStartBelow] = LAYOUT.exec(text) ?? [];
  const spec = {
    name: CUSTOM,
    fields: parseFields(fields),
    tickMs: Number(tickMs),
    epochMs: Number(epochMs),
    sequenceStartBelow: Number(sequenceStartBelow),
  };
  // Any other spelling would have another fingerprint.
  if (layoutText(spec) === text) return spec;
  throw new RangeError(`'${text.slice(0, 100)}' is not a layout text`);
}
