import { describe, expect, it } from 'vitest';
import { FIRST_SENT, HOPS, ORIGIN } from '../../src/codec/request-headers.ts';
import { wallMs } from '../../src/core/units.ts';
import type { LedgerCopies } from '../../src/ledger/ledger-ports.ts';
import { BINDING, perTest } from '../adapters/index/index-directory.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { request } from '../support/memory-records.ts';
import { CLOCK_MARGIN_MS, gist, MemoryWorker } from '../support/memory-worker.ts';

const NOW = 1_700_000_000_000;
const DAY = 86_400_000;
const YEAR = 365 * DAY;

const holder = perTest();
const INDEXES: readonly (readonly [string, (machine: string) => LedgerCopies])[] = [
  ['in memory', () => new MemoryIndex()],
  ['on disk', (machine) => holder.directory.openOf(machine, BINDING, 16)],
];

const plain = (offset: number, id: string, timestampMs: number) => ({ ...request(offset, id), timestampMs });
/** A request that another partition's broker appended at `firstMs`, and that was forwarded. */
const forwarded = (offset: number, id: string, firstMs: number, timestampMs: number) => ({
  ...request(offset, id, { headers: { [ORIGIN]: `1/${offset}/${firstMs}`, [HOPS]: '1' } }),
  timestampMs,
});
const resent = (offset: number, id: string, firstMs: number, timestampMs: number) => ({
  ...request(offset, id, { headers: { [FIRST_SENT]: `${firstMs}` } }),
  timestampMs,
});

/** A ledger, and the clock of its leader. */
function world() {
  let leaderMs = NOW;
  const topic = new MemoryLedger(1, () => leaderMs);
  topic.requestEnds.set(0, 1_000);
  const at = (ms: number) => {
    leaderMs = ms;
  };
  return { topic, at };
}

const outcomes = (worker: MemoryWorker) => worker.replies().map(gist);

describe.each(INDEXES)('with an index %s, a broker of the ledger that is', (_, newIndex) => {
  it('a year ahead for one append makes no later request FORGOTTEN once that entry is the first of the log', async () => {
    const { topic, at } = world();
    const worker = new MemoryWorker({ topic, index: newIndex('old') });
    for (let i = 0; i < 20; i += 1) await worker.serve([plain(i, `old-${i}`, NOW)]);
    const jump = topic.bounds(0).high;
    at(NOW + YEAR);
    await worker.serve([plain(20, 'at the jump', NOW)]);
    at(NOW + 1_000);
    for (let i = 21; i < 60; i += 1) await worker.serve([plain(i, `later-${i}`, NOW)]);
    const nowMs = NOW + 2 * DAY;
    at(nowMs);
    topic.trim(0, jump);
    const restored = new MemoryWorker({ topic, index: newIndex('new'), workerId: 1 });
    await restored.ledger.mark(0);
    await restored.serve([plain(60, 'direct', nowMs), forwarded(61, 'today', nowMs - 1_000, nowMs)]);
    expect(outcomes(restored)).not.toContain('FORGOTTEN');
  });

  it('a year ahead all the time makes requests FORGOTTEN until the margin after the restore, by a trusted clock', async () => {
    const { topic, at } = world();
    at(NOW + YEAR);
    const worker = new MemoryWorker({ topic, index: newIndex('old') });
    for (let i = 0; i < 20; i += 1) await worker.serve([plain(i, `old-${i}`, NOW)]);
    topic.trim(0, 10);
    let nowMs: number | undefined;
    const trustedNow = () => (nowMs === undefined ? undefined : wallMs(nowMs));
    const restored = new MemoryWorker({ topic, index: newIndex('new'), workerId: 1, trustedNow });
    const due = NOW + DAY + CLOCK_MARGIN_MS;
    const served = async (offset: number, firstMs: number) => {
      await restored.serve([forwarded(offset, `at ${offset}`, firstMs, firstMs)]);
      return outcomes(restored).at(-1);
    };
    expect(await served(60, due + DAY)).toBe('FORGOTTEN');
    nowMs = NOW + DAY;
    expect(await served(61, due - 1)).toBe('FORGOTTEN');
    nowMs = due;
    expect(await served(62, due)).not.toBe('FORGOTTEN');
  });

  it('ten minutes behind does not let a forwarded request be decided twice', async () => {
    const { topic, at } = world();
    const worker = new MemoryWorker({ topic, index: newIndex('old') });
    for (let i = 0; i < 16; i += 1) await worker.serve([forwarded(i, `k-${i}`, NOW - 1_000, NOW)]);
    at(NOW - 600_000);
    for (let i = 16; i < 48; i += 1) await worker.serve([plain(i, `x-${i}`, NOW)]);
    topic.trim(0, 16);
    at(NOW + DAY);
    const restored = new MemoryWorker({ topic, index: newIndex('new'), workerId: 1 });
    await restored.serve([forwarded(70, 'k-3', NOW - 1_000, NOW + DAY)]);
    expect(outcomes(restored)).toEqual(['FORGOTTEN']);
  });

  it.each([
    ['ten minutes', 600_000],
    ['a year', YEAR],
  ])('%s behind does not let one be decided twice by a renewal of old IDs that it stamped', async (_far, byMs) => {
    const { topic, at } = world();
    const worker = new MemoryWorker({ topic });
    await worker.serve([plain(0, 'old', NOW)]); // every batch here has the IDs of NOW
    const later = NOW + 3_600_000;
    at(later);
    for (let i = 1; i < 16; i += 1) await worker.serve([forwarded(i, `k-${i}`, later - 1_000, later)]);
    for (let i = 16; i < 32; i += 1) await worker.serve([plain(i, `x-${i}`, later)]);
    at(later - byMs);
    await worker.serve([plain(32, 'old', later)]);
    at(later + DAY);
    topic.trim(0, 16);
    const restored = new MemoryWorker({ topic, index: newIndex('new'), workerId: 1 });
    await restored.serve([forwarded(70, 'k-3', later - 1_000, later + DAY)]);
    expect(outcomes(restored)).toEqual(['FORGOTTEN']);
  });
});

