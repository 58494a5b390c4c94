import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DEAD_LETTER_HEADERS } from '../../src/codec/dead-letter.ts';
import { asConfluent, confluentSchemaId } from '../../src/codec/framing.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { pythonEnvironment, runPython, skipping } from '../support/example-tools.ts';
import type { Followed, Seen } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { type RegistryProcess, startRegistry } from '../support/registry-process.ts';
import { suiteServers } from '../support/servers.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const noJava = whyNoProcesses('maven');
const python = skipping(await pythonEnvironment());
const NEVER_REGISTERED = 99_999;
let directory: string;
let registry: RegistryProcess;
let realm: Realm;
let worker: WorkerProcess;
let replies: Followed;
let letters: Followed;
let requestId: number;
let replyId: number;
let numbersReplyId: number;

function framed(correlationId: string, schemaId: number) {
  const { replyTopic } = realm;
  const plain = encodeIdRequest({ count: 3, correlationId: Buffer.from(correlationId), replyTopic });
  return { key: correlationId, value: asConfluent(schemaId, plain), partition: 0 };
}

function codeOf({ message }: Seen): string {
  return String(message.headers?.[DEAD_LETTER_HEADERS.code]);
}

describe.skipIf(noJava !== undefined)(`a schema registry${noJava === undefined ? '' : `: ${noJava}`}`, () => {
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'idalloc-registry-'));
    registry = await startRegistry(directory);
    realm = await Realm.create(suiteServers(), { env: { SCHEMA_REGISTRY_URL: registry.url } });
    [replies, letters] = await Promise.all([realm.follow(), realm.follow(realm.deadLetterTopic)]);
  });
  afterAll(async () => {
    await realm?.[Symbol.asyncDispose]();
    await registry?.stop();
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  });

  test('`topics init` registers all schemas, with the same ids when it runs again', async () => {
    const init = async () => (await realm.command(['topics', 'init'])).schemas;
    const registered = await init();
    expect(Object.keys(registered)).toEqual([`${realm.requestTopic}-value`, 'idalloc.IdReply', 'idalloc.IdReply-2']);
    expect(await init()).toEqual(registered);
    [requestId = 0, replyId = 0, numbersReplyId = 0] = Object.values(registered as Record<string, number>);
  });

  test('`topics check` and `doctor` report schemas that the registry lacks, and a registry that is down', async () => {
    const check = (env: Readonly<Record<string, string>>) => runIdalloc(['topics', 'check'], { ...realm.env, ...env });
    expect(await check({})).toMatchObject({ code: 0 });
    const lacking = expect.stringContaining(`fault registry: no schema of this version for ${realm.ledgerTopic}-value`);
    const swapped = { REQUEST_TOPIC: realm.ledgerTopic, LEDGER_TOPIC: realm.requestTopic };
    expect(await check(swapped)).toMatchObject({ code: 1, stdout: lacking });
    const away = { SCHEMA_REGISTRY_URL: 'http://127.0.0.1:1' };
    expect(await check(away)).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/fault registry: .*can't be used/),
    });
    const doctor = await runIdalloc(['doctor'], { ...realm.env, ...away });
    expect(doctor).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/fault +schema registry http:.*can't be used/),
    });
  });

  test('`topics init` refuses a subject that already has another schema, with exit code 1', async () => {
    const REQUEST_TOPIC = `${realm.requestTopic}.taken`;
    const other = { schema: '{"type":"record","name":"Other","fields":[{"name":"x","type":"string"}]}' };
    const call = (method: string, path: string, body: object) =>
      fetch(`${registry.url}/${path}`, {
        method,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    expect((await call('POST', `subjects/${REQUEST_TOPIC}-value/versions`, other)).status).toBe(200);
    await call('PUT', `config/${REQUEST_TOPIC}-value`, { compatibility: 'BACKWARD' });
    const end = await runIdalloc(['topics', 'init'], { ...realm.env, REQUEST_TOPIC });
    expect(end).toMatchObject({ code: 1, stderr: expect.stringMatching(/^SCHEMA_INCOMPATIBLE: .*taken-value/) });
  });

  test('a request is answered in its own framing, Confluent or ours; an unknown schema id makes it a dead letter', async () => {
    worker = realm.worker();
    await worker.ready();
    await realm.sendRaw([framed('framed', requestId), framed('nobody-knows', NEVER_REGISTERED)]);
    await realm.send([{ correlationId: 'plain', count: 2, partition: 0 }]);
    const answer = await replies.reply('framed');
    expect(confluentSchemaId(answer.seen.message.value ?? Buffer.of())).toBe(replyId);
    expect(answer.reply).toMatchObject({ batch: { datacenterId: 4 } });
    const plain = await replies.reply('plain');
    expect(confluentSchemaId(plain.seen.message.value ?? Buffer.of())).toBeUndefined();
    await letters.until('the dead letter', (seen) => seen.length > 0);
    expect(letters.seen.map(codeOf)).toEqual(['UNKNOWN_SCHEMA']);
  });

  test.skipIf(python.why !== undefined)(
    `the Python example reads replies in both framings${python.title}`,
    async () => {
      const args = ['--ids', '--ledger-topic', realm.ledgerTopic, realm.replyTopic];
      const { stdout } = await runPython(python.path, 'ledger.py', suiteServers().brokers, args);
      expect(JSON.parse(stdout)).toMatchObject({ faults: [], replies: 2, decided: { framed: { length: 3 } } });
    },
  );

  test('numbers of a sequence come in the framing of the request, under the schema that has them', async () => {
    expect((await runIdalloc(['sequence', 'create', 'invoices'], realm.env)).code).toBe(0);
    const { replyTopic } = realm;
    const versions = `${registry.url}/subjects/${realm.requestTopic}-value/versions/2`;
    const { id: wideId } = (await (await fetch(versions)).json()) as { id: number };
    const body = { count: 2, correlationId: Buffer.from('numbered'), replyTopic, sequence: 'invoices' };
    await realm.sendRaw([{ key: 'invoices', value: asConfluent(wideId, encodeIdRequest(body)), partition: 0 }]);
    const { seen, reply } = await replies.reply('numbered');
    expect(confluentSchemaId(seen.message.value ?? Buffer.of())).toBe(numbersReplyId);
    expect(reply).toMatchObject({ numbers: { sequence: 'invoices', first: 1, count: 2 } });
    const schema = await (await fetch(`${registry.url}/schemas/ids/${numbersReplyId}`)).json();
    expect((schema as { schema: string }).schema).toContain('SequenceBatch');
  });

  test('`audit` reads replies in both framings', async () => {
    expect(await realm.command(['audit'])).toMatchObject({ findings: [] });
  });

  test('while the registry is down, known ids and other partitions are served, and a new id waits until it is back', async () => {
    process.kill(registry.pid, 'SIGSTOP');
    try {
      await realm.sendRaw([framed('known', requestId), framed('waiting', NEVER_REGISTERED + 1)]);
      await replies.reply('known');
      await worker.line(({ code }) => code === 'SCHEMA_REGISTRY_UNAVAILABLE');
      await realm.send([
        { correlationId: 'behind', count: 1, partition: 0 },
        { correlationId: 'beside', count: 1, partition: 1 },
      ]);
      await replies.reply('beside');
      expect(replies.seen.some(({ message }) => String(message.key) === 'behind')).toBe(false);
    } finally {
      process.kill(registry.pid, 'SIGCONT');
    }
    await replies.reply('behind');
    await letters.until('both dead letters', (seen) => seen.length === 2);
    expect(letters.seen.map(codeOf)).toEqual(['UNKNOWN_SCHEMA', 'UNKNOWN_SCHEMA']);
  });
});
