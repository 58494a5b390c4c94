import { EventEmitter } from 'node:events';
import { type Etcd3, EtcdInvalidAuthTokenError, EtcdLeaseInvalidError } from 'etcd3';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { connectEtcd, type EtcdClient } from '../../../src/adapters/etcd/etcd.ts';
import { EtcdMember } from '../../../src/adapters/etcd/member.ts';

const REVISION = { header: { revision: '42' } };
const STORED = {
  key: Buffer.from('/idalloc/a'),
  value: Buffer.from('value'),
  create_revision: '5',
  mod_revision: '7',
  lease: '9',
};
const READ = {
  key: '/idalloc/a',
  value: Buffer.from('value'),
  createRevision: 5n,
  modRevision: 7n,
  leaseId: 9n,
};

/** A stream of keep-alives, whose answer comes with the request. */
class FakeStream extends EventEmitter {
  readonly steps: unknown[] = [];
  readonly #answer: (stream: FakeStream) => void;

  constructor(answer: (stream: FakeStream) => void) {
    super();
    this.#answer = answer;
  }

  write(request: unknown): void {
    this.steps.push(request);
    queueMicrotask(() => {
      this.steps.push('answer');
      this.#answer(this);
    });
  }

  end(): void {
    this.steps.push('end');
  }

  cancel(): void {
    this.steps.push('cancel');
  }
}

/** What etcd3's client was asked, in order. */
let asked: [call: string, request: unknown][];
/** Its answer to each call: a value, or an error to reject with. */
let answers: Record<string, unknown>;
let streams: FakeStream[];
let etcd: EtcdClient;

beforeEach(() => {
  asked = [];
  answers = {};
  streams = [];
  const answering = (call: string) => async (request: unknown) => {
    asked.push([call, request]);
    if (answers[call] instanceof Error) throw answers[call];
    return answers[call];
  };
  const client = {
    kv: { range: answering('range'), txn: answering('txn') },
    leaseClient: {
      leaseGrant: answering('leaseGrant'),
      leaseRevoke: answering('leaseRevoke'),
      leaseTimeToLive: answering('leaseTimeToLive'),
      leaseKeepAlive: async () => streams.shift(),
    },
    maintenance: { status: async () => answers.status },
  } as unknown as Etcd3;
  vi.spyOn(EtcdMember.prototype, 'call').mockImplementation((use) => use(client));
  etcd = connectEtcd({ endpoints: ['127.0.0.1:1'] });
});

afterEach(() => {
  etcd.close();
  vi.restoreAllMocks();
});

