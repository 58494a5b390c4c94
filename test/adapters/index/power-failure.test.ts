import { copyFileSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { syncData } from '../../../src/adapters/index/store.ts';
import { expectRestorable, RUN_OF_MANY, some } from './damaged-index.ts';
import { BINDING, IndexDirectory, keyOf, perTest } from './index-directory.ts';

const world = perTest();
const RESTORING = expect.objectContaining({ code: 'INDEX_RESTORING' });
const UNUSABLE = expect.objectContaining({ code: 'INDEX_UNUSABLE' });

/** Syncs of the index that the disk has not confirmed. */
class Unconfirmed {
  readonly descriptors: number[] = [];
  readonly #ends: PromiseWithResolvers<void>[] = [];

  constructor() {
    world.directory.syncFile = (descriptor) => {
      const end = Promise.withResolvers<void>();
      this.descriptors.push(descriptor);
      this.#ends.push(end);
      return end.promise;
    };
  }

  confirm(): void {
    this.#ends.shift()?.resolve();
  }

  fail(): void {
    this.#ends.shift()?.reject(Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' }));
  }
}

describe('a power failure', () => {
  let left: IndexDirectory;

  /** Leaves what had been written when the last sync began. SQLite's own syncs, at checkpoints, are left out. */
  beforeEach(() => {
    left = new IndexDirectory();
    world.directory.syncFile = async (descriptor) => {
      for (const suffix of ['', '-wal']) copyFileSync(world.directory.file + suffix, left.file + suffix);
      await syncData(descriptor);
    };
  });

  afterEach(() => left.remove());

  it('loses what was saved since the last sync, and nothing that was saved before', async () => {
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    index.apply(0, some(0, 10));
    index.save(0);
    await index.sync();
    index.apply(0, some(10, 10));
    index.save(0);
    index.apply(1, some(0, 5));
    index.save(1);
    const after = left.open(BINDING, RUN_OF_MANY);
    expect([after.end(0), after.end(1), after.placesOf(0, keyOf('k7'))]).toEqual([10, 0, [7]]);
    expect(left.wiped).toEqual([]);
  });

  it('loses nothing that was synced, however many checkpoints, merges and wipes came before', async () => {
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    for (let end = 0; end < 60 * RUN_OF_MANY; end += 3 * RUN_OF_MANY) {
      index.apply(0, some(end, 3 * RUN_OF_MANY));
      index.save(0);
      index.wipe(1, end);
      await index.sync();
      const after = left.open(BINDING, RUN_OF_MANY);
      const ends = [end + 3 * RUN_OF_MANY, end];
      expect([after.end(0), after.end(1), after.placesOf(0, keyOf(`k${end}`))]).toEqual([...ends, [end]]);
      left.close(after);
    }
    expect(left.wiped).toEqual([]);
  });
});

describe('a sync', () => {
  it('is in progress until the disk has confirmed it, and the index is used meanwhile', async () => {
    const disk = new Unconfirmed();
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    const ended: string[] = [];
    const sync = index.sync().then(() => ended.push('synced'));
    index.apply(0, some(0, 10));
    index.save(0);
    ended.push('saved');
    disk.confirm();
    await sync;
    expect([ended, index.placesOf(0, keyOf('k7'))]).toEqual([['saved', 'synced'], [7]]);
  });

  it('is only made of what was written since the last one, or by a process before', async () => {
    const disk = new Unconfirmed();
    const syncs: number[] = [];
    const sync = async (index: { sync(): Promise<void> }): Promise<void> => {
      const ended = index.sync();
      syncs.push(disk.descriptors.length);
      disk.confirm();
      await ended;
    };
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    await sync(index);
    await sync(index);
    index.apply(0, some(0, 10));
    await sync(index); // nothing is written before the save
    index.save(0);
    await sync(index);
    index.wipe(1, 7);
    await sync(index);
    world.directory.close(index);
    await sync(index);
    await sync(world.directory.open(BINDING, RUN_OF_MANY));
    expect(syncs).toEqual([1, 1, 1, 2, 3, 3, 4]);
  });

  it('leaves what is written while it is in progress to the next one', async () => {
    const disk = new Unconfirmed();
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    const first = index.sync();
    index.wipe(1, 7);
    disk.confirm();
    await first;
    const second = index.sync();
    disk.confirm();
    await second;
    expect(disk.descriptors.length).toBe(2);
  });

  it('that fails replaces the index, which is restored, since nobody knows what the disk holds', async () => {
    const disk = new Unconfirmed();
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    index.apply(0, some(0, 10));
    index.save(0);
    const sync = index.sync();
    disk.fail();
    await expect(sync).rejects.toEqual(RESTORING);
    expect(world.directory.wiped).toEqual([expect.stringMatching(/disk did not confirm.*EIO/)]);
    expectRestorable(index);
    const again = index.sync();
    disk.fail();
    await expect(again).rejects.toEqual(UNUSABLE);
    expect([world.directory.unusable, world.directory.wiped.length]).toEqual([[UNUSABLE], 1]);
  });

  it('that fails after the index was closed or replaced changes nothing', async () => {
    const disk = new Unconfirmed();
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    const first = index.sync();
    rmSync(world.directory.file);
    await expect(index.sync()).rejects.toEqual(RESTORING);
    disk.fail();
    await first;
    const second = index.sync();
    world.directory.close(index);
    disk.fail();
    await second;
    await index.sync();
    expect([world.directory.wiped.length, world.directory.unusable]).toEqual([1, []]);
  });
});

describe.runIf(process.platform === 'linux')('the files of the index', () => {
  const log = () => `${world.directory.file}-wal`;
  const isOpen = (descriptor: number) => isLink(`/proc/self/fd/${descriptor}`, log());
  /** How many descriptors this process has of the database and of its log, deleted ones included. */
  const descriptors = () => [world.directory.file, log()].map((file) => openOf(file).length);
  /** Whether this process holds a lock on the file. */
  const isLocked = (file: string) =>
    readFileSync('/proc/locks', 'utf8')
      .split('\n')
      .some((line) => line.includes(` ${process.pid} `) && line.includes(`:${statSync(file).ino} `));

  it('have one descriptor more, of the log alone, on which SQLite has no lock', async () => {
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    expect(descriptors()).toEqual([1, 2]);
    expect([isLocked(world.directory.file), isLocked(log())]).toEqual([true, false]);
    index.apply(0, some(0, 40 * RUN_OF_MANY)); // several checkpoints
    index.save(0);
    await index.sync();
    expect(descriptors()).toEqual([1, 2]);
    expect([isLocked(world.directory.file), isLocked(log())]).toEqual([true, false]);
    world.directory.close(index);
    expect(descriptors()).toEqual([0, 0]);
  });

  it('of the new store are synced after the old one was replaced, and its database stays locked', async () => {
    const disk = new Unconfirmed();
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    rmSync(log());
    await expect(index.sync()).rejects.toEqual(RESTORING);
    expect([descriptors(), isLocked(world.directory.file)]).toEqual([[1, 2], true]);
    const sync = index.sync();
    expect(disk.descriptors.map(isOpen)).toEqual([true]);
    disk.confirm();
    await sync;
  });

  it('keep the descriptor of a sync in progress after they are closed, so that no other file gets its number', async () => {
    const disk = new Unconfirmed();
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    const sync = index.sync();
    world.directory.close(index);
    expect(descriptors()).toEqual([0, 1]);
    disk.confirm();
    await sync;
    expect(descriptors()).toEqual([0, 0]);
  });
});

/** The descriptors of this process that lead to a file, or led to one of this name that was deleted. */
function openOf(file: string): string[] {
  const all = readdirSync('/proc/self/fd').map((descriptor) => `/proc/self/fd/${descriptor}`);
  return all.filter((one) => isLink(one, file) || isLink(one, `${file} (deleted)`));
}

function isLink(link: string, target: string): boolean {
  try {
    return readlinkSync(link) === target;
  } catch {
    return false; // it was closed meanwhile, as that of this listing is
  }
}

describe('a save', () => {
  it('says whether there was anything to write', () => {
    const index = world.directory.open(BINDING, RUN_OF_MANY);
    index.apply(0, some(0, 10));
    expect([index.save(0), index.save(0)]).toEqual([true, false]);
    index.apply(0, some(10, 11));
    expect([index.save(0), index.save(0)]).toEqual([true, false]);
  });
});
