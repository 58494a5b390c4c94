import { describe, expect, it } from 'vitest';
import { asConfluent, confluentSchemaId } from '../../src/codec/framing.ts';
import { encodeIdRequest, ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import { encodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { IdallocError } from '../../src/errors.ts';
import { PRICES_US } from '../../src/pipeline/accounts.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { DeferredQueue } from '../../src/pipeline/deferred.ts';
import type { RequestReader } from '../../src/pipeline/intake.ts';
import type { RequestRecord, SchemaIds } from '../../src/pipeline/ports.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { REPLIES, request } from '../support/memory-records.ts';
import { accountsWith, DEAD_LETTERS, gist, MemoryWorker, readerFor } from '../support/memory-worker.ts';

const REQUEST_ID = 7;
const WIDE_REQUEST_ID = 6;
const OTHER_ID = 8;
const UNHEARD_ID = 9;
const REPLY_ID = 12;
const NUMBERS_REPLY_ID = 13;

/** A registry that knows three ids, or is down: within the time that requests wait for it, or after that. */
class FakeSchemas implements SchemaIds {
  state: 'up' | 'waited for' | 'given up' = 'up';
  readonly #learned = new Map<number, Buffer | 'none'>();

  async learn(ids: ReadonlySet<number>): Promise<void> {
    if (this.state === 'waited for') throw new IdallocError('SCHEMA_REGISTRY_UNAVAILABLE', 'down');
    if (this.state === 'given up') return;
    const headers = new Map([
      [REQUEST_ID, ID_REQUEST_HEADER],
      [WIDE_REQUEST_ID, WIDE_REQUEST_HEADER],
    ]);
    for (const id of ids) this.#learned.set(id, headers.get(id) ?? 'none');
  }
  requestHeader(id: number): Buffer | 'none' | undefined {
    return this.#learned.get(id);
  }
  replyId(): number | undefined {
    return REPLY_ID;
  }
  numbersReplyId(): number | undefined {
    return NUMBERS_REPLY_ID;
  }
}

function confluent(offset: number, id: string, schemaId: number): RequestRecord {
  const plain = request(offset, id);
  return { ...plain, value: asConfluent(schemaId, plain.value ?? Buffer.alloc(0)) };
}

function start() {
  const schemas = new FakeSchemas();
  const worker = new MemoryWorker({ topic: new MemoryLedger(1, () => 1_700_000_000_000), schemas });
  const resolved = () => worker.events.filter((event) => event.startsWith('resolved'));
  return { schemas, worker, resolved };
}

describe('a request in Confluent framing', () => {
  it('is answered in Confluent framing, with the same batch as in our framing', async () => {
    const { worker } = start();
    await worker.serve([confluent(0, 'a', REQUEST_ID), request(1, 'a')]);
    const [framed, plain] = worker.replies();
    if (framed === undefined || plain === undefined) throw new Error('two replies are due');
    expect(confluentSchemaId(framed.bytes)).toBe(REPLY_ID);
    expect(confluentSchemaId(plain.bytes)).toBeUndefined();
    expect(gist(framed)).toBe(gist(plain));
    expect(framed.bytes.subarray(5)).toEqual(plain.bytes.subarray(10));
  });

  it('of the second schema is read by that schema', async () => {
    const { worker } = start();
    const wide = encodeIdRequest({ count: 1, requestId: Buffer.from('order') });
    const headers = { kafka_correlationId: 'a', kafka_replyTopic: REPLIES };
    const record = { ...request(0, 'a'), headers, fields: undefined };
    await worker.serve([{ ...record, value: asConfluent(WIDE_REQUEST_ID, wide) }]);
    expect([worker.errors, worker.index.placesOf(0, encodeLedgerKey(Buffer.from('order')))]).toEqual([[], [0]]);
    await worker.serve([{ ...record, offset: 1, value: asConfluent(REQUEST_ID, wide) }]);
    expect(worker.errors).toEqual(['MALFORMED_REQUEST']);
  });

  it('under the ID of another schema is a dead letter', async () => {
    const { worker } = start();
    await worker.serve([confluent(0, 'a', OTHER_ID), request(1, 'b')]);
    expect(worker.errors).toEqual(['UNKNOWN_SCHEMA']);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
    expect(worker.replies().map(({ id }) => id)).toEqual(['b']);
  });

  it('waits for the registry while those before it are served, and is served when the registry is back', async () => {
    const { worker, schemas, resolved } = start();
    schemas.state = 'waited for';
    const records = [request(0, 'a'), confluent(1, 'b', REQUEST_ID), request(2, 'c')];
    await expect(worker.serve(records)).rejects.toMatchObject({ code: 'SCHEMA_REGISTRY_UNAVAILABLE' });
    expect(worker.replies().map(({ id }) => id)).toEqual(['a']);
    expect(resolved()).toEqual(['resolved 0']);
    schemas.state = 'up';
    await worker.serve(records.slice(1));
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    expect(worker.publisher.on(DEAD_LETTERS)).toEqual([]);
  });

  it('under a known schema ID does not wait', async () => {
    const { worker, schemas } = start();
    await worker.serve([confluent(0, 'a', REQUEST_ID)]);
    schemas.state = 'waited for';
    await worker.serve([confluent(1, 'b', REQUEST_ID)]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b']);
  });

  it('is a dead letter without a reply after the registry timed out, and the partition continues', async () => {
    const { worker, schemas, resolved } = start();
    schemas.state = 'given up';
    const headers = { kafka_correlationId: 'a', kafka_replyTopic: REPLIES };
    await worker.serve([{ ...confluent(0, 'a', UNHEARD_ID), headers }, request(1, 'b')]);
    expect(worker.errors).toEqual(['SCHEMA_REGISTRY_UNAVAILABLE']);
    expect(worker.publisher.on(DEAD_LETTERS)).toHaveLength(1);
    expect(worker.replies().map(({ id }) => id)).toEqual(['b']);
    expect(resolved()).toEqual(['resolved 1']);
  });

  it('waits while unknown schemas are in debt, is looked up where it waits, and holds up nobody else', async () => {
    const schemas = new FakeSchemas();
    const clock = { nowMs: 0 };
    const accounts = accountsWith({ usPerMs: 1, burstUs: PRICES_US.request }, () => clock.nowMs);
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    const worker = new MemoryWorker({ topic, schemas, accounts });
    const reader = readerFor({ schemas, homeOf: () => 0 });
    // Nothing is in debt any more once records are read: what was not looked up then waits all the same.
    const read = (one: RequestRecord) => {
      clock.nowMs += 1_000;
      return reader.read(one);
    };
    const deps = { ...worker.deps, reader: { read } as RequestReader };
    const debts = new DeferredQueue(() => {});
    const control = { isCurrent: () => true, resolved: () => {} };
    const serve = (...records: RequestRecord[]) => processBatch(deps, 0, records, { ...control, deferrals: { debts } });
    schemas.state = 'given up';
    await serve(request(0, 'a'), confluent(1, 'b', UNHEARD_ID));
    expect(worker.errors).toEqual(['SCHEMA_REGISTRY_UNAVAILABLE']);
    schemas.state = 'waited for';
    await serve(confluent(3, 'd', REQUEST_ID), request(4, 'e'));
    await serve(request(5, 'f'), confluent(6, 'g', OTHER_ID));
    expect([worker.replies().map(({ id }) => id), worker.errors.length]).toEqual([['a', 'e', 'f'], 1]);
    expect(debts.held.map(({ offset }) => offset)).toEqual([3, 6]);
    schemas.state = 'up';
    const isDebtor = (name: string | undefined, offset: number) => debts.isDebtor(name, offset);
    await processBatch(deps, 0, debts.held, { ...control, lane: 'debts', isDebtor });
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'e', 'f', 'd']);
    expect(worker.errors.slice(1)).toEqual(['UNKNOWN_SCHEMA']);
  });
});
