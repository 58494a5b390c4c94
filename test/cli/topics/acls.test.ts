import { describe, expect, test } from 'vitest';
import { cli } from '../harness.ts';

const ENV = { KAFKA_BROKERS: 'k-1:9092,k-2:9092' };
const WORKER_ENV = { ...ENV, ETCD_ENDPOINTS: 'http://e:2379', DATACENTER_ID: '3', ETCD_PREFIX: '/ids' };
const acls = (...args: string[]) => cli(['topics', 'acls', ...args], ENV);

describe('topics acls', () => {
  test('prints a kafka-acls command for each right, without a server', async () => {
    const { code, out } = await acls('--principal', 'User:orders', '--role', 'client', '--reply-topic', 'id.replies.o');
    const add = 'kafka-acls --bootstrap-server k-1:9092,k-2:9092 --add --allow-principal User:orders';
    expect(code).toBe(0);
    expect(out).toBe(`${add} --operation Write --topic id.requests\n${add} --operation Read --topic id.replies.o\n`);
  });

  test('prefixes are prefixed patterns, and names with a space or a quote are one shell word', async () => {
    const { out } = await acls('--principal', "User:CN=it's me,O=x", '--role', 'worker');
    expect(out).toContain(String.raw`--allow-principal 'User:CN=it'\''s me,O=x' --operation Write`);
    expect(out).toContain('--topic id.replies. --resource-pattern-type prefixed\n');
    expect(out).toContain('--operation Read --group idalloc\n');
    expect(out).not.toContain('id.requests.reply');
  });

  test('--nestjs lets a worker write replies to NestJS', async () => {
    const { out } = await acls('--principal', 'User:w', '--role', 'worker', '--nestjs');
    expect(out).toContain('--operation Write --topic id.requests.reply\n');
  });

  test('--json has rights and commands', async () => {
    const { out } = await acls('--principal', 'User:op', '--role', 'operator', '--json');
    const { rights, ...view } = JSON.parse(out);
    expect(view).toMatchObject({ principal: 'User:op', role: 'operator', applied: false });
    expect(view.commands).toHaveLength(rights.length);
    expect(rights.flatMap((right: { operations: string[] }) => right.operations)).not.toContain('Write');
  });

  test.each([
    ['a client without a reply topic', ['--principal', 'User:x', '--role', 'client'], 2, /--reply-topic/],
    [
      'a reply topic of a worker',
      ['--principal', 'User:x', '--role', 'worker', '--reply-topic', 'id.replies.x'],
      2,
      /client/,
    ],
    ['an unknown role', ['--principal', 'User:x', '--role', 'root'], 2, /role/],
    ['no principal', ['--role', 'worker'], 2, /--principal/],
    ['a principal without its type', ['--principal', 'x', '--role', 'worker'], 2, /User:name/],
    ['a principal with a line break', ['--principal', 'User:x\nrm', '--role', 'worker'], 2, /User:name/],
    [
      'the ledger as a reply topic',
      ['--principal', 'User:x', '--role', 'client', '--reply-topic', 'id.ledger'],
      1,
      /id\.ledger/,
    ],
  ])('rejects %s', async (_, args, code, message) => {
    const refused = await acls(...args);
    expect([refused.code, refused.out]).toEqual([code, '']);
    expect(refused.err).toMatch(message);
  });
});

describe('namespace rights', () => {
  const rights = (...args: string[]) => cli(['namespace', 'rights', ...args], WORKER_ENV);

  test('prints the etcdctl commands that grant a worker its rights, and no more', async () => {
    const { code, out } = await rights('--user', 'id-worker', '--role', 'worker');
    expect(code).toBe(0);
    expect(out.split('\n')).toEqual([
      'etcdctl role add id-worker',
      'etcdctl role grant-permission --prefix id-worker readwrite /ids/datacenter/3/',
      'etcdctl role grant-permission --prefix id-worker readwrite /ids/ledger/3/',
      'etcdctl role grant-permission id-worker readwrite /idalloc/id/datacenter/3',
      'etcdctl user add id-worker',
      'etcdctl user grant-role id-worker id-worker',
      '',
    ]);
  });

  test('an operator only reads', async () => {
    const { out } = await rights('--user', 'op', '--role', 'operator', '--json');
    const { rights: found } = JSON.parse(out) as { rights: { permission: string }[] };
    expect(new Set(found.map(({ permission }) => permission))).toEqual(new Set(['read']));
  });

  test.each([
    ['a user that is more than one word', ['--user', 'a; b', '--role', 'worker']],
    ['a client, which needs no rights in etcd', ['--user', 'a', '--role', 'client']],
  ])('refuses %s', async (_, args) => {
    expect((await rights(...args)).code).toBe(2);
  });
});
