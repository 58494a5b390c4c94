const COLUMNS = 120;
const INDENT = '  ';

/**
 * JSON for people: a list or an object takes one line where that has at most 120 columns, else a line for each of its
 * parts. Ends with a newline.
 */
export function readableJson(value: unknown): string {
  return `${textOf(JSON.parse(JSON.stringify(value)), '', 0)}\n`;
}

/** `before`: the columns that precede the value in its first line, besides the indentation. */
function textOf(value: unknown, indent: string, before: number): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const names = Array.isArray(value)
    ? value.map(() => '')
    : Object.keys(value).map((name) => `${JSON.stringify(name)}: `);
  const parts = Object.values(value);
  const flat = parts.map((part, i) => `${names[i]}${textOf(part, '', Number.NEGATIVE_INFINITY)}`).join(', ');
  const line = open === '{' && flat !== '' ? `{ ${flat} }` : `${open}${flat}${close}`;
  // A comma may follow.
  if (indent.length + before + line.length < COLUMNS) return line;
  const inner = indent + INDENT;
  const lines = parts.map((part, i) => `${inner}${names[i]}${textOf(part, inner, (names[i] ?? '').length)}`);
  return `${open}\n${lines.join(',\n')}\n${indent}${close}`;
}
