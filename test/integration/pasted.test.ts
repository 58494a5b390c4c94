import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RECORDED } from '../../ops/drawings/recording.ts';
import { type Block, blockCommands, blocksOf, readPage } from '../support/docs.ts';
import {
  goPrograms,
  jars,
  kcat,
  nestModules,
  pythonEnvironment,
  skipping,
  type Tool,
} from '../support/example-tools.ts';
import { FreshCheckout, whyNoNetwork } from '../support/fresh-checkout.ts';
import { misfit } from '../support/shown-output.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

/** Followed from the top, as printed, in a fresh checkout: `README.md` and `docs/quickstart.md`. */
const FOLLOWED = ['README.md', 'docs/quickstart.md'];
/** What was done before, what takes a whole suite, and what needs an engine; other tests run them. */
const NOT_HERE = /^(npm start|npm test|docker compose|git clone|cd idalloc)\b/;
/** How many IDs that request has. */
const COUNT = 3;
const IDS = /^ *\d{15,19}\b.*$/gm;

/** Each block of it is pasted into a new terminal in the checkout. */
const LANGUAGES = 'docs/how-to/languages.md';
/** What its blocks need, by the folder of the example. */
const TOOLS: Readonly<Record<string, () => Promise<Tool>>> = {
  python: pythonEnvironment,
  go: goPrograms,
  java: () => jars('java'),
  spring: () => jars('spring'),
  nestjs: nestModules,
  kcat,
};
/**
 * The commands that ask a registry, which is not here, and what has the same effect with the tool that the tests have.
 */
const INSTALLED: readonly (readonly [command: string, here: string])[] = [
  ['python3 -m venv .venv && . .venv/bin/activate', 'PATH=TOOL/bin:$PATH'],
  ['pip install -r requirements.txt', ':'],
  ['go run .', 'TOOL/order'],
  ['mvn dependency:copy-dependencies -DoutputDirectory=libs', 'ln -s TOOL libs'],
  ['npm ci', 'ln -s TOOL/node_modules node_modules'],
];

const obstacle = whyNoProcesses('kafka', 'etcd') ?? whyNoNetwork();
let checkout: FreshCheckout;
let announced: string;

beforeAll(async () => {
  if (obstacle !== undefined) return;
  checkout = await FreshCheckout.create();
  announced = await checkout.start();
});

afterAll(() => checkout?.[Symbol.asyncDispose]());

interface Shell {
  cwd: string;
  /** The lines with the IDs of the request that both pages make. */
  readonly ids: Map<string, string>;
}