describe.each(INDEXES)('with an index %s, clocks', (_, newIndex) => {
  it('that all went back for a while after a restore do not let a forwarded request be decided twice', async () => {
    const { topic, at } = world();
    const worker = new MemoryWorker({ topic });
    for (let i = 0; i < 16; i += 1) await worker.serve([forwarded(i, `k-${i}`, NOW - 1_000, NOW)]);
    for (let i = 16; i < 32; i += 1) await worker.serve([plain(i, `x-${i}`, NOW)]);
    topic.trim(0, 16);
    let nowMs = NOW;
    const trustedNow = () => wallMs(nowMs);
    const restored = new MemoryWorker({ topic, index: newIndex('new'), workerId: 1, trustedNow });
    for (const [offset, ms] of [NOW, NOW - 3_600_000, NOW + 3_600_000].entries()) {
      nowMs = ms;
      at(ms);
      await restored.serve([plain(40 + offset, `new-${offset}`, ms)]);
    }
    await restored.serve([forwarded(70, 'k-3', NOW - 1_000, nowMs)]);
    expect(outcomes(restored).at(-1)).toBe('FORGOTTEN');
  });
});

describe('a time of a first record that is yet to come is of unknown age', () => {
  it('by more than the margin, even to a worker that knows everything', async () => {
    const { topic } = world();
    const worker = new MemoryWorker({ topic });
    await worker.serve([
      forwarded(0, 'broker', NOW + CLOCK_MARGIN_MS + 1, NOW),
      resent(1, 'client', NOW + CLOCK_MARGIN_MS + 1, NOW),
      forwarded(2, 'near', NOW + CLOCK_MARGIN_MS, NOW),
      plain(3, 'direct', NOW + YEAR),
    ]);
    expect(outcomes(worker)).toEqual(['FORGOTTEN', 'FORGOTTEN', '0+1', '1+1']);
    const [first] = worker.replies();
    expect(first !== undefined && 'error' in first && first.error.message).toMatch(
      /says? that it was first sent at 2023/,
    );
  });

  it('so that it is not decided again, when it was decided and the ledger has forgotten that', async () => {
    const { topic, at } = world();
    const worker = new MemoryWorker({ topic });
    await worker.serve([plain(0, 'k', NOW)]);
    for (let i = 1; i < 60; i += 1) await worker.serve([plain(i, `x-${i}`, NOW)]);
    at(NOW + 2 * DAY);
    worker.catchUp();
    topic.trim(0, 32);
    worker.copy.expire(32);
    await worker.serve([forwarded(70, 'k', NOW + YEAR, NOW + 2 * DAY)]);
    expect(outcomes(worker).at(-1)).toBe('FORGOTTEN');
  });

  it("by the worker's trusted clock as well: the broker of the record itself may be ahead", async () => {
    const { topic } = world();
    let nowMs: number | undefined = NOW;
    const trustedNow = () => (nowMs === undefined ? undefined : wallMs(nowMs));
    const worker = new MemoryWorker({ topic, trustedNow });
    await worker.serve([forwarded(0, 'both', NOW + YEAR, NOW + YEAR)]);
    nowMs = undefined;
    await worker.serve([forwarded(1, 'both', NOW + YEAR, NOW + YEAR)]);
    expect(outcomes(worker)).toEqual(['FORGOTTEN', '0+1']);
  });
});
