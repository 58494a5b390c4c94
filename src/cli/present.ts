import type { CliContext } from './context.ts';

/** A result as one line of JSON. What is undefined in it is left out. */
export function jsonLine(view: object): string {
  return `${JSON.stringify(view)}\n`;
}

/** Writes a result to stdout: for programs with `--json`, else as text. */
export function present(
  { out }: Pick<CliContext, 'out'>,
  json: boolean | undefined,
  view: object,
  text: () => string,
): void {
  out(json === true ? jsonLine(view) : text());
}