/** The name under which the text before a program tells to save it. */
function nameOf(page: string, block: Block): string {
  const before = readPage(page)
    .split('\n')
    .slice(0, block.line - 2)
    .join('\n');
  return /.*[Ss]ave\b[^`]*\bas\s+`([\w.-]+)`/s.exec(before)?.[1] ?? 'page-names-no-file';
}

/** Does with a block what its reader does. The result is what a shell printed. */
async function follow(page: string, block: Block, shell: Shell): Promise<string> {
  if (block.language === 'js') {
    writeFileSync(join(shell.cwd, nameOf(page, block)), block.body.join('\n'));
    return '';
  }
  if (block.language === 'console') return compare(block, shell);
  const text = block.body.filter((line) => !NOT_HERE.test(line)).join('\n');
  const { code, stdout, stderr, cwd } = await checkout.paste(text, shell.cwd);
  expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
  shell.cwd = cwd;
  if (text.includes('first-try')) shell.ids.set(page, stdout.match(IDS)?.slice(0, COUNT).join('\n') ?? '');
  return stdout;
}

/** Runs each command of a block, and compares its output with that of the page. */
async function compare(block: Block, shell: Shell): Promise<string> {
  const printed: string[] = [];
  for (const { command, output = [] } of blockCommands(['```console', ...block.body, '```'].join('\n'))) {
    const { code, stdout, stderr } = await checkout.paste(command, shell.cwd);
    expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
    expect(misfit(output, stdout.trimEnd().split('\n'))).toBeUndefined();
    printed.push(stdout);
  }
  return printed.join('\n');
}

describe.skipIf(obstacle)(`the blocks of ${FOLLOWED.join(' and ')}, pasted beside npm start`, () => {
  const ids = new Map<string, string>();

  test('npm start serves where the pages say', () => {
    for (const address of ['127.0.0.1:9092', 'http://127.0.0.1:2379', ':8080/api', ':9464/readyz']) {
      expect(announced).toContain(address);
    }
  });

  test('npm start prints what its recording shows', () => {
    const [, ...lines] = RECORDED; // the first is the command
    // Between them are the steps, which a terminal does not keep; where the servers come from differs by machine.
    const shown = lines.flatMap((line) => ['…', line.replace(/because .*/, 'because …')]);
    expect(misfit([...shown, '…'], announced.trimEnd().split('\n'))).toBeUndefined();
  });

  describe.each(FOLLOWED)('%s', (page) => {
    const shell: Shell = { cwd: '', ids };
    const blocks = blocksOf(readPage(page)).filter(({ language }) => language !== '' && language !== 'text');

    test.for(blocks)('line $line', async (block, { annotate }) => {
      shell.cwd ||= checkout.dir;
      await annotate(`printed:\n${await follow(page, block, shell)}`);
    });
  });

  test('the request that both pages make has the same IDs each time', () => {
    expect([...ids.keys()]).toEqual(FOLLOWED);
    expect(new Set(ids.values())).toEqual(new Set([expect.stringMatching(/\d{15,19}/)]));
  });

  test('numbers of a sequence come over HTTP without any setting, as the page about invoices says', async () => {
    const page = blockCommands(readPage('docs/how-to/sequences.md')).map(({ command }) => command);
    const create = page.find((command) => command.startsWith('idalloc sequence create')) ?? '';
    const take = page.find((command) => command.startsWith('curl')) ?? '';
    const paste = (command: string) => checkout.paste(command.replace('invoices/2027', 'invoices/http'), checkout.dir);
    expect(await paste(create.replace('idalloc', 'bin/idalloc'))).toMatchObject({ code: 0 });
    expect(JSON.parse((await paste(take)).stdout)).toMatchObject({ numbers: ['INV-000001'] });
  });

  describe(LANGUAGES, () => {
    const blocks = blocksOf(readPage(LANGUAGES))
      .filter(({ language }) => language === 'sh')
      .map(({ body, line }) => ({
        text: body.join('\n'),
        line,
        example: /^cd examples\/(\w+)$/m.exec(body.join('\n'))?.[1],
      }));

    /** The number that each of them gets for the same order. */
    let invoice: string | undefined;

    test('has a block for each example', () => {
      expect(blocks.flatMap(({ example = [] }) => example)).toEqual(Object.keys(TOOLS));
    });

    test.for(blocks)('line $line: $example', async ({ text, example }, { annotate, skip }) => {
      const tool = skipping((await TOOLS[example ?? '']?.()) ?? { path: '' });
      if (tool.why !== undefined && process.env.CI) throw new Error(`CI is set, so all must be tested: ${tool.why}`);
      if (tool.why !== undefined) skip(tool.why);
      const here = INSTALLED.reduce((all, [from, to]) => all.replaceAll(from, to.replace('TOOL', tool.path)), text);
      const { code, stdout, stderr } = await checkout.paste(here, checkout.dir);
      await annotate(`printed:\n${stdout}`);
      expect({ code, stdout, stderr }).toMatchObject({ code: 0 });
      if (example === undefined) return;
      const [number] = /INV-\d{6}/.exec(stdout) ?? [];
      expect(number).toBeDefined();
      if (example === 'nestjs') return expect(number).not.toBe(invoice); // of another order
      invoice ??= number;
      expect(number).toBe(invoice);
    });
  });

  test('a second npm start is one more worker, on the next ports', async () => {
    const second = await checkout.start();
    await checkout.stop();
    expect(second).toMatch(/joining it as one more worker/);
    for (const address of [':8081/api', ':9465/readyz']) expect(second).toContain(address);
  });

  test('npm start without a worker leaves one request waiting until a worker starts', async () => {
    await checkout.stop();
    expect(await checkout.start('--no-worker')).toMatch(/no worker: requests wait in Kafka/);
    const request = 'bin/idalloc request --correlation-id waited --timeout-ms 120000';
    const [waited] = await Promise.all([checkout.paste(request, checkout.dir), checkout.start()]);
    expect(waited).toMatchObject({ code: 0, stdout: expect.stringMatching(/\d{15,19}/) });
    await checkout.stop();
  });

  test('when npm start has ended, a command says so', async () => {
    await checkout.stop();
    const { code, stderr } = await checkout.paste('bin/idalloc request', checkout.dir);
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('run `npm start`') });
  });
});
