import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempDisposableSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { countIds, expandIds } from '../../src/codec/id-batch.ts';
import { decodeIdReply } from '../../src/codec/id-reply.ts';
import * as tools from '../support/example-tools.ts';
import { batchOf, decodeReply, type Followed } from '../support/followed.ts';
import { expectInvoices, type Take } from '../support/invoices.ts';
import { LineService } from '../support/line-service.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const TIMEOUT_MS = 300_000;
const PARTITION = 2;
const SCHEMAS = join(ROOT, 'schemas');
const SUPPORT = join(ROOT, 'test/support');
const TOO_MANY = 100_001;
const REFUSED = /INVALID_COUNT: count 100001 is above 100000/;
const run = promisify(execFile);

const [kcat, go, java, spring, python, nestjs] = await Promise.all([
  tools.kcat(),
  tools.goRequester(),
  tools.jars('java'),
  tools.jars('spring'),
  tools.pythonEnvironment(),
  tools.nestModules(),
]);

interface Own {
  readonly take: Take;
  /** Calls that the example refuses, with what it says. */
  readonly refused: readonly (readonly [says: RegExp, call: () => Promise<unknown>])[];
}

let realm: Realm;
let replies: Followed;
/** A directory of the example. */
let place: string;

/** The tests of an example, in a realm with a worker; skipped without its tool, of which `own` gets the path. */
function example(name: string, tool: tools.Tool, own: (path: string) => Own, prepare?: (path: string) => unknown) {
  const { why, title, path } = tools.skipping(tool);
  describe.skipIf(why !== undefined)(`${name}${title}`, () => {
    const stack = new AsyncDisposableStack();
    beforeAll(async () => {
      place = stack.use(mkdtempDisposableSync(join(tmpdir(), 'idalloc-interop-'))).path;
      realm = stack.use(await Realm.create(suiteServers()));
      replies = await realm.follow();
      await Promise.all([prepare?.(path), realm.worker().ready()]);
    });
    afterAll(() => stack.disposeAsync());

    const { take, refused } = own(path);
    test('numbers invoices', () => expectInvoices(realm, take));
    test.each(refused)('says %s', async (says, call) => {
      await expect(call()).rejects.toThrow(says);
    });
  });
}

async function output(file: string, args: readonly string[], cwd = ROOT): Promise<string> {
  return (await run(file, args, { timeout: TIMEOUT_MS, cwd })).stdout.trimEnd();
}

/** The brokers, and the topics of requests and of replies, as most examples take them. */
const about = (replyTopic = realm.replyTopic) => [suiteServers().brokers.join(), realm.requestTopic, replyTopic];

const idsOf = async (correlationId: string) => expandIds(await replies.batch(correlationId)).map(String);

/** The batch of the first reply. */
async function firstReply() {
  await replies.until('the reply', (seen) => seen.length > 0);
  const [seen] = replies.seen;
  if (seen === undefined) throw new Error('no reply');
  return { batch: batchOf(decodeReply(seen)), partition: seen.partition };
}

example('kcat', kcat, () => {
  const printed = (...more: string[]) => output(join(tools.EXAMPLES, 'kcat/request.sh'), [...about(), ...more]);
  const ask = async (count: string) => Buffer.from((await printed(count)).replaceAll(/\s/g, ''), 'hex');

  test('an empty value with headers is a request, and kcat reads the reply', async () => {
    const value = await ask('7');
    const reply = decodeIdReply(value);
    expect(countIds(batchOf({ reply }).ranges)).toBe(7);
    const { seen } = await replies.reply(reply.correlationId);
    expect(seen.message.value).toEqual(value);
    expect(decodeIdReply(await ask('seven'))).toMatchObject({ error: { code: 'INVALID_COUNT' } });
  });

  return {
    take: async (sequence, id, count) => (await printed(String(count), id, sequence)).split('\n'),
    refused: [],
  };
});

example('Go', go, (path) => {
  const lines = async (count: number, more: readonly string[], replyTopic = realm.replyTopic) => {
    const topics = ['-request-topic', realm.requestTopic, '-reply-topic', replyTopic];
    const from = ['-brokers', suiteServers().brokers.join(), '-schemas', SCHEMAS];
    const printed = await output(join(path, 'request'), [...from, ...topics, '-count', String(count), ...more]);
    return printed.split('\n').map((line) => JSON.parse(line));
  };
  const ask = async (count: number, ids: readonly string[]) => {
    const answers = await lines(count, ids);
    return new Map(answers.map((answer): [string, string[]] => [answer.correlation_id, answer.ids]));
  };

  test('franz-go requests several batches at once, expands the ranges, and gets the same ones again', async () => {
    const first = await ask(5_000, ['a', 'b']);
    for (const id of ['a', 'b']) expect(first.get(id)).toEqual(await idsOf(id));
    expect(first.get('a')).toHaveLength(5_000);
    expect(await ask(5_000, ['b', 'a'])).toEqual(first);
    const [[unnamed, ids] = ['', []]] = await ask(2, []);
    expect(ids).toEqual(await idsOf(unnamed));
  });

  return {
    take: async (sequence, id, count) => (await lines(count, ['-sequence', sequence, id]))[0].numbers,
    refused: [
      [/name the correlation ID/, () => lines(1, ['-sequence', 'invoices/2027'])],
      [REFUSED, () => ask(TOO_MANY, ['too-many'])],
      [/topic nowhere: UNKNOWN_TOPIC_OR_PARTITION/, () => lines(1, ['c'], 'nowhere')],
    ],
  };
});

