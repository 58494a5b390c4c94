import { beforeEach, describe, expect, it } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import { newestLetters, originalsOf, resentHeaders } from '../../../src/cli/dead-letters/dead-letters-run.ts';
import {
  letterJson,
  letterName,
  letterOf,
  lettersText,
  letterText,
  resendObstacle,
} from '../../../src/cli/dead-letters/letter-view.ts';
import type { KafkaSession } from '../../../src/cli/kafka-session.ts';
import { DEFAULT_HEADER_NAMES, type RecordHeaders } from '../../../src/codec/request-headers.ts';
import type { ErrorCode } from '../../../src/errors.ts';
import { deadLetter, rangeLetter } from '../../../src/pipeline/outgoing.ts';
import { LoopStage, T } from '../../support/loop-stage.ts';
import { sentRecord } from '../../support/memory-publisher.ts';

const PARTITION = 1;
const CONTEXT = { names: DEFAULT_HEADER_NAMES, requestTopic: T, deadLetterTopic: 'dlt' };

let stage: LoopStage;

beforeEach(() => {
  stage = new LoopStage();
  stage.kafka.cluster.createTopic(T, { partitions: 2 });
});

/** The letter of a worker for the records at these offsets. */
function letterFor(offsets: readonly number[], headers: RecordHeaders = {}) {
  const rejections = offsets.map((offset) => {
    const record = {
      offset,
      key: Buffer.from('k'),
      value: Buffer.from('junk'),
      headers,
      timestampMs: 1_700_000_000_000,
    };
    return { record, code: 'INVALID_REPLY_TOPIC', message: 'because' } as const;
  });
  const [first] = rejections;
  if (first === undefined) throw new RangeError('no record');
  const outgoing =
    rejections.length === 1
      ? deadLetter(first.record, PARTITION, first, CONTEXT)
      : rangeLetter(rejections, PARTITION, CONTEXT);
  const { key, value } = sentRecord(outgoing);
  const read = Object.entries(outgoing.headers).map(([name, header]) => [name, Buffer.from(header as string)]);
  const place = { topic: 'dlt', partition: 0, offset: 5, timestampMs: 1_700_000_000_001 };
  return letterOf({ ...place, key, value, headers: Object.fromEntries(read) as TopicRecord['headers'] });
}

function send(count: number, headers: Record<string, string> = {}): void {
  const records = Array.from({ length: count }, () => ({ key: null, value: Buffer.from('sent'), headers }));
  stage.kafka.cluster.send(T, PARTITION, records);
}

async function find(letter: ReturnType<typeof letterFor>) {
  const { cluster, runtime } = stage;
  const { signal } = new AbortController();
  const { due, unsent } = await runtime.until(
    originalsOf({ source: { cluster, runtime }, requestTopic: T, signal }, letter),
  );
  return {
    due: due.map(({ record, resent }) => [record.partition, record.offset, String(record.value), resent]),
    unsent,
  };
}

describe('the list of letters', () => {
  const DLT = 'dlt';

  beforeEach(() => {
    stage.kafka.cluster.createTopic(DLT, { partitions: 2 });
  });

  /** A worker writes a letter. */
  async function writes(partition: number, code: ErrorCode): Promise<void> {
    await stage.pass(10);
    const record = { offset: 1, key: null, value: Buffer.from('junk'), headers: {}, timestampMs: 1 };
    const { key, value, headers } = sentRecord(deadLetter(record, PARTITION, { code, message: 'm' }, CONTEXT));
    stage.kafka.cluster.send(DLT, partition, [{ key, value, headers: headers as Record<string, string> }]);
  }

  async function listed(limit: number, code?: string): Promise<readonly string[]> {
    const { cluster, runtime } = stage;
    const session = {
      source: { cluster, runtime },
      config: { topics: { deadLetters: DLT } },
      context: { stop: new AbortController().signal },
    } as unknown as KafkaSession;
    const letters = await runtime.until(newestLetters(session, { limit, ...(code === undefined ? {} : { code }) }));
    return letters.map(letterName);
  }

  it('begins with the newest, over all partitions, and has no more than its limit', async () => {
    for (const partition of [0, 1, 0, 0, 1, 0, 1]) await writes(partition, 'EXPIRED');
    expect(await listed(3)).toEqual(['1:2', '0:3', '1:1']);
    expect(await listed(100)).toEqual(['1:2', '0:3', '1:1', '0:2', '0:1', '1:0', '0:0']);
  });

  it('has with a code those of it alone, however many others are newer', async () => {
    for (const code of ['MALFORMED_REQUEST', 'EXPIRED', 'MALFORMED_REQUEST'] as const) await writes(0, code);
    for (let i = 0; i < 5; i += 1) await writes(1, 'EXPIRED');
    expect(await listed(2, 'MALFORMED_REQUEST')).toEqual(['0:2', '0:0']);
  });
});

