import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');

/** A command that README shows, with its output where it shows one. */
export interface ReadmeCommand {
  readonly line: number;
  readonly command: string;
  readonly output: readonly string[] | undefined;
}

/** Commands that test/integration/readme.test.ts does not run: the test that does, or the program that no test runs whole. */
export const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['npm start', 'ops/dev/start.ts'],
  ['npm start -- --once --json', 'ops/dev/start.ts'],
  ['npm test', 'ops/dev/test.ts'],
  ['npx idalloc', 'test/integration/package.test.ts'],
  ['npm pack', 'test/integration/package.test.ts'],
  ['docker build -f ops/Dockerfile -t idalloc:local .', 'test/integration/testcontainers.alone.test.ts'],
  ['docker build -f ops/Dockerfile.faults -t idalloc:faults .', 'test/integration/testcontainers.alone.test.ts'],
  ['docker compose up', 'test/integration/compose.test.ts'],
  ['npm run sim -- --seeds 100', 'test/sim/sim.test.ts'],
  ['npm run sim -- --seed 7', 'test/sim/sim.test.ts'],
  ['npm run sim -- --mutants', 'test/sim/sim.test.ts'],
  ['npm run chaos -- --minutes 10', 'test/integration/chaos.alone.test.ts'],
  ['npm run sbom', 'test/ops/shipped.test.ts'],
  ['npm run bench', 'test/bench/throughput.ts'],
  ['npm run bench:http', 'test/bench/http.ts'],
  ['npm run bench:latency', 'test/bench/latency.ts'],
  ['npm run bench:idle', 'test/bench/idle.ts'],
  ['npm run bench:replay', 'test/bench/replay.ts'],
  ['npm run bench:index', 'test/bench/index.ts'],
  ['npm run bench:shares', 'test/bench/shares.ts'],
  ['pip install -r requirements.txt', 'test/integration/interop-python.test.ts'],
  ['python request.py --reply-topic id.replies.orders --count 5', 'test/integration/interop-python.test.ts'],
  ['mvn dependency:copy-dependencies -DoutputDirectory=libs', 'test/integration/interop-spring.test.ts'],
  [
    "java -cp 'libs/*' Requester.java localhost:9092 id.requests id.replies.orders 0 5 ../../schemas",
    'test/integration/interop-spring.test.ts',
  ],
  ['go run . -reply-topic id.replies.orders -count 5', 'test/integration/interop-go.test.ts'],
  [
    "java -cp 'libs/*' Requester.java localhost:9092 id.requests id.replies.orders 5 ../../schemas",
    'test/integration/interop-java.test.ts',
  ],
  ['npm ci', 'test/integration/interop-nestjs.test.ts'],
  ['node requester.js localhost:9092 id.requests 5 ../../schemas', 'test/integration/interop-nestjs.test.ts'],
  ['./request.sh localhost:9092 id.requests id.replies.orders 5', 'test/integration/interop-kcat.test.ts'],
]);

export function readReadme(): string {
  return readFileSync(join(ROOT, 'README.md'), 'utf8');
}

/**
 * The commands of all sh blocks, without their comments, and of all console blocks, in the order of the file. A console
 * block that does not begin with a command is the output of the js block before it.
 *
 * @throws Error for a console block that is neither.
 */
export function blockCommands(markdown: string): ReadmeCommand[] {
  const found: ReadmeCommand[] = [];
  const lines = markdown.split('\n');
  let before = '';
  for (let at = 0; at < lines.length; at += 1) {
    const [, language] = /^```(\w*)$/.exec(lines[at] ?? '') ?? [];
    if (language === undefined) continue;
    const end = lines.indexOf('```', at + 1);
    if (end < 0) throw new Error(`the block of line ${at + 1} does not end`);
    const body = lines.slice(at + 1, end);
    if (language === 'sh') found.push(...shellCommands(body, at + 2));
    if (language === 'console') found.push(...consoleCommands(body, at + 2, before));
    before = language;
    at = end;
  }
  return found;
}

function shellCommands(body: readonly string[], first: number): ReadmeCommand[] {
  return body.flatMap((text, i) => {
    const command = text.replace(/(^|\s)#.*/, '').trim();
    return command === '' ? [] : [{ line: first + i, command, output: undefined }];
  });
}

function consoleCommands(body: readonly string[], first: number, before: string): ReadmeCommand[] {
  const starts = body.flatMap((text, i) => (text.startsWith('$ ') ? [i] : []));
  if (starts[0] === undefined && before === 'js') return [];
  if (starts[0] !== 0) throw new Error(`line ${first}: a console block begins with '$ ' and a command`);
  return starts.map((start, i) => ({
    line: first + start,
    command: (body[start] ?? '').slice(2),
    output: body.slice(start + 1, starts[i + 1]),
  }));
}

/** The text in single backticks outside of blocks, on one line each. */
export function inlineCode(markdown: string): string[] {
  const prose = markdown.replaceAll(/^```[\s\S]*?^```$/gm, '');
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, text = '']) => text.replaceAll(/\s+/g, ' '));
}

/** What differs from run to run: who, when, where and how many. That there are none (0 losers) does not. */
const MASKS: readonly (readonly [RegExp, string])[] = [
  [/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'UUID'],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'TIME'],
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
 * What is wrong with `shown` as an account of `real`; undefined when nothing is. `…` stands for any lines on a line of its
 * own, and within a line for any text; with `exactly` nothing is masked.
 */
export function misfit(shown: readonly string[], real: readonly string[], exactly = false): string | undefined {
  const [expected, actual] = exactly ? [shown, real] : [shown.map(masked), real.map(masked)];
  const pattern = expected.map((line) =>
    line === '…' ? '(?:[^\\n]*\\n)*?' : `${line.split('…').map(RegExp.escape).join('[^\\n]*')}\\n`,
  );
  if (new RegExp(`^${pattern.join('')}$`).test(actual.map((line) => `${line}\n`).join(''))) return undefined;
  return ['README shows', ...expected, '', 'the command printed', ...actual, '', 'that is', ...real].join('\n');
}
