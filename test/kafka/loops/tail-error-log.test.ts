import { beforeEach, expect, it } from 'vitest';
import { throttledLog } from '../../../src/async/throttle.ts';
import { TailErrorLog } from '../../../src/kafka/loops/tail-error-log.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';

const FAULT = new KafkaError('NO_RESPONSE', 'no answer came');

let nowMs: number;
let lines: object[];
let faultLog: TailErrorLog;

const place = (topic: string, partition: number) => ({ topic, partition, state: 'resting' });

beforeEach(() => {
  nowMs = 0;
  lines = [];
  const runtime = { monotonicMs: () => nowMs };
  const log = throttledLog(runtime, (level, fields) => void (level === 'warn' && lines.push(fields)));
  faultLog = new TailErrorLog(runtime, log);
});

/** The places fail every 100 ms, for `forMs`. */
function fail(forMs: number, ...places: readonly ReturnType<typeof place>[]): void {
  for (const untilMs = nowMs + forMs; nowMs < untilMs; nowMs += 100) {
    for (const one of places) faultLog.failed(one, FAULT);
  }
}

it('faults shorter than a second are not logged, however often they occur', () => {
  const one = place('t', 0);
  for (let round = 0; round < 10; round += 1) {
    fail(1_000, one);
    faultLog.readable(one);
  }
  expect(lines).toEqual([]);
});

it('partitions of one topic that fail together are named in one line every 10 s', () => {
  fail(20_900, place('t', 1), place('t', 0), place('u', 7));
  const line = (topic: string, ...partitions: number[]) => {
    return { topic, partitions, errorCode: 'NO_RESPONSE', error: 'no answer came' };
  };
  expect(lines).toMatchObject([line('t', 0, 1), line('u', 7), line('t', 0, 1), line('u', 7)]);
});

it('a partition that can be read, or is no longer followed, is not named', () => {
  const [one, other, third] = [place('t', 0), place('t', 1), place('t', 2)];
  fail(1_000, one, other, third);
  faultLog.readable(one);
  other.state = 'stopped';
  fail(1_000, third);
  expect(lines).toMatchObject([{ partitions: [2] }]);
});
