import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { which } from '../../ops/bare/toolchain.ts';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';
import { SHELLS, type Shell } from '../../src/cli/completion.ts';
import { FORM_NAMES } from '../../src/codec/form/form.ts';
import { cli } from '../cli/harness.ts';

const scripts = Object.fromEntries(
  await Promise.all(Object.keys(SHELLS).map(async (shell) => [shell, await cli(['completion', shell])] as const)),
);

const NAMES = ['invoices/2026', 'invoices/2027', 'tickets'];
/** Stands for the command that the scripts ask. */
const LISTING = `#!/bin/sh\n[ "$*" = 'sequence list --names' ] && printf '%s\\n' ${NAMES.join(' ')}\n`;

let dir = '';
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-completion-'));
  for (const [shell, { out }] of Object.entries(scripts)) writeFileSync(join(dir, shell), out);
  writeFileSync(join(dir, 'idalloc'), LISTING, { mode: 0o755 });
});
afterAll(() => rmSync(dir, { recursive: true }));

/** How each shell is asked for what can follow a line; zsh prints what it would hand to its own functions. */
const ASK: Readonly<Record<Shell, (words: readonly string[]) => readonly string[]>> = {
  bash: (words) => [
    '-c',
    `set -u; source ${join(dir, 'bash')}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _idalloc; printf '%s\\n' "\${COMPREPLY[@]}"`,
    'bash',
    ...words,
  ],
  zsh: (words) => [
    '-f',
    '-c',
    `compdef() { :; }; compadd() { shift; print -l -- "$@"; }; _default() { :; }
_describe() { [ "$1" = -o ] && shift; for each in \${(P)2}; do print -r -- "\${\${each//\\\\:/;}%%:*}"; done; }
source ${join(dir, 'zsh')}; words=("$@"); CURRENT=$#; _idalloc`,
    'zsh',
    ...words,
  ],
  fish: (words) => ['--no-config', '-c', `source ${join(dir, 'fish')}; complete -C '${words.join(' ')}'`],
};

/** The words that a shell offers for the last word of a line. */
function offered(shell: Shell, line: string): string[] {
  const words = line.split(' ');
  const last = words.at(-1) ?? '';
  const env = { ...process.env, HOME: dir, PATH: `${dir}:${process.env.PATH}` };
  const printed = execFileSync(shell, ASK[shell](words), { encoding: 'utf8', env });
  const found = printed.split('\n').map((text) => text.split('\t')[0] ?? '');
  return found.filter((word) => word !== '' && word.startsWith(last));
}

const obstacle = await ensurePrograms({ bash: 'bash', zsh: 'zsh', fish: 'fish' }, (line) =>
  process.stderr.write(`completion: ${line}\n`),
);
const HERE = (Object.keys(SHELLS) as Shell[]).filter((shell) => which(shell, process.env) !== undefined);

test('the script is the same wherever it is printed, and a shell without one is refused', async () => {
  expect(Object.values(scripts).map(({ code, err }) => [code, err])).toEqual([
    [0, ''],
    [0, ''],
    [0, ''],
  ]);
  expect(await cli(['completion', 'tcsh'])).toMatchObject({ code: 2, err: expect.stringContaining('bash, zsh, fish') });
});

describe.each(HERE)('%s completes', (shell) => {
  test('a command', () => {
    expect(offered(shell, 'idalloc de')).toEqual(expect.arrayContaining(['decode', 'deadletters']));
    expect(offered(shell, 'idalloc wor')).toEqual(['worker']);
  });

  test('a command below another', () => {
    expect(offered(shell, 'idalloc topics ')).toEqual(expect.arrayContaining(['init', 'check', 'acls']));
    expect(offered(shell, 'idalloc leases ev')).toEqual(['evict']);
  });

  test('the options of the command that is typed, and no others', () => {
    expect(offered(shell, 'idalloc leases evict --')).toEqual(expect.arrayContaining(['--yes', '--json', '--help']));
    expect(offered(shell, 'idalloc leases evict --')).not.toContain('--all');
    expect(offered(shell, 'idalloc decode 1 --form hex --js')).toEqual(['--json']);
  });

  test('the values of an option with a choice, and nothing after one that takes any text', () => {
    expect(offered(shell, 'idalloc decode --form u').toSorted()).toEqual(
      FORM_NAMES.filter((name) => name.startsWith('u')).toSorted(),
    );
    expect(offered(shell, 'idalloc request --correlation-id wor')).toEqual([]);
  });

  test('the name of a sequence that there is, but not that of a new one', () => {
    const named = (line: string) => offered(shell, line).filter((word) => !word.startsWith('-'));
    expect(named('idalloc sequence show inv').toSorted()).toEqual(['invoices/2026', 'invoices/2027']);
    expect(named('idalloc request --count 1 --sequence ').toSorted()).toEqual(NAMES);
    expect(named('idalloc sequence create ')).toEqual([]);
  });

  test('the choice of an argument', () => {
    expect(offered(shell, 'idalloc completion ')).toEqual(expect.arrayContaining(['bash', 'zsh', 'fish']));
  });
});

test('every shell is here', (context) => {
  if (obstacle !== undefined && !process.env.CI) context.skip(obstacle);
  expect(HERE, obstacle).toEqual(['bash', 'zsh', 'fish']);
});
