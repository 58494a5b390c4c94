/**
 * Masks for what differs from run to run: names, times, places and numbers; but not a number of 0, as in "0 losers".
 */
const MASKS: readonly (readonly [RegExp, string])[] = [
  [/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'UUID'],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'TIME'],
  [/\b[\w.-]+@[\w.-]+(?=\s)/g, 'WHO'],
  [/(?<=\s)\/[\w/.-]+(?=,)/g, 'PATH'],
  [/\b(?:0x[0-9a-f]{2,}|[0-9a-f]{16})\b/g, 'HEX'],
  [/\b(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|(?:etcd-|kafka)\d(?:\.lan)?)(?::\d+)?(?![\w.-])/g, 'HOST'],
  [/http:\/\/HOST(?:, http:\/\/HOST)+/g, 'http://HOST'],
  [/-?\b\d+(?:\.\d+)? (?:ms|s|min|h|d)\b/g, 'SPAN'],
  [/\b\d+ at \d+\b|\b\d+:\d+\b/g, 'PLACE'],
  [/(?<![\w-])-?(?!0 (?:losers|doubled|older|replies|times)\b)\d+(?:\.\d+)*\b/g, 'N'],
  [/\b(leader|follower)\b/g, 'ROLE'],
  [/[ \t]+/g, ' '],
];

function masked(line: string): string {
  return MASKS.reduce((text, [pattern, name]) => text.replaceAll(pattern, name), line).trim();
}

/**
 * The difference between the output `shown` on a page and the `real` one; undefined if they match. `…` stands for any
 * lines on a line of its own, and for any text within a line; with `exactly` nothing is masked.
 */
export function misfit(shown: readonly string[], real: readonly string[], exactly = false): string | undefined {
  const [expected, actual] = exactly ? [shown, real] : [shown.map(masked), real.map(masked)];
  const pattern = expected.map((line) =>
    line === '…' ? '(?:[^\\n]*\\n)*?' : `${line.split('…').map(RegExp.escape).join('[^\\n]*')}\\n`,
  );
  if (new RegExp(`^${pattern.join('')}$`).test(actual.map((line) => `${line}\n`).join(''))) return undefined;
  return ['the page shows', ...expected, '', 'the command printed', ...actual, '', 'that is', ...real].join('\n');
}
