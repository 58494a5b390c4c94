import { describe, expect, it } from 'vitest';
import { RequestLag } from '../../src/worker/request-partition.ts';

function world(next = 0) {
  let nowMs = 1_000;
  const reported: number[] = [];
  const lag = new RequestLag({ next, monotonicMs: () => nowMs, onChange: (records) => reported.push(records) });
  return { lag, reported, pass: (ms: number) => (nowMs += ms) };
}

describe('the lag of a request partition', () => {
  it('is 0 before the end of the log is known, and after all of it was answered', () => {
    const { lag, pass } = world();
    expect([lag.records, lag.oldestMs]).toEqual([0, 0]);
    lag.fetched(3);
    pass(50);
    lag.progressed(3);
    expect([lag.records, lag.oldestMs]).toEqual([0, 0]);
  });

  it('counts from where the group had committed', () => {
    const { lag } = world(10);
    lag.fetched(12);
    expect(lag.records).toBe(2);
    lag.fetched(12);
    lag.progressed(7);
    expect(lag.records).toBe(2);
  });

  it('has the age of the oldest waiting record while no progress is made', () => {
    const { lag, pass } = world();
    lag.fetched(1);
    for (let i = 0; i < 40; i += 1) {
      pass(250);
      lag.fetched(2 + i);
    }
    expect(lag.oldestMs).toBe(10_000);
  });

  it('has the age of the last response while nothing can be fetched, since requests may wait that are not known', () => {
    const { lag, pass } = world();
    lag.fetched(0);
    pass(1_500);
    expect(lag.oldestMs).toBe(0);
    pass(28_500);
    expect([lag.records, lag.oldestMs]).toEqual([0, 30_000]);
    lag.fetched(0);
    expect(lag.oldestMs).toBe(0);
  });

  it('has the age of the records that wait now, even if the partition has never been empty', () => {
    const { lag, pass } = world();
    for (let end = 10; end <= 1_000; end += 10) {
      lag.fetched(end);
      lag.progressed(end - 15);
      pass(100);
    }
    expect(lag.oldestMs).toBe(200);
  });

  it('keeps the age of the oldest record however often the log has grown', () => {
    const { lag, pass } = world();
    for (let end = 1; end <= 1_000; end += 1) {
      lag.fetched(end);
      pass(250);
    }
    expect([lag.records, lag.oldestMs]).toEqual([1_000, 250_000]);
    lag.progressed(999);
    expect(lag.records).toBe(1);
    expect(lag.oldestMs).toBeGreaterThanOrEqual(250);
    lag.progressed(1_000);
    expect(lag.oldestMs).toBe(0);
  });

  it('is reported whenever it may have changed', () => {
    const { lag, reported } = world();
    lag.fetched(5);
    lag.progressed(2);
    expect(reported).toEqual([5, 3]);
  });
});