describe('a read', () => {
  it('of a prefix asks for its keys and for no others, as a page from a key on', async () => {
    answers.range = { ...REVISION, kvs: [STORED] };
    expect(await etcd.range('/idalloc/')).toEqual({ revision: 42n, kvs: [READ] });
    await etcd.range('/idalloc/', { from: '/idalloc/m', limit: 10 });
    await etcd.range('');
    const end = Buffer.from('/idalloc0');
    expect(asked).toEqual([
      ['range', { key: Buffer.from('/idalloc/'), range_end: end }],
      ['range', { key: Buffer.from('/idalloc/m'), range_end: end, limit: 10 }],
      ['range', { key: Buffer.from(''), range_end: Buffer.from([0]) }],
    ]);
  });

  it('of several keys is one transaction, which returns those that exist', async () => {
    answers.txn = { ...REVISION, responses: [{ response_range: { kvs: [] } }, { response_range: { kvs: [STORED] } }] };
    expect(await etcd.get(['/idalloc/b', '/idalloc/a'])).toEqual(new Map([['/idalloc/a', READ]]));
    const keys = ['/idalloc/b', '/idalloc/a'].map((key) => ({ request_range: { key: Buffer.from(key) } }));
    expect(asked).toEqual([['txn', { success: keys }]]);
  });

  it('of the past of a key says whether etcd still has it', async () => {
    answers.range = REVISION;
    expect(await etcd.keeps('/a', 7n)).toBe(true);
    expect(asked).toEqual([['range', { key: Buffer.from('/a'), revision: '7', count_only: true }]]);
    answers.range = new Error('etcdserver: mvcc: required revision has been compacted');
    expect(await etcd.keeps('/a', 7n)).toBe(false);
    answers.range = new Error('etcdserver: no leader');
    await expect(etcd.keeps('/a', 7n)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
  });
});

describe('a transaction', () => {
  it('compares revisions and values for equality, then puts and deletes, and says whether it did', async () => {
    const value = Buffer.from('new');
    answers.txn = { ...REVISION, succeeded: false };
    const outcome = await etcd.transact(
      [
        { key: '/a', createRevision: 0n },
        { key: '/b', modRevision: 7n },
        { key: '/c', value },
      ],
      [{ put: '/a', value, leaseId: 9n }, { put: '/b', value }, { delete: '/c' }],
    );
    expect(outcome).toEqual({ succeeded: false, revision: 42n });
    const [a, b, c] = ['/a', '/b', '/c'].map((key) => Buffer.from(key));
    expect(asked).toEqual([
      [
        'txn',
        {
          compare: [
            { key: a, result: 'Equal', target: 'Create', create_revision: '0' },
            { key: b, result: 'Equal', target: 'Mod', mod_revision: '7' },
            { key: c, result: 'Equal', target: 'Value', value },
          ],
          success: [
            { request_put: { key: a, value, lease: '9' } },
            { request_put: { key: b, value } },
            { request_delete_range: { key: c } },
          ],
        },
      ],
    ]);
  });

  it('of 128 comparisons and operations is sent, and one of more of either is not', async () => {
    answers.txn = { ...REVISION, succeeded: true };
    const puts = (count: number) => Array.from({ length: count }, (_, i) => ({ put: `/${i}`, value: Buffer.alloc(0) }));
    const compares = (count: number) => Array.from({ length: count }, (_, i) => ({ key: `/${i}`, modRevision: 1n }));
    await etcd.transact(compares(128), puts(128));
    await expect(etcd.transact(compares(129), puts(1))).rejects.toThrow(RangeError);
    await expect(etcd.transact(compares(1), puts(129))).rejects.toThrow(RangeError);
    expect(asked).toHaveLength(1);
  });

  it('that failed is the last error until a write succeeds, though reads do', async () => {
    answers.txn = new Error('etcdserver: no leader');
    answers.range = { ...REVISION, kvs: [] };
    await expect(etcd.transact([], [])).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    await etcd.range('/a/');
    expect(etcd.lastError?.message).toMatch(/a transaction .*no leader/);
    answers.txn = { ...REVISION, succeeded: true };
    await etcd.transact([], []);
    expect(etcd.lastError).toBeUndefined();
  });
});

describe('a lease', () => {
  it('is granted under an ID of ours, also if an earlier attempt has granted it already', async () => {
    await etcd.grantLease(5n, 30);
    answers.leaseGrant = new Error('etcdserver: lease already exists');
    await etcd.grantLease(5n, 30);
    expect(asked).toEqual(new Array(2).fill(['leaseGrant', { ID: '5', TTL: 30 }]));
    answers.leaseGrant = new Error('etcdserver: no leader');
    await expect(etcd.grantLease(5n, 30)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
  });

  it('is revoked, also if it is gone already', async () => {
    await etcd.revokeLease(5n);
    answers.leaseRevoke = new EtcdLeaseInvalidError('etcdserver: requested lease not found');
    await etcd.revokeLease(5n);
    expect(asked).toEqual(new Array(2).fill(['leaseRevoke', { ID: '5' }]));
    answers.leaseRevoke = new Error('etcdserver: no leader');
    await expect(etcd.revokeLease(5n)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
  });

  it('is renewed over a stream of its own, which ends with the answer', async () => {
    const stream = new FakeStream((one) => one.emit('data', { TTL: '29' }));
    streams = [stream];
    expect(await etcd.keepAlive(5n)).toEqual({ ttlSeconds: 29 });
    expect(stream.steps).toEqual([{ ID: '5' }, 'answer', 'end', 'cancel']);
  });

  it('is renewed once more with a new token, which a call on the same lease brings, if the old one was refused', async () => {
    const refused = new FakeStream((one) => one.emit('error', new EtcdInvalidAuthTokenError('invalid auth token')));
    streams = [refused, new FakeStream((one) => one.emit('data', { TTL: '29' }))];
    expect(await etcd.keepAlive(5n)).toEqual({ ttlSeconds: 29 });
    expect(asked).toEqual([['leaseTimeToLive', { ID: '5' }]]);
    expect(refused.steps).toEqual([{ ID: '5' }, 'answer', 'end', 'cancel']);
  });

  it.each<[string, (stream: FakeStream) => void]>([
    ['fails', (stream) => stream.emit('error', new Error('etcdserver: no leader'))],
    ['ends', (stream) => stream.emit('end')],
  ])('is not renewed by a stream that %s without an answer', async (_, answer) => {
    streams = [new FakeStream(answer)];
    await expect(etcd.keepAlive(5n)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    expect(asked).toEqual([]);
  });
});

describe('the status of a member', () => {
  const status = { version: '3.6.1', dbSize: '1024', leader: '7', header: { member_id: '7' }, errors: [] };
  const of = async (changes: Partial<typeof status> | { readonly errors: readonly string[] }) => {
    answers.status = { ...status, ...changes };
    return (await etcd.statuses()).get('127.0.0.1:1');
  };

  it('has the size of the database, who leads, and the alarms that are known', async () => {
    const errors = ['memberID:1 alarm:NOSPACE ', 'memberID:2 alarm:NOSPACE ', 'something else'];
    expect(await of({ errors })).toEqual({
      ...{ version: '3.6.1', isLeader: true, hasLeader: true, dbBytes: 1_024, alarms: ['NOSPACE'] },
      latencyMs: expect.any(Number),
    });
    expect(await of({ leader: '8' })).toMatchObject({ isLeader: false, hasLeader: true, alarms: [] });
    expect(await of({ leader: '0' })).toMatchObject({ isLeader: false, hasLeader: false });
  });
});
