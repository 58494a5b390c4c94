import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempDisposableSync, readdirSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { countIds, expandIds } from '../../src/codec/id-batch.ts';
import { decodeIdReply } from '../../src/codec/id-reply.ts';
import { FIRST_SENT } from '../../src/codec/request-headers.ts';
import * as tools from '../support/example-tools.ts';
import { batchOf, decodeReply, type Followed } from '../support/followed.ts';
import { expectInvoices, type Take } from '../support/invoices.ts';
import { LineService } from '../support/line-service.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const TIMEOUT_MS = 300_000;
const PARTITION = 2;
const SCHEMAS = join(ROOT, 'schemas');
const SUPPORT = join(ROOT, 'test/support');
const TOO_MANY = 100_001;
/** How often each copied client is asked for the IDs of this order. */
const ORDER_1_CALLS = 3;
/** How many IDs their buffers have in memory. */
const BUFFERED = 500;
const REFUSED = /INVALID_COUNT: count 100001 is above 100000/;
const run = promisify(execFile);

const [kcat, go, java, spring, python, nestjs] = await Promise.all([
  tools.kcat(),
  tools.goPrograms(),
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

async function javac(libraries: string, directory: string, files: readonly string[]): Promise<void> {
  await output('javac', ['-cp', join(libraries, '*'), '-d', directory, ...files]);
}

async function requester(path: string, args: readonly string[]): Promise<string[]> {
  return (await output('java', ['-cp', `${place}:${join(path, '*')}`, 'Requester', ...args])).split('\n');
}

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
  (path) => javac(path, place, [join(tools.EXAMPLES, 'spring/Requester.java')]),
);

describe.skipIf('unavailable' in python)("the audit in Python, which knows none of idalloc's code", () => {
  const stack = new AsyncDisposableStack();
  const { path } = tools.skipping(python);
  const audit = (ledgerTopic: string) =>
    tools.runPython(path, 'ledger.py', suiteServers().brokers, [
      '--ids',
      '--ledger-topic',
      ledgerTopic,
      realm.replyTopic,
    ]);

  beforeAll(async () => {
    realm = stack.use(await Realm.create(suiteServers()));
    replies = await realm.follow();
    await realm.worker().ready();
  });
  afterAll(() => stack.disposeAsync());

  test('reads decisions from the ledger, and finds a reply that differs', async () => {
    await realm.send([{ correlationId: 'in-the-ledger', count: 3 }]);
    const ids = await idsOf('in-the-ledger');
    const said = JSON.parse((await audit(realm.ledgerTopic)).stdout);
    expect(said).toMatchObject({ faults: [], losers: 0, decided: { 'in-the-ledger': ids } });

    const { seen } = await replies.reply('in-the-ledger');
    const forged = Buffer.from(seen.message.value ?? []);
    const last = forged.indexOf('in-the-ledger') + 'in-the-ledger'.length - 1;
    forged.write('X', last);
    await realm.sendRaw([{ key: 'forged', value: forged }], realm.replyTopic);
    const stdout = expect.stringMatching(/differs from the ledger.s decision/);
    await expect(audit(realm.ledgerTopic)).rejects.toMatchObject({ code: 1, stdout });
  });

  test('reports a topic that does not exist', async () => {
    await expect(audit('nowhere')).rejects.toThrow(/topic nowhere: .*create it/);
  });
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

/** A service in a language, in the directory `place`, to which the client was copied; and where its tool is. */
interface Copied {
  readonly tool: tools.Tool;
  readonly start: (path: string, place: string, args: readonly string[]) => Promise<LineService>;
}

/** The client and its buffer. */
const IN_JAVA = ['IdallocClient.java', 'IdallocBuffer.java'].map((file) => join(tools.EXAMPLES, 'java', file));

const COPIED: Readonly<Record<string, Copied>> = {
  Go: { tool: go, start: async (path, empty, args) => new LineService(join(path, 'service'), args, empty) },
  Java: {
    tool: java,
    start(path, empty, args) {
      copyInto(empty, ...IN_JAVA, join(SUPPORT, 'clients/Service.java'));
      return javaService('Service', path, empty, args);
    },
  },
  Spring: {
    tool: spring,
    start(path, empty, args) {
      const service = ['clients/Service.java', 'clients/SpringService.java'].map((file) => join(SUPPORT, file));
      copyInto(empty, ...IN_JAVA, join(tools.EXAMPLES, 'spring/IdallocConfiguration.java'), ...service);
      return javaService('SpringService', path, empty, args);
    },
  },
  Python: {
    tool: python,
    async start(path, empty, args) {
      copyInto(empty, join(tools.EXAMPLES, 'python/idalloc_client.py'), join(SUPPORT, 'clients/service.py'));
      return new LineService(join(path, 'bin/python'), ['service.py', ...args], empty);
    },
  },
};

/** Compiles what is in the directory, unless that was done, and starts its class `main`. */
async function javaService(main: string, libraries: string, directory: string, args: readonly string[]) {
  const files = readdirSync(directory).map((file) => join(directory, file));
  if (!files.some((file) => file.endsWith('.class'))) await javac(libraries, directory, files);
  const quickly = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'];
  const all = [...quickly, '-cp', `${directory}:${join(libraries, '*')}`, main, ...args];
  return new LineService('java', all, directory);
}

function copyInto(directory: string, ...files: readonly string[]): void {
  for (const file of files) copyFileSync(file, join(directory, basename(file)));
}

const languages = Object.entries(COPIED).map(([name, { tool, start }]) => ({ name, start, ...tools.skipping(tool) }));
const usable = languages.filter(({ why }) => why === undefined);

describe.skipIf(usable.length === 0)(`the copied clients${languages.map(({ title }) => title).join('')}`, () => {
  const stack = new AsyncDisposableStack();
  const services = new Map<string, LineService>();
  const directories = new Map<string, string>();
  let requests: Followed;
  let worker: WorkerProcess;

  const start = async (replyTopic: string) => {
    const args = about(replyTopic);
    const started = usable.map(async ({ name, start, path }) => {
      const empty = directories.get(name) ?? stack.use(mkdtempDisposableSync(join(tmpdir(), 'idalloc-copied-'))).path;
      directories.set(name, empty);
      return [name, stack.use(await start(path, empty, args))] as const;
    });
    return new Map(await Promise.all(started));
  };

  beforeAll(async () => {
    realm = stack.use(await Realm.create(suiteServers(), { env: SHORT_SESSION }));
    [replies, requests] = await Promise.all([realm.follow(), realm.follow(realm.requestTopic)]);
    worker = realm.worker();
    await worker.ready();
    const create = ['sequence', 'create', 'invoices/2027', '--format', 'INV-{number:6}'];
    expect(await runIdalloc(create, realm.env)).toMatchObject({ code: 0 });
    for (const [name, service] of await start(realm.replyTopic)) services.set(name, service);
  });
  afterAll(() => stack.disposeAsync());

  interface Outcome {
    readonly values?: readonly string[];
    readonly code?: string;
  }

  const each = async (call: object, called = services) => {
    const outcomes = [...called].map(async ([name, service]) => [name, (await service.call(call)) as Outcome] as const);
    return new Map(await Promise.all(outcomes));
  };

  /** What all of them get, which must be the same. */
  const agreed = async (call: object, called = services) => {
    const outcomes = await each(call, called);
    const [first] = outcomes.values();
    for (const [name, outcome] of outcomes) expect({ [name]: outcome }).toEqual({ [name]: first });
    return first;
  };

  test('get the same IDs for the same order, and the same numbers, in every language', async () => {
    const ids = await agreed({ id: 'order-1', count: 5_000 });
    expect(ids).toEqual({ values: await idsOf('order-1') });
    expect(ids?.values).toHaveLength(5_000);
    const numbers = await agreed({ sequence: 'invoices/2027', id: 'order-1', count: 2 });
    expect(numbers).toEqual({ values: ['INV-000001', 'INV-000002'] });
  });

  test('get no ID twice by many calls at once', async () => {
    const outcomes = [...(await each({ many: 50, count: 3 })).values()].flatMap(({ values = [] }) => values);
    expect(new Set(outcomes).size).toBe(150 * services.size);
  });

  test('have a buffer', async () => {
    const outcomes = [...(await each({ next: 3 * BUFFERED })).values()].flatMap(({ values = [] }) => values);
    expect(new Set(outcomes).size).toBe(3 * BUFFERED * services.size);
  });

  test('say which refusals are final', async () => {
    await agreed({ id: 'used', count: 1 });
    const final = (code: string, id: string) => ({ code, retryable: false, correlation_id: id });
    expect(await agreed({ id: 'used', count: 2 })).toEqual(final('CONFLICT', 'used'));
    expect(await agreed({ id: 'too-many', count: TOO_MANY })).toEqual(final('INVALID_COUNT', 'too-many'));
    expect(await agreed({ sequence: 'nothing', id: 'a', count: 1 })).toEqual(final('UNKNOWN_SEQUENCE', 'a'));
    expect(await agreed({ id: 'long'.repeat(65), count: 1 })).toMatchObject({ code: 'INVALID_CORRELATION_ID' });
  });

  test('go on without a worker while they have IDs, say that a call may be repeated, and get the same from the next one', async () => {
    const before = await agreed({ id: 'order-1', count: 5_000 });
    worker.kill('SIGKILL');
    const late = { id: 'late', count: 2 };
    const silent = { code: 'NO_REPLY', retryable: true, correlation_id: 'late' };
    expect(await agreed({ ...late, timeout_ms: 500 })).toEqual(silent);
    const inMemory = [...(await each({ next: 1 })).values()].flatMap(({ values = [] }) => values);
    expect(new Set(inMemory).size).toBe(services.size);
    const empty = { code: 'BUFFER_EMPTY', retryable: true, correlation_id: '' };
    expect(await agreed({ next: 2 * BUFFERED, timeout_ms: 500 })).toEqual(empty);
    const during = agreed({ id: 'order-1', count: 5_000 });
    worker = realm.worker();
    await worker.ready();
    expect(await during).toEqual(before);
    expect((await agreed(late))?.values).toHaveLength(2);
    for (const { values } of (await each({ next: BUFFERED })).values()) expect(values).toHaveLength(BUFFERED);
    const next = await agreed({ sequence: 'invoices/2027', id: 'order-2', count: 1 });
    expect(next).toEqual({ values: ['INV-000003'] });
  });

  test('name the time of the first record in each later one, and change nothing else', async () => {
    await realm.readToEnd(requests);
    const sent = requests.seen.filter(({ message }) => String(message.key) === 'order-1').map(({ message }) => message);
    const [later, first] = [
      sent.filter(({ headers }) => isLater(headers)),
      sent.filter(({ headers }) => !isLater(headers)),
    ];
    expect(first).toHaveLength(ORDER_1_CALLS * services.size);
    expect(later.length).toBeGreaterThan(0);
    const content = ({ headers: { [FIRST_SENT]: _, ...headers } = {}, value }: (typeof sent)[number]) =>
      JSON.stringify({ ...Object.fromEntries(Object.entries(headers).map(([name, of]) => [name, String(of)])), value });
    const known = new Set(first.map(content));
    for (const message of later) expect(known).toContain(content(message));
  });

  test('end what still waits when they are closed, and exit', async () => {
    worker.kill('SIGKILL');
    await agreed({ begin: 'waits' });
    const closed = { code: 'CLIENT_CLOSED', retryable: false, correlation_id: 'waits' };
    expect(await agreed({ close: true })).toEqual(closed);
    for (const [name, service] of services) expect({ [name]: await service.end() }).toEqual({ [name]: 0 });
  });

  test('fail at the start if the reply topic does not exist', async () => {
    expect(await agreed({}, await start('nowhere'))).toMatchObject({ code: 'TOPIC_INVALID', retryable: false });
  });
});

const isLater = (headers: object | undefined) => headers !== undefined && FIRST_SENT in headers;
