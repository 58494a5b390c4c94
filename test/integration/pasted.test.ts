import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Block, blockCommands, blocksOf, readPage } from '../support/docs.ts';
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
    const created = await checkout.paste(create.replace('idalloc', 'npm run idalloc --'), checkout.dir);
    expect(created).toMatchObject({ code: 0 });
    expect(JSON.parse((await checkout.paste(take, checkout.dir)).stdout)).toMatchObject({ numbers: ['INV-000001'] });
  });

  test('a second npm start is one more worker, on the next ports', async () => {
    const second = await checkout.start();
    await checkout.stop();
    expect(second).toMatch(/joining it as one more worker/);
    for (const address of [':8081/api', ':9465/readyz']) expect(second).toContain(address);
  });

  test('when npm start has ended, a command says so', async () => {
    await checkout.stop();
    const { code, stderr } = await checkout.paste('npm run idalloc -- request', checkout.dir);
    expect({ code, stderr }).toEqual({ code: 78, stderr: expect.stringContaining('run `npm start`') });
  });
});