/** Compiles the requester of a Java example. */
const javac = (name: string) => (path: string) =>
  output('javac', ['-cp', join(path, '*'), '-d', place, join(tools.EXAMPLES, name, 'Requester.java')]);

async function requester(path: string, args: readonly string[]): Promise<string[]> {
  return (await output('java', ['-cp', `${place}:${join(path, '*')}`, 'Requester', ...args])).split('\n');
}

example(
  'Java',
  java,
  (path) => {
    const ask = async (count: number, ids: readonly string[], replyTopic?: string, ...options: string[]) =>
      (await requester(path, [...options, ...about(replyTopic), String(count), SCHEMAS, ...ids])).sort();
    const expected = async (id: string) => `${id} [${(await idsOf(id)).join(', ')}]`;

    test('kafka-clients requests several batches at once, expands the ranges, and gets the same ones again', async () => {
      const first = await ask(5_000, ['a', 'b']);
      expect(first).toEqual([await expected('a'), await expected('b')]);
      expect(await ask(5_000, ['b', 'a'])).toEqual(first);
      const [unnamed = ''] = await ask(2, []);
      expect(unnamed).toBe(await expected(unnamed.split(' ')[0] ?? ''));
    });

    return {
      take: async (sequence, id, count) => {
        const [line = ''] = await ask(count, [id], undefined, `--sequence=${sequence}`);
        return /^\S+ \[(.*)\]$/.exec(line)?.[1]?.split(', ') ?? [];
      },
      refused: [
        [/name the correlation ID/, () => ask(1, [], undefined, '--sequence=invoices/2027')],
        [REFUSED, () => ask(TOO_MANY, ['too-many'])],
        [/topic nowhere does not exist/, () => ask(1, ['c'], 'nowhere')],
      ],
    };
  },
  javac('java'),
);

example(
  'Spring',
  spring,
  (path) => {
    const ask = (count: number, ...more: string[]) =>
      requester(path, [...about(), String(PARTITION), String(count), SCHEMAS, ...more]);

    test('ReplyingKafkaTemplate gets its reply on the partition that it names', async () => {
      const ids = await ask(5_000);
      const { batch, partition } = await firstReply();
      expect({ ids, partition }).toEqual({ ids: expandIds(batch).map(String), partition: PARTITION });
    });

    test("a retry of another process gets the same batch, since the request's own ID is the correlation ID", async () => {
      const first = await ask(3, 'order-42');
      expect(await ask(3, 'order-42')).toEqual(first);
      const { seen } = await replies.reply('order-42');
      expect(String(seen.message.headers?.kafka_correlationId)).toBe('order-42');
    });

    return { take: (sequence, id, count) => ask(count, id, sequence), refused: [[REFUSED, () => ask(TOO_MANY)]] };
  },
  javac('spring'),
);

