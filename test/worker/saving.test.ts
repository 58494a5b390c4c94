import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { IdallocError } from '../../src/errors.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { idsOf, StagedRequests } from '../support/staged-requests.ts';
import { WorkerStage } from '../support/worker-stage.ts';

const JOINED_MS = 40_000;
/** Ten rounds of saves, with some time for the turns in between. */
const ROUNDS_MS = 10_100;

let stage: WorkerStage;
/** What the worker had its index do, in order. */
let calls: string[];

beforeEach(() => {
  stage = new WorkerStage();
  calls = [];
  vi.spyOn(MemoryIndex.prototype, 'save').mockImplementation((partition) => {
    calls.push(`save ${partition}`);
    return true;
  });
});

afterEach(async () => {
  await stage.stop();
  vi.restoreAllMocks();
});

function onSync(sync: () => Promise<void>): void {
  vi.spyOn(MemoryIndex.prototype, 'sync').mockImplementation(() => {
    calls.push('sync');
    return sync();
  });
}

/** The calls of whole rounds, each as one text. */
const rounds = () => calls.join(' ').split(/ ?(?=save 0)/);

test('a worker syncs its index once in each round of saves, after the last of them', async () => {
  onSync(async () => {});
  stage.start();
  await stage.pass(JOINED_MS);
  calls = [];
  await stage.pass(ROUNDS_MS);
  const whole = rounds().slice(1, -1);
  expect(whole.length).toBeGreaterThan(7);
  expect(new Set(whole)).toEqual(new Set(['save 0 save 1 save 2 sync']));
});

test('a worker saves on while its disk is slow, and begins no other sync meanwhile', async () => {
  const disk = Promise.withResolvers<void>();
  onSync(() => disk.promise);
  stage.start();
  await stage.pass(JOINED_MS);
  expect(calls.filter((call) => call === 'sync')).toEqual(['sync']);
  expect(rounds().length).toBeGreaterThan(30);
  disk.resolve();
  await stage.pass(ROUNDS_MS);
  expect(calls.filter((call) => call === 'sync').length).toBeGreaterThan(1);
});

test('a sync that fails is logged, and the worker answers and syncs on', async () => {
  const error = new IdallocError('INDEX_RESTORING', 'the disk failed');
  onSync(() => Promise.reject(error));
  stage.start();
  await stage.pass(JOINED_MS);
  const asked = new StagedRequests(stage);
  const ids = idsOf('a', 2);
  asked.send(ids);
  await stage.pass(ROUNDS_MS);
  expect(asked.counts(ids)).toEqual([1, 1]);
  const failed = stage.lines.filter(({ msg }) => msg === 'saving the index failed');
  expect(failed[0]).toMatchObject({ error: expect.stringContaining('the disk failed') });
  expect(failed.length).toBe(calls.filter((call) => call === 'sync').length);
});

test.for([
  ['an index that fails', 40, 'INDEX_UNUSABLE'], // the worker makes a new one
  ['something that passes', 40, 'ETCD_UNAVAILABLE'],
  ['something that lasts', 50, 'LEDGER_UNREADABLE'],
] as const)('what %s keeps from the ledger is logged at level %i: %s', async ([, level, code]) => {
  vi.spyOn(MemoryIndex.prototype, 'sequences').mockImplementation(() => {
    throw new IdallocError(code, 'the file is gone');
  });
  stage.start();
  await stage.pass(JOINED_MS);
  const lines = stage.lines.filter(({ msg }) => msg.startsWith('could not write what is due'));
  const seen = new Set(lines.map((line) => `${line.level} ${line.error}`));
  expect(seen).toEqual(new Set([`${level} ${code}: the file is gone`]));
});
