import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  fstatSync,
  linkSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type IndexBinding, type IndexEvents, SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { requireIndexDirectory } from '../../../src/adapters/index/store.ts';
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

/** Keeps the index reachable: the lock of one that is garbage-collected is released. */
const PROGRAM = `
  const { SqliteIndex } = await import(${JSON.stringify(MODULE)});
  try {
    globalThis.index = new SqliteIndex(process.argv[1], ${JSON.stringify(BINDING)}, {});
    process.stdout.write('opened');
    setInterval(() => {}, 1000);
  } catch (error) {
    process.stdout.write(error.code);
    process.exit(1);
  }`;
const OPTIONS = ['--input-type=module', '--eval', PROGRAM];

/** The outcome of opening the directory in another process: 'opened', or the error code. */
function openElsewhere(): string {
  const run = spawnSync(process.execPath, [...OPTIONS, directory], { encoding: 'utf8', timeout: 120_000 });
  return run.stdout;
}

async function holdElsewhere(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [...OPTIONS, directory], { stdio: ['ignore', 'pipe', 'ignore'] });
  children.push(child);
  const [said] = await once(child.stdout as NonNullable<typeof child.stdout>, 'data');
  expect(String(said)).toBe('opened');
  return child;
}

describe('the lock', () => {
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

describe('a damaged lock', () => {
  const lock = () => join(directory, 'ledger-index.lock');
  const RUBBISH = Buffer.alloc(5_000, 'x');
  const damages: [string, () => void][] = [
    ['rubbish', () => writeFileSync(lock(), RUBBISH)],
    ['rubbish below the length of a page', () => writeFileSync(lock(), 'x')],
    ['a truncated database', damagedDatabase],
  ];

  /** A database of several pages, of which only the first one is left. */
  function damagedDatabase(): void {
    const db = new DatabaseSync(lock());
    db.exec('CREATE TABLE t (b BLOB)');
    db.exec('INSERT INTO t VALUES (zeroblob(50000))');
    db.close();
    truncateSync(lock(), 1_000);
  }

  it.each(damages)('of %s is replaced, with the index kept, and then keeps another process out', (_, damage) => {
    const before = open();
    before.apply(0, [RECORD]);
    close(before);
    damage();
    expect(open().placesOf(0, RECORD.key)).toEqual([0]);
    expect(openElsewhere()).toBe('INDEX_LOCKED');
  });

  it('is reported once, with the cause, when it is replaced', () => {
    writeFileSync(lock(), RUBBISH);
    const causes: string[] = [];
    for (let times = 0; times < 2; times += 1) requireIndexDirectory(directory, (cause) => causes.push(cause));
    expect(causes).toEqual([expect.stringMatching(/not a database/)]);
  });

  it('still keeps others out when it is damaged while another process holds it', async () => {
    await holdElsewhere();
    writeFileSync(lock(), RUBBISH);
    expect(() => open()).toThrow(expect.objectContaining({ code: 'INDEX_LOCKED' }));
    expect(readFileSync(lock())).toEqual(RUBBISH);
  });

  it('is replaced as the same file, so that a lock taken on it meanwhile holds', () => {
    writeFileSync(lock(), RUBBISH);
    const before = openSync(lock(), 'r'); // while it is open, no other file gets its number
    close(open());
    const { ino } = fstatSync(before);
    closeSync(before);
    expect(statSync(lock()).ino).toBe(ino);
  });

  it('that has other names is left as it is, and fails with INDEX_UNUSABLE', () => {
    const other = join(directory, 'of-others');
    writeFileSync(other, RUBBISH);
    linkSync(other, lock());
    expect(() => open()).toThrow(expect.objectContaining({ code: 'INDEX_UNUSABLE' }));
    expect(readFileSync(other)).toEqual(RUBBISH);
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
