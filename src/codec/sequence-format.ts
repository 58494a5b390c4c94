/**
 * How readers write a number of a sequence: text with one place for the number, `{number}`, or `{number:6}` for at
 * least six digits, with zeros in front. An empty format is the number alone.
 */
const PLACE = /\{number(?::([1-9]|1[0-6]))?\}/g;
const TEXT = /^[^{}\p{Cc}]*$/u;

/** Why a text is not a format; undefined if it is one. */
export function formatFault(format: string): string | undefined {
  if (format === '') return undefined;
  const places = [...format.matchAll(PLACE)].length;
  if (places !== 1)
    return `it has ${places} places for the number, not one: write {number}, or {number:6} for six digits`;
  return TEXT.test(format.replace(PLACE, '')) ? undefined : 'it has other braces or control characters';
}

/** The number as text. Throws RangeError for a format that this version does not know. */
export function formatNumber(format: string, number: number): string {
  if (format === '') return String(number);
  const fault = formatFault(format);
  if (fault !== undefined) throw new RangeError(`the format '${format}' of the sequence can't be read: ${fault}`);
  return format.replace(PLACE, (_, digits = '1') => String(number).padStart(Number(digits), '0'));
}

/** The numbers of a run, in order. */
export function numbersOf({ first, count, step }: { first: number; count: number; step: number }): number[] {
  return Array.from({ length: count }, (_, i) => first + i * step);
}
