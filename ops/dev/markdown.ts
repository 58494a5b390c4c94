const NOTE = '<!-- Generated from the code by `npm run docs:reference`. Edits here are lost. -->';

/** Text for a table cell; outside code, a < would start an element. */
export function cell(text: string): string {
  const line = text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ');
  return line.replaceAll(/`[^`]*`|</g, (found) => (found === '<' ? '&lt;' : found));
}

/** Items of a list: each with a name, what is in parentheses after it, and its meaning. */
export function list(items: readonly (readonly [name: string, note: string, meaning: string])[]): string {
  return items.map(([name, note, meaning]) => `- ${name}${note === '' ? '' : ` (${note})`}: ${meaning}`).join('\n');
}

/** A table of Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

/** A generated page, which says so at its top. */
export function pageOf(...parts: readonly string[]): string {
  return `${[NOTE, ...parts].map((part) => part.trim()).join('\n\n')}\n`;
}
