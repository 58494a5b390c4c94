import { describe, expect, it } from 'vitest';
import { type Allocated, faultsOf, termsOf } from '../support/terms.ts';
import type { LogLine } from '../support/worker-process.ts';

const HOUR = 3_600_000;

/** A log line of a worker whose wall clock shows `time`, read by the test at `seenMs`. */
const line = (time: number, msg: string, rest: Record<string, unknown> = {}): LogLine => ({
  time,
  msg,
  seenMs: time,
  ...rest,
});
const acquired = (time: number, fence = '7'): LogLine => line(time, 'worker ID acquired', { fence });
const closed = (time: number, reason: string, rest: Record<string, unknown> = {}): LogLine =>
  line(time, 'gate closed', { reason, ...rest });
const open = (time: number): LogLine => line(time, 'gate open');

const allocated = (generatedAtMs: number, rest: Partial<Allocated> = {}): Allocated => ({
  correlationId: 'p0-1',
  generatedAtMs,
  sentMs: undefined,
  appendedMs: generatedAtMs,
  ...rest,
});

/** The faults of one batch, judged by the first term in the log. */
function faults(lines: readonly LogLine[], batch: Allocated, stepMs = 0): readonly string[] {
  const [term] = termsOf(lines);
  if (term === undefined) throw new Error('the log has no term');
  return faultsOf(term, [batch], stepMs);
}

describe('a batch of a term that was suspended', () => {
  const lines = [acquired(1_000), closed(2_000, 'LEASE_SUSPENDED'), open(5_000)];

  it('is right if it was allocated before or after the suspension', () => {
    for (const ms of [1_000, 2_000, 5_000, 9_000]) expect(faults(lines, allocated(ms))).toEqual([]);
  });

  it('is wrong if it was allocated during the suspension, whatever the reason became', () => {
    const paused = [
      ...lines.slice(0, 2),
      line(3_000, 'gate closed, reason changed', { reason: 'PROCESS_PAUSED' }),
      open(5_000),
    ];
    for (const log of [lines, paused]) {
      for (const ms of [2_001, 4_999])
        expect(faults(log, allocated(ms))).toEqual([expect.stringContaining('was closed')]);
    }
  });

  it('is wrong at any later time while the gate stays closed', () => {
    expect(faults(lines.slice(0, 2), allocated(99_000))).toHaveLength(1);
  });

  it('is right if it lies within a small step of the clock', () => {
    expect(faults(lines, allocated(2_010), 10)).toEqual([]);
    expect(faults(lines, allocated(2_011), 10)).toHaveLength(1);
  });

  it('is right while the gate is closed for the index alone', () => {
    expect(faults([acquired(1_000), closed(2_000, 'INDEX_RESTORING'), open(5_000)], allocated(3_000))).toEqual([]);
  });
});

describe('a batch of a term that has ended', () => {
  it.each(['LEASE_LOST', 'CLOCK_FORWARD', 'CLOCK_FROZEN', 'RESTORED'])(
    'by %s is wrong if it was allocated after the end',
    (reason) => {
      const lines = [acquired(1_000), closed(2_000, reason), open(4_000), acquired(4_000, '9')];
      expect(faults(lines, allocated(2_000))).toEqual([]);
      expect(faults(lines, allocated(4_500))).toEqual([expect.stringContaining('had ended')]);
    },
  );

  it('is wrong if it was allocated before the term, as by a clock that went back by an hour', () => {
    const detail = `the wall clock went back by ${HOUR} ms`;
    const lines = [acquired(HOUR), closed(5_000, 'CLOCK_BACKWARD', { detail })];
    expect(faults(lines, allocated(HOUR + 5_000))).toEqual([]);
    expect(faults(lines, allocated(HOUR + 5_001))).toEqual([expect.stringContaining('had ended')]);
    expect(faults(lines, allocated(5_500))).toEqual([expect.stringContaining('before its term')]);
  });

  it('is wrong if its request was sent after the test had read of the end, whatever the clock shows', () => {
    const lines = [acquired(1_000), closed(9_000, 'CLOCK_FORWARD', { seenMs: 77 })];
    expect(faults(lines, allocated(3_000, { sentMs: 77 }))).toEqual([]);
    expect(faults(lines, allocated(3_000, { sentMs: 78 }))).toEqual([expect.stringContaining('its request was sent')]);
  });

  it('is wrong if a step of the clock ended the term during a suspension', () => {
    const ended = line(1_500, 'gate closed, reason changed', {
      reason: 'CLOCK_BACKWARD',
      detail: 'went back by 500.5 ms',
    });
    const lines = [acquired(1_000), closed(2_000, 'LEASE_SUSPENDED'), ended, open(4_000)];
    expect(faults(lines, allocated(2_500))).toEqual([
      expect.stringContaining('was closed'),
      expect.stringContaining('had ended'),
    ]);
  });
});

it('a batch more than a second ahead of the broker is wrong', () => {
  expect(faults([acquired(1_000)], allocated(9_000, { appendedMs: 8_000 }))).toEqual([]);
  expect(faults([acquired(1_000)], allocated(9_000, { appendedMs: 7_999 }))).toHaveLength(1);
});

it('a term ends where the next one begins, and has its own fence', () => {
  const lines = [
    acquired(1_000),
    closed(2_000, 'LEASE_LOST'),
    open(3_000),
    acquired(3_000, '9'),
    closed(4_000, 'PROCESS_PAUSED'),
  ];
  expect(termsOf(lines).map(({ fence, suspended }) => [fence, suspended.length])).toEqual([
    [7n, 0],
    [9n, 1],
  ]);
});
