import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { asConfluent } from '../../src/codec/framing.ts';
import { ID_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import { ANSWERED_BEFORE, HOPS, ORIGIN } from '../../src/codec/request-headers.ts';
import { replayRecord } from '../../src/codec/request-position.ts';
import type { Statement } from '../../src/core/sequence-row.ts';
import type { Slice } from '../../src/core/slice.ts';
import type { RequestRecord, SchemaIds } from '../../src/pipeline/ports.ts';
import { Quotas } from '../../src/pipeline/quotas.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, numbers, REPLIES, record, request } from '../support/memory-records.ts';
import { DEAD_LETTERS, gist, MemoryWorker, POLICY, readerFor } from '../support/memory-worker.ts';
import { appends, lose, numbersWorld, shown, swaps, wanted } from '../support/numbers-world.ts';

const NOW_MS = 1_700_000_000_000;
const REQUESTS = 'id.requests';
/** The offset of the record that is read again. */
const AT = 7;

const newTopic = (partitions = 1) => new MemoryLedger(partitions, () => NOW_MS);

/** As a command or another worker does. */
function stateReplay(topic: MemoryLedger, below: number, partition = 0): void {
  topic.land(partition, [replayRecord(below, topic.bounds(partition).high)]);
}

/** What a worker does with records: the gists of its replies, the codes of its dead letters, and what it forwards. */
async function answersOf(worker: MemoryWorker, records: readonly RequestRecord[], partition = 0): Promise<string[]> {
  const before = [worker.replies().length, lettersOf(worker).length, forwardsOf(worker).length];
  await worker.serve(records, partition);
  const now = [worker.replies().map(gist), lettersOf(worker), forwardsOf(worker)];
  return now.flatMap((all, i) => all.slice(before[i]));
}

const lettersOf = ({ publisher }: MemoryWorker) =>
  publisher.on(DEAD_LETTERS).map(({ headers }) => `letter ${headers['kafka_dlt-exception-fqcn']}`);
const forwardsOf = ({ publisher }: MemoryWorker) =>
  publisher.on(REQUESTS).map(({ headers }) => (headers[ANSWERED_BEFORE] === undefined ? 'forwarded' : 'marked'));

/** A record that is read twice. */
interface Scene {
  readonly topic: MemoryLedger;
  readonly asked: RequestRecord;
  /** Who reads it first. */
  readonly first: MemoryWorker;
  /** Lets that happen after which it would be decided, and returns who reads it then. */
  readonly mended: () => MemoryWorker | Promise<MemoryWorker>;
}

/** A case of a row of the table in docs/reference/limits.md. */
interface Case {
  /** As the table names it. */
  readonly answer: string;
  readonly when?: string;
  readonly scene: () => Scene | Promise<Scene>;
  /** What it gets first; when it is read again because its offset was not committed; and in a replay. */
  readonly reads: readonly [first: readonly string[], afterCrash: readonly string[], inReplay: readonly string[]];
}

const worker = (topic: MemoryLedger, deps: Partial<MemoryWorker['deps']> = {}) => {
  const made = new MemoryWorker({ topic });
  Object.assign(made.deps, deps);
  return made;
};

/** A request for IDs that one worker refuses because of these dependencies, and another one serves. */
function once(asked: RequestRecord, before: Partial<MemoryWorker['deps']>, after = {}): Scene {
  const topic = newTopic();
  return { topic, asked, first: worker(topic, before), mended: () => worker(topic, after) };
}

/** Quotas that are used up. */
function usedUp(): Quotas {
  const quota = { prefix: REPLIES, idsPerSecond: 1, requestsPerSecond: 1, replyBytesPerSecond: undefined };
  const all = [quota];
  const [policy, monotonicMs, share] = [POLICY, () => 0, () => 1];
  const quotas = new Quotas({ quotas: () => all, policy, monotonicMs, share, onExceeded: () => {} });
  quotas.refuse({ partition: 0, offset: 90, replyTopic: REPLIES, ids: 1, replyBytes: 1 });
  return quotas;
}

const schemasOf = (header: Buffer | 'none' | undefined): SchemaIds => ({
  learn: async () => {},
  requestHeader: () => header,
  replyId: () => 12,
  numbersReplyId: () => 13,
});
const inConfluent = record(AT, asConfluent(7, request(AT, 'a').value as Buffer));
const learned = schemasOf(ID_REQUEST_HEADER);

/** A request for numbers, and an operator's order of which the first worker does not know. */
function ordered(
  asked: RequestRecord,
  fields: Parameters<typeof numbersWorld>[0],
  order: { readonly sequence: string; readonly first: number } & Partial<Statement>,
): Scene {
  const world = numbersWorld(fields);
  const { sequence, first, ...rest } = order;
  return {
    topic: world.topic,
    asked,
    first: world.worker(),
    mended: async () => {
      const head = await world.heads.read(0, [sequence]);
      const statement = { next: 1, step: 1, max: 1_000, format: '', closed: false, edition: 1, ...rest };
      const pending = [{ kind: 'order', sequence, first, statement } as const];
      const sequences = new Map([[sequence, statement]]);
      await world.heads.swap(0, head, { ...head, namespace: NAMESPACE, pending, sequences });
      return world.worker();
    },
  };
}
const NAMESPACE = '11111111-1111-4111-8111-111111111111';
const REBUILT = '22222222-2222-4222-8222-222222222222';

/** The winner of a later record under the same correlation ID. */
const WON = entry('a', { first: 77n });

const CASES: readonly Case[] = [
  {
    answer: 'a batch',
    scene: () => once(request(AT, 'a'), {}, { quotas: usedUp() }),
    reads: [['0+1'], ['QUOTA_EXCEEDED'], ['QUOTA_EXCEEDED']],
  },
  {
    answer: 'EXPIRED',
    scene: () => {
      const scene = once(request(AT, 'a', { expiresAtMs: 1 }), {});
      const mended = () => {
        scene.topic.land(0, [WON]);
        return worker(scene.topic);
      };
      return { ...scene, mended };
    },
    reads: [['EXPIRED'], ['77+1'], ['77+1']],
  },
  {
    answer: 'EXPIRED',
    when: 'nothing was decided meanwhile',
    scene: () => once(request(AT, 'a', { expiresAtMs: 1 }), {}),
    reads: [['EXPIRED'], ['EXPIRED'], ['EXPIRED']],
  },
  {
    answer: 'CONFLICT',
    scene: () => {
      const topic = newTopic();
      topic.land(0, [WON]);
      const mended = () => {
        topic.land(0, [entry('z', { requestOffset: 9, end: 1, through: AT })]);
        topic.trim(0, 1);
        return worker(topic);
      };
      return { topic, asked: request(AT, 'a', { count: 2 }), first: worker(topic), mended };
    },
    reads: [['CONFLICT'], ['FORGOTTEN'], ['FORGOTTEN']],
  },
  {
    answer: 'FORGOTTEN',
    scene: () => {
      const topic = newTopic();
      topic.land(0, [entry('y'), entry('z', { requestOffset: 9, end: 1, through: AT })]);
      const old = worker(topic);
      topic.trim(0, 1);
      return { topic, asked: request(AT, 'a'), first: worker(topic), mended: () => old };
    },
    reads: [['FORGOTTEN'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'QUOTA_EXCEEDED',
    scene: () => once(request(AT, 'a'), { quotas: usedUp() }),
    reads: [['QUOTA_EXCEEDED'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'INVALID_COUNT',
    scene: () => once(request(AT, 'a', { count: 9_000 }), { maxCount: 8_000 }),
    reads: [['INVALID_COUNT', 'letter INVALID_COUNT'], ['0+9000'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'INVALID_REPLY_TOPIC',
    scene: () => once(request(AT, 'a'), { reader: readerFor({ replyPolicy: { ...POLICY, prefix: 'other.' } }) }),
    reads: [['letter INVALID_REPLY_TOPIC'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'UNKNOWN_SCHEMA',
    scene: () => once(inConfluent, { schemas: schemasOf('none') }, { schemas: learned }),
    reads: [['letter UNKNOWN_SCHEMA'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'SCHEMA_REGISTRY_UNAVAILABLE',
    scene: () => once(inConfluent, { schemas: schemasOf(undefined) }, { schemas: learned }),
    reads: [['letter SCHEMA_REGISTRY_UNAVAILABLE'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'REPLY_UNDELIVERABLE',
    when: 'the topic was missing before it was decided',
    scene: () => once(request(AT, 'a'), { replyTopics: { exists: async () => false } }),
    reads: [['letter REPLY_UNDELIVERABLE'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'REPLY_UNDELIVERABLE',
    when: 'it was decided',
    scene: () => {
      const scene = once(request(AT, 'a'), {});
      scene.first.publisher.refusing.set(REPLIES, 'MESSAGE_TOO_LARGE');
      return scene;
    },
    reads: [['letter REPLY_UNDELIVERABLE'], ['0+1'], ['0+1']],
  },
  {
    answer: 'MISROUTED',
    scene: () => {
      const headers = { [ORIGIN]: '1/4/1699999000000', [HOPS]: '3' };
      const scene = once(request(AT, 'a', { headers }), {});
      return { ...scene, first: new MemoryWorker({ topic: scene.topic, homeOf: () => 1 }) };
    },
    reads: [['MISROUTED', 'letter MISROUTED'], ['0+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'UNKNOWN_SEQUENCE',
    scene: () => ordered(wanted(AT, 'a', 1, 'tickets'), {}, { sequence: 'tickets', first: -1, next: 4 }),
    reads: [['UNKNOWN_SEQUENCE'], ['4+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'SEQUENCE_EXHAUSTED',
    scene: () => ordered(wanted(AT, 'a', 3), { max: 2 }, { sequence: 'invoices', first: 1, max: 9, edition: 2 }),
    reads: [['SEQUENCE_EXHAUSTED'], ['1+3'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'SEQUENCE_CLOSED',
    scene: () => {
      const world = numbersWorld({ closed: true });
      return { topic: world.topic, asked: wanted(AT, 'a'), first: world.worker(), mended: () => world.worker() };
    },
    reads: [['SEQUENCE_CLOSED'], ['SEQUENCE_CLOSED'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'SEQUENCE_STOPPED',
    scene: async () => {
      const world = numbersWorld();
      const dead = world.worker({ link: linkOf('entries lost') });
      await expect(dead.serve([wanted(5, 'pending', 3)])).rejects.toThrow();
      world.topic.land(0, [numbers('theirs', { at: 1, count: 5, requestOffset: 6 })]);
      const mended = () => world.worker({ namespace: () => REBUILT });
      return { topic: world.topic, asked: wanted(AT, 'a'), first: world.worker(), mended };
    },
    reads: [['SEQUENCE_STOPPED'], ['6+1'], ['ANSWERED_BEFORE']],
  },
  {
    answer: 'ANSWERED_BEFORE',
    scene: () => {
      const topic = newTopic();
      stateReplay(topic, AT + 1);
      const mended = () => {
        topic.land(0, [WON]);
        return worker(topic);
      };
      return { topic, asked: request(AT, 'a'), first: worker(topic), mended };
    },
    reads: [['ANSWERED_BEFORE'], ['77+1'], ['77+1']],
  },
];

describe('a record that is read again', () => {
  describe.each(CASES)('after $answer', ({ when, scene: make, reads: [first, afterCrash, inReplay] }) => {
    const about = when === undefined ? '' : `, where ${when}`;

    it(`is decided as the table in the page of limits says, if its offset was not committed${about}`, async () => {
      const { asked, first: one, mended } = await make();
      expect(await answersOf(one, [asked])).toEqual(first);
      expect(await answersOf(await mended(), [asked])).toEqual(afterCrash);
    });

    it(`gets nothing new in a replay${about}`, async () => {
      const { topic, asked, first: one, mended } = await make();
      expect(await answersOf(one, [asked])).toEqual(first);
      stateReplay(topic, AT + 1);
      const again = await mended();
      again.catchUp();
      expect(await answersOf(again, [asked])).toEqual(inReplay);
      expect(again.allocator.asked).toEqual([]);
    });
  });

  it('has a row in that table for each case, and a case for each row', () => {
    const page = readFileSync('docs/reference/limits.md', 'utf8');
    const table = /\*\*Errors can change\*\*[\s\S]*?\n\n {2}(\|[\s\S]*?)\n\n/.exec(page)?.[1] ?? '';
    const rows = table.split('\n').slice(2);
    const named = rows.flatMap((row) => {
      const [, cell = ''] = row.split('|');
      return cell.includes('`') ? [...cell.matchAll(/`(\w+)`/g)].map(([, code]) => code) : [cell.trim()];
    });
    expect(new Set(named)).toEqual(new Set(CASES.map(({ answer }) => answer)));
    expect(named).toHaveLength(new Set(named).size);
  });
});

/** A worker that has read the statement of a replay. */
function replayed(below: number, options: { partitions?: number } = {}) {
  const { partitions = 1 } = options;
  const topic = newTopic(partitions);
  for (let partition = 0; partition < partitions; partition += 1) stateReplay(topic, below, partition);
  const homeOf = (correlationId: Slice) => Number(correlationId.toString().at(-1));
  return { topic, worker: new MemoryWorker({ topic, partitions, ...(partitions > 1 && { homeOf }) }) };
}

describe('a record below the last statement of a replay', () => {
  it('that is unknown is told so, with a remedy, and costs no ID, no append and no dead letter', async () => {
    const { worker: one } = replayed(AT + 1);
    expect(await answersOf(one, [request(AT, 'a'), request(AT + 1, 'b')])).toEqual(['ANSWERED_BEFORE', '0+1']);
    expect(one.replies()[0]).toMatchObject({
      id: 'a',
      error: { message: expect.stringContaining('send the request again as a new record') },
    });
    expect([one.allocator.asked, one.errors]).toEqual([[1], ['ANSWERED_BEFORE']]);
  });

  it('is large as well, and then takes no IDs in advance', async () => {
    const { worker: one } = replayed(AT + 1);
    expect(await answersOf(one, [request(AT, 'a', { count: 50_000 })])).toEqual(['ANSWERED_BEFORE']);
    expect(one.allocator.asked).toEqual([]);
  });

  it('that is known gets its batch, and a new record under its correlation ID as well', async () => {
    const { worker: one } = replayed(AT + 1);
    await one.serve([request(20, 'a')]);
    expect(await answersOf(one, [request(AT, 'a')])).toEqual(['0+1']);
  });

  it('gets a new batch after a statement that takes the one before it back', async () => {
    const { topic, worker: one } = replayed(AT + 1);
    expect(await answersOf(one, [request(AT, 'a')])).toEqual(['ANSWERED_BEFORE']);
    stateReplay(topic, 0);
    one.catchUp();
    expect(await answersOf(one, [request(AT, 'a')])).toEqual(['0+1']);
  });

  it('is not charged to the quota of its reply topic', async () => {
    const { worker: one } = replayed(AT + 1);
    const charges: number[] = [];
    const quotas = {
      wouldRefuse: () => false,
      answered: () => {},
      refuse: ({ offset }: { offset: number }) => charges.push(offset) && undefined,
    };
    Object.assign(one.deps, { quotas });
    await one.serve([request(AT, 'a'), request(AT + 1, 'b')]);
    expect(charges).toEqual([AT + 1]);
  });
});

describe('a record that was answered, outside its home partition,', () => {
  /** The forwarded requests, as records of the home partition at these offsets. */
  const arrived = ({ publisher }: MemoryWorker, from: number) =>
    publisher.on(REQUESTS).map(({ value, headers }, i) => record(from + i, value, headers, NOW_MS + i));

  it('is marked when it is forwarded, and one above the statement is not', async () => {
    const { worker: one } = replayed(AT + 1, { partitions: 2 });
    expect(await answersOf(one, [request(AT, 'a1'), request(AT + 1, 'b1')], 0)).toEqual(['marked', 'forwarded']);
  });

  it('gets nothing new from its home, to which it is a new record', async () => {
    const { worker: one } = replayed(AT + 1, { partitions: 2 });
    await one.serve([request(AT, 'a1'), request(AT + 1, 'b1')], 0);
    expect(await answersOf(one, arrived(one, 50), 1)).toEqual(['ANSWERED_BEFORE', '0+1']);
  });

  it('gets the batch that its home has', async () => {
    const { topic, worker: one } = replayed(AT + 1, { partitions: 2 });
    topic.land(1, [entry('a1', { first: 77n })]);
    one.catchUp();
    await one.serve([request(AT, 'a1')], 0);
    expect(await answersOf(one, arrived(one, 50), 1)).toEqual(['77+1']);
  });

  it('stays marked when it is forwarded again', async () => {
    const { worker: one } = replayed(0, { partitions: 2 });
    const headers = { [ANSWERED_BEFORE]: '1', [ORIGIN]: '0/7/1699999000000', [HOPS]: '1' };
    expect(await answersOf(one, [request(AT, 'a1', { headers })], 0)).toEqual(['marked']);
  });

  it('is not marked in a partition that was added, which has no ledger', async () => {
    const { worker: one } = replayed(AT + 1, { partitions: 2 });
    expect(await answersOf(one, [request(AT, 'a1')], 5)).toEqual(['forwarded']);
  });

  it('asks for numbers as well', async () => {
    const { worker: one } = replayed(AT + 1, { partitions: 2 });
    expect(await answersOf(one, [request(AT, 'a', { sequence: 'tickets-1' })], 0)).toEqual(['marked']);
    expect(await answersOf(one, arrived(one, 50), 1)).toEqual(['ANSWERED_BEFORE']);
    expect(swaps(one)).toEqual([]);
  });

  it('may be marked by hand, which takes nothing from anybody else', async () => {
    const one = worker(newTopic());
    const headers = { [ANSWERED_BEFORE]: 'anything' };
    expect(await answersOf(one, [request(AT, 'a', { headers }), request(AT + 1, 'a')])).toEqual([
      'ANSWERED_BEFORE',
      '0+1',
    ]);
    expect(await answersOf(one, [request(AT, 'a', { headers })])).toEqual(['0+1']);
  });
});

describe('a request for numbers that was answered', () => {
  it('is told last what its last copy is told, though one read together with it was told the same before', async () => {
    const { topic, worker: make } = numbersWorld({ closed: true });
    stateReplay(topic, 0);
    const copies = [{}, { [ANSWERED_BEFORE]: '1' }, { [ANSWERED_BEFORE]: '1' }, {}, {}].map((headers, i) =>
      request(AT + i, 'a', { sequence: 'invoices', headers }),
    );
    expect(await answersOf(make(), copies)).toEqual(['SEQUENCE_CLOSED', 'ANSWERED_BEFORE', 'SEQUENCE_CLOSED']);
  });

  it('is refused without a swap, whatever a sequence gives out, and the others of its part get their numbers', async () => {
    const { topic, worker: make } = numbersWorld();
    stateReplay(topic, AT + 1);
    const one = make();
    const asked = [wanted(1, 'a'), wanted(2, 'b', 1, 'tickets')];
    expect(await answersOf(one, asked)).toEqual(['ANSWERED_BEFORE', 'ANSWERED_BEFORE']);
    expect([swaps(one), appends(one)]).toEqual([[], []]);
    expect(await answersOf(one, [wanted(3, 'c'), wanted(20, 'd')])).toEqual(['ANSWERED_BEFORE', '1+1']);
  });

  it('gets the numbers that etcd still has for it, should the ledger have lost their record', async () => {
    const { topic, worker: make } = numbersWorld();
    stateReplay(topic, 0);
    topic.requestEnds.set(0, AT + 1);
    const one = make();
    expect(await answersOf(one, [wanted(AT, 'a', 3)])).toEqual(['1+3']);
    lose(topic, 2, one);
    stateReplay(topic, AT + 1);
    const next = make();
    expect(await answersOf(next, [wanted(AT, 'a', 3)])).toEqual(['1+3']);
    expect([swaps(next), shown(topic)]).toEqual([[], ['edition 1 at 1', '1']]);
  });
});