example('Python', python, (path) => {
  const script = (name: string, ...args: string[]) => tools.runPython(path, name, suiteServers().brokers, args);
  const ask = async (correlationId: string, count: number, ...more: string[]) => {
    const topics = ['--request-topic', realm.requestTopic, '--reply-topic', realm.replyTopic];
    const asked = ['--correlation-id', correlationId, '--count', String(count)];
    return JSON.parse((await script('request.py', ...topics, ...asked, ...more)).stdout);
  };

  test('confluent-kafka and fastavro request IDs, expand the ranges, and get the same ones again', async () => {
    const first = await ask('from-python', 5_000);
    expect(first).toEqual({ ids: await idsOf('from-python'), replayed: false });
    expect(new Set(first.ids).size).toBe(5_000);
    expect(await ask('from-python', 5_000)).toEqual({ ids: first.ids, replayed: true });
  });

  test('ledger.py reads decisions from the ledger, and finds a reply that differs', async () => {
    const { ids } = await ask('in-the-ledger', 3);
    const check = () => script('ledger.py', '--ids', '--ledger-topic', realm.ledgerTopic, realm.replyTopic);
    const said = JSON.parse((await check()).stdout);
    expect(said).toMatchObject({ faults: [], losers: 0, decided: { 'in-the-ledger': ids } });

    const { seen } = await replies.reply('in-the-ledger');
    const forged = Buffer.from(seen.message.value ?? []);
    const last = forged.indexOf('in-the-ledger') + 'in-the-ledger'.length - 1;
    forged.write('X', last);
    await realm.sendRaw([{ key: 'forged', value: forged }], realm.replyTopic);
    const stdout = expect.stringMatching(/differs from the ledger.s decision/);
    await expect(check()).rejects.toMatchObject({ code: 1, stdout });
  });

  test('a service with the client in an empty directory gets the same from the next worker as from the one that was killed', async () => {
    await using own = await Realm.create(suiteServers());
    const first = own.worker();
    await first.ready();
    for (const from of [join(tools.EXAMPLES, 'python/idalloc_client.py'), join(SUPPORT, 'clients/service.py')]) {
      copyFileSync(from, join(place, basename(from)));
    }
    const create = ['sequence', 'create', 'invoices/2027', '--format', 'INV-{number:6}'];
    expect(await runIdalloc(create, own.env)).toMatchObject({ code: 0 });
    const topics = [suiteServers().brokers.join(), own.requestTopic, own.replyTopic];
    await using service = new LineService(join(path, 'bin/python'), ['service.py', ...topics], place);

    const before = await service.call({ id: 'order-1', count: 3 });
    expect(before).toEqual({ ids: [expect.any(String), expect.any(String), expect.any(String)] });
    expect(await service.call({ sequence: 'invoices/2027', id: 'order-1', count: 2 })).toEqual({
      numbers: ['INV-000001', 'INV-000002'],
    });
    const { ids } = (await service.call({ next: 600 })) as { ids: string[] };
    expect(new Set(ids).size).toBe(600);
    await service.call({ id: 'used', count: 1 });
    expect(await service.call({ id: 'used', count: 2 })).toEqual({
      ...{ code: 'CONFLICT', retryable: false, correlation_id: 'used' },
    });

    first.kill('SIGKILL');
    const during = service.call({ id: 'order-1', count: 3 });
    await own.worker().ready();
    expect(await during).toEqual(before);
    expect(await service.call({ sequence: 'invoices/2027', id: 'order-2', count: 1 })).toEqual({
      numbers: ['INV-000003'],
    });
    expect(await service.call({ sequence: 'nothing', id: 'order-2', count: 1 })).toMatchObject({
      code: 'UNKNOWN_SEQUENCE',
    });
  });

  const onto = (replyTopic: string, ...more: string[]) => script('request.py', '--reply-topic', replyTopic, ...more);
  return {
    take: async (sequence, id, count) => (await ask(id, count, '--sequence', sequence)).numbers,
    refused: [
      [REFUSED, () => ask('too-many', TOO_MANY)],
      [/--sequence needs --correlation-id/, () => onto(realm.replyTopic, '--sequence', 'invoices/2027')],
      [/topic nowhere: .*create it/, () => script('ledger.py', '--ledger-topic', 'nowhere', realm.replyTopic)],
      [/topic nowhere: .*create it/, () => onto('nowhere')],
    ],
  };
});

example(
  'NestJS',
  nestjs,
  () => {
    const ask = (count: number, ...more: string[]) => {
      const args = ['requester.js', ...about().slice(0, 2), String(count), SCHEMAS, ...more];
      return output(process.execPath, args, place);
    };

    test("ClientKafka's request is answered on its own reply topic, and its observable completes", async () => {
      const ids = JSON.parse(await ask(5_000));
      expect(ids).toEqual(expandIds((await firstReply()).batch).map(String));
      expect(ids).toHaveLength(5_000);
    });

    test('a retry under the same request ID gets the same batch, though ClientKafka sends another correlation ID', async () => {
      const before = replies.seen.length;
      const first = await ask(3, 'order-42');
      expect(await ask(3, 'order-42')).toBe(first);
      await replies.until('both replies', (seen) => seen.length >= before + 2);
      const both = replies.seen.slice(before).map(({ message }) => message);
      expect(new Set(both.map(({ key }) => String(key))).size).toBe(2);
      for (const { headers } of both) expect(String(headers?.['idalloc-request-id'])).toBe('order-42');
    });

    return {
      take: async (sequence, id, count) => JSON.parse(await ask(count, id, sequence)),
      refused: [[REFUSED, () => ask(TOO_MANY)]],
    };
  },
  async (path) => {
    for (const file of ['package.json', 'requester.js']) {
      copyFileSync(join(tools.EXAMPLES, 'nestjs', file), join(place, file));
    }
    symlinkSync(join(path, 'node_modules'), join(place, 'node_modules'));
    await realm.createTopic(`${realm.requestTopic}.reply`, { partitions: 2 });
    replies = await realm.follow(`${realm.requestTopic}.reply`);
  },
);