describe('the records of a range letter', () => {
  it('are exactly those that it names, from the request topic', async () => {
    send(20);
    expect(await find(letterFor([3, 4, 5, 9]))).toEqual({
      due: [3, 4, 5, 9].map((offset) => [PARTITION, offset, 'sent', 0]),
      unsent: [],
    });
  });

  it('that retention has deleted are counted, and the others are sent again', async () => {
    send(5);
    send(5);
    stage.kafka.cluster.partition(T, PARTITION).trim(5);
    expect(await find(letterFor([2, 3, 4, 5, 9]))).toEqual({
      due: [5, 9].map((offset) => [PARTITION, offset, 'sent', 0]),
      unsent: [{ letter: '0:5', records: 3, why: `'${T}' no longer has it` }],
    });
  });

  it('that are all deleted can not be sent again', async () => {
    send(5);
    stage.kafka.cluster.partition(T, PARTITION).trim(5);
    await expect(find(letterFor([2, 3]))).rejects.toMatchObject({ code: 'RESEND_REFUSED' });
  });

  it('that were sent again three times already are left out', async () => {
    send(1, { 'idalloc-resent': '2' });
    send(1, { 'idalloc-resent': '3' });
    send(1, { 'idalloc-resent': 'x' });
    expect(await find(letterFor([0, 1, 2]))).toEqual({
      due: [[PARTITION, 0, 'sent', 2]],
      unsent: [
        { letter: '0:5', records: 1, why: 'was sent again 3 times and came back each time' },
        { letter: '0:5', records: 1, why: 'has an invalid resend count in its header' },
      ],
    });
  });

  it('are named in a list, in full, and in JSON', () => {
    const letter = letterFor([17, 18, 19, 40]);
    expect(resendObstacle(letter, T)).toBeUndefined();
    expect(lettersText([letter])).toContain(`${T}/1 at 17-40 (4)`);
    expect(letterText(letter)).toMatch(/^offsets {2}17-19,40$/m);
    expect(letterJson(letter)).toMatchObject({
      original: { partition: 1, offset: 17 },
      range: { records: 4, last: 40, offsets: '17-19,40' },
    });
  });

  it('that it names wrongly are not sent', () => {
    const { record } = letterFor([17, 18]);
    const forged = letterOf({ ...record, headers: { ...record.headers, 'idalloc-range-count': Buffer.from('3') } });
    expect(resendObstacle(forged, T)).toBe('letter 0:5 does not name the offsets of its records');
    expect(lettersText([forged])).toContain(`${T}/1 at 17-?`);
    expect(letterText(forged)).toMatch(/^offsets {2}\?$/m);
  });
});

describe('the record of a letter for one', () => {
  it('is that in the letter, at its place in the request topic', async () => {
    send(8);
    expect(await find(letterFor([7], { 'idalloc-resent': '1' }))).toEqual({
      due: [[PARTITION, 7, 'junk', 1]],
      unsent: [],
    });
    expect(letterJson(letterFor([7]))).toMatchObject({ range: null });
  });
});

describe('a record that is sent again', () => {
  it('is a new one, of its first age: marks of how it was forwarded and that it was answered are gone', () => {
    const { record } = letterFor([7], {
      'x-mine': 'kept',
      'idalloc-origin': '0/3/1699999000000',
      'idalloc-hops': '1',
      'idalloc-answered-before': '1',
    });
    const names = Object.keys(resentHeaders({ record, resent: 0 })).filter((name) => !name.startsWith('kafka_dlt-'));
    expect(names.sort()).toEqual(['idalloc-origin', 'idalloc-resent', 'x-mine']);
    expect(String(resentHeaders({ record, resent: 0 })['idalloc-origin'])).toBe('0/3/1699999000000');
  });
});
