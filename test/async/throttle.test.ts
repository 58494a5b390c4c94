import { beforeEach, describe, expect, it } from 'vitest';
import { Throttle, type ThrottledLog, throttledLog } from '../../src/async/throttle.ts';

const INTERVAL_MS = 1_000;
const names = (from: number, until: number) => Array.from({ length: until - from }, (_, i) => `name ${from + i}`);

let nowMs: number;
const clock = { monotonicMs: () => nowMs };

beforeEach(() => {
  nowMs = 5;
});

describe('a throttle', () => {
  const passesOf = (throttle: Throttle, ...those: readonly string[]) =>
    those.map((name) => throttle.passes(name) !== undefined);

  it('lets the first event of each name pass, and the next one an interval later', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    expect(passesOf(throttle, 'a', 'a', 'b')).toEqual([true, false, true]);
    nowMs = 1_004;
    expect(passesOf(throttle, 'a')).toEqual([false]);
    nowMs = 1_005;
    expect(passesOf(throttle, 'a', 'a')).toEqual([true, false]);
  });

  it('counts the interval from the last event that passed, not from one that was held back', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    throttle.passes();
    nowMs += 900;
    expect(throttle.passes()).toBeUndefined();
    nowMs += 100;
    expect(throttle.passes()).toBeDefined();
  });

  it('counts the events that an event stands for, itself included', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    expect(throttle.passes('a', 3)).toEqual({ count: 3, names: undefined });
    for (const times of [1, 5]) throttle.passes('a', times);
    nowMs += INTERVAL_MS;
    expect(throttle.passes('a')).toEqual({ count: 7, names: undefined });
  });

  it('tells names apart that differ only in digits', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    expect(passesOf(throttle, 'tenant-1', 'tenant-2')).toEqual([true, true]);
  });

  it('gives places to 20 names, and one to all others together, with their number', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    const passed = (those: readonly string[]) => those.flatMap((name) => throttle.passes(name) ?? []);
    expect(passed(names(0, 20))).toHaveLength(20);
    expect(passed(names(20, 101))).toEqual([{ count: 1, names: 1 }]);
    expect(passed(names(0, 101))).toEqual([]);
    nowMs += INTERVAL_MS;
    expect(passed(names(0, 101))).toHaveLength(21);
  });

  it('tells a thousand of the other names apart at most, so that names from requests take no memory', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    for (const name of names(0, 2_000)) throttle.passes(name);
    nowMs += INTERVAL_MS;
    for (const name of names(0, 20)) throttle.passes(name);
    expect(throttle.passes('another')).toMatchObject({ names: 1_000 });
  });

  it('never lets more than 21 events of any names pass in an interval', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    let passed = 0;
    for (let event = 0; event < 10_000; event += 1) {
      nowMs = event; // ten intervals
      if (throttle.passes(`name ${event}`) !== undefined) passed += 1;
    }
    expect(passed).toBe(10 * 21);
  });

  it('gives the place of a name that would pass anyway to a new one', () => {
    const throttle = new Throttle(clock, INTERVAL_MS);
    for (const name of names(0, 20)) throttle.passes(name);
    nowMs += INTERVAL_MS;
    expect(throttle.passes('new')).toEqual({ count: 1, names: undefined });
  });
});

describe('a log without repetitions', () => {
  let lines: { readonly level: string; readonly fields: object; readonly message: string }[];
  let log: ThrottledLog;

  beforeEach(() => {
    lines = [];
    log = throttledLog(clock, (level, fields, message) => lines.push({ level, fields, message }));
  });
  const levels = () => lines.map(({ level }) => level);

  it('writes repeated errors and warnings to debug for 10 s, and then says how many there were', () => {
    for (const at of [0, 9_999, 10_000]) {
      nowMs = at;
      log('warn', { at }, 'no answer');
    }
    expect(lines.map(({ level, fields }) => ({ level, ...fields }))).toEqual([
      { level: 'warn', at: 0 },
      { level: 'debug', at: 9_999 },
      { level: 'warn', at: 10_000, count: 2 },
    ]);
  });

  it('says whether it wrote the line at its level', () => {
    expect([log('error', {}, 'no answer'), log('error', {}, 'no answer')]).toEqual([true, false]);
  });

  it('writes information and details whenever they come', () => {
    for (const level of ['info', 'info', 'debug', 'debug'] as const) log(level, {}, 'joined');
    expect(levels()).toEqual(['info', 'info', 'debug', 'debug']);
  });

  it('tells messages apart, and what they are about', () => {
    for (const about of [1, 2, 1]) for (const message of ['no answer', 'refused']) log('warn', {}, message, { about });
    expect(levels()).toEqual(['warn', 'warn', 'warn', 'warn', 'debug', 'debug']);
  });

  it('holds a line back as long as the line before said', () => {
    for (const at of [0, 59_999, 60_000]) {
      nowMs = at;
      log('warn', {}, 'waiting', { everyMs: 60_000 });
    }
    expect(levels()).toEqual(['warn', 'debug', 'warn']);
  });

  it('always counts the lines that stand for several events', () => {
    for (const times of [1, 3]) log('warn', { code: 'EXPIRED' }, 'dead letters', { times });
    expect(lines.map(({ level, fields }) => ({ level, ...fields }))).toEqual([
      { level: 'warn', code: 'EXPIRED', count: 1 },
      { level: 'debug', code: 'EXPIRED', count: 3 },
    ]);
  });

  it('counts things without a line of their own in one line, with one of them as an example', () => {
    for (const about of names(0, 30)) log('warn', { about }, 'refused', { about });
    nowMs += 10_000;
    for (const about of names(0, 30)) log('warn', { about }, 'refused', { about });
    const shared = lines.filter(({ level, fields }) => level === 'warn' && 'names' in fields);
    expect(shared.map(({ fields }) => fields)).toEqual([
      { about: 'name 20', count: 1, names: 1 },
      { about: 'name 20', count: 10, names: 10 },
    ]);
  });
});
