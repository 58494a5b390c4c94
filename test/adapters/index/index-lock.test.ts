import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type IndexBinding, type IndexEvents, SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { entry } from '../../support/memory-records.ts';

const BINDING: IndexBinding = { clusterId: 'c1', ledgerTopic: 'id.ledger', partitions: 2 };
const MODULE = fileURLToPath(new URL('../../../src/adapters/index/sqlite-index.ts', import.meta.url));
const EVENTS: IndexEvents = { onWiped: () => {}, onUnusable: () => {} };
const RECORD = { offset: 0, ...entry('a'), appendedAtMs: 1 };

let directory: string;
let opened: SqliteIndex[];
let children: ChildProcess[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'idalloc-index-'));
  opened = [];
  children = [];
});

afterEach(() => {
  for (const child of children) child.kill('SIGKILL');
  for (const index of opened) index[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

function open(binding = BINDING): SqliteIndex {
  const index = new SqliteIndex(directory, binding, EVENTS);
  opened.push(index);
  while (index.load(0));
  return index;
}

function close(index: SqliteIndex): void {
  opened.splice(opened.indexOf(index), 1);
  index[Symbol.dispose]();
}

describe('the lock', () => {
  const program = `
    const { SqliteIndex } = await import(${JSON.stringify(MODULE)});
    try {
      new SqliteIndex(process.argv[1], ${JSON.stringify(BINDING)}, {});
      process.stdout.write('opened');
      setInterval(() => {}, 1000);
    } catch (error) {
      process.stdout.write(error.code);
      process.exit(1);
    }`;
  const options = ['--input-type=module', '--eval', program];

  /** The outcome of opening the directory in another process: 'opened', or the error code. */
  function openElsewhere(): string {
    const run = spawnSync(process.execPath, [...options, directory], { encoding: 'utf8', timeout: 120_000 });
    return run.stdout;
  }

  async function holdElsewhere(): Promise<ChildProcess> {
    const child = spawn(process.execPath, [...options, directory], { stdio: ['ignore', 'pipe', 'ignore'] });
    children.push(child);
    const [said] = await once(child.stdout as NonNullable<typeof child.stdout>, 'data');
    expect(String(said)).toBe('opened');
    return child;
  }

  it('holds against another process right after a new index is opened', () => {
    open();
    expect(openElsewhere()).toBe('INDEX_LOCKED');
  });

  it('holds right after an old index is opened, before anything is written', () => {
    const before = open();
    before.apply(0, [RECORD]);
    close(before);
    open();
    expect(openElsewhere()).toBe('INDEX_LOCKED');
  });

  it('holds against a second opener in the same process, which does no harm', () => {
    const index = open();
    index.apply(0, [RECORD]);
    expect(() => open()).toThrow(expect.objectContaining({ code: 'INDEX_LOCKED' }));
    expect(() => open({ ...BINDING, clusterId: 'c2' })).toThrow(expect.objectContaining({ code: 'INDEX_LOCKED' }));
    expect(index.placesOf(0, RECORD.key)).toEqual([0]);
    expect(openElsewhere()).toBe('INDEX_LOCKED');
  });

  it('is released when the index is closed', () => {
    close(open());
    open();
  });

  it('is released when its process is killed', async () => {
    const holder = await holdElsewhere();
    expect(() => open()).toThrow(expect.objectContaining({ code: 'INDEX_LOCKED' }));
    const gone = once(holder, 'exit');
    holder.kill('SIGKILL');
    await gone;
    open();
  });
});

describe('the directory', () => {
  it('is only accessible to this user when it is created here, and so is the lock', () => {
    directory = join(directory, 'a/b');
    open();
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    expect(statSync(join(directory, 'ledger-index.lock')).mode & 0o077).toBe(0);
    directory = join(directory, '../..');
  });

  it.each(['target', 'nowhere/target'])('is rejected when its lock is a symbolic link to %s', (to) => {
    const target = join(directory, to);
    if (to === 'target') writeFileSync(target, 'of others');
    symlinkSync(target, join(directory, 'ledger-index.lock'));
    expect(() => open()).toThrow(/INDEX_UNUSABLE|symbolic link/);
    if (to === 'target') expect(readFileSync(target, 'utf8')).toBe('of others');
    else expect(existsSync(target)).toBe(false);
  });
});
