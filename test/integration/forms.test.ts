import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ObjectId } from 'bson';
import KSUID from 'ksuid';
import { decodeTime } from 'ulid';
import { validate, version } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { decode, expandIds, format, formKeys, IdClient, type IdForm, parse } from '../../src/client/index.ts';
import { FORM_NAMES } from '../../src/codec/form/form.ts';
import { KEY_1, KEY_2 } from '../support/form-samples.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const CORRELATION_ID = 'order-4711';
/** A worker checks for new keys once a second. */
const WITHIN = { timeout: 60_000 };
const OPTIONS = { keys: formKeys(KEY_1), prefix: 'ord' };

const TOKEN = 'token-of-the-forms';

let realm: Realm;
let worker: WorkerProcess;
let folder: string;
let env: Readonly<Record<string, string>>;
let id: bigint;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'idalloc-forms-'));
  writeFileSync(join(folder, 'keys'), `${KEY_1}\n`);
  const keys = { FORM_KEY_FILE: join(folder, 'keys') };
  realm = await Realm.create(suiteServers());
  worker = realm.worker({ ...keys, API_TOKEN: `forms:${TOKEN} keyed-decode` });
  env = { ...realm.env, ...keys };
  await worker.ready();
  const { requestTopic, replyTopic } = realm;
  const { brokers } = suiteServers();
  await using client = await IdClient.connect({ brokers, requestTopic, replyTopic, prefetch: false });
  const { batch } = await client.request({ count: 1, correlationId: CORRELATION_ID });
  const [first] = expandIds(batch);
  if (first === undefined) throw new TypeError('a batch has at least one ID');
  id = first;
});

afterAll(async () => {
  await realm?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

const prefixOf = (form: IdForm) => (form === 'prefixed' ? ['--prefix', 'ord'] : []);
const write = (form: IdForm): string => format(id, form, OPTIONS);

async function ask(path: string): Promise<{ value_string: string; value_form: string }> {
  const response = await fetch(`${await worker.api()}/api/v1/ids/${path}`, {
    headers: { authorization: `Bearer ${TOKEN}` },
  });
  return (await response.json()) as { value_string: string; value_form: string };
}

test.each(FORM_NAMES)(
  'client, command and HTTP write the ID of a reply as the same text in form %s, and read it back',
  async (form) => {
    const text = write(form);
    expect(parse(text, form, OPTIONS)).toBe(id);

    const options = ['--correlation-id', CORRELATION_ID, '--reply-topic', realm.replyTopic, '--form', form, '--json'];
    const [requested, decoded] = await Promise.all([
      runIdalloc(['request', ...options, ...prefixOf(form)], env),
      runIdalloc(['decode', '--form', form, ...prefixOf(form), '--json', text], env),
    ]);
    expect(JSON.parse(requested.stdout)).toMatchObject({
      ids: [{ value_string: String(id), value_form: text }],
      replayed: true,
    });
    expect(JSON.parse(decoded.stdout).ids[0].value_string).toBe(String(id));

    const prefix = form === 'prefixed' ? '&prefix=ord' : '';
    expect(await ask(`${id}?as=${form}${prefix}`)).toMatchObject({ value_string: String(id), value_form: text });
    expect(await ask(`${encodeURIComponent(text)}?form=${form}${prefix}`)).toMatchObject({ value_string: String(id) });
  },
);

test('trace finds the request of a text in a form', async () => {
  for (const text of [write('ulid'), write('prefixed'), write('number')]) {
    const { code, stdout, stderr } = await runIdalloc(['trace', '--json', text], env);
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ id: String(id), correlation_id: CORRELATION_ID, index: 0 });
  }
});

test("the schemes' own libraries read the texts, with the time of the ID", () => {
  const { timestampMs } = decode(id);
  const seconds = new Date(Math.floor(timestampMs / 1000) * 1000);
  const [four, seven] = [write('uuid4'), write('uuid7')];
  expect([validate(four), version(four), validate(seven), version(seven)]).toEqual([true, 4, true, 7]);
  expect(Number.parseInt(seven.replaceAll('-', '').slice(0, 12), 16)).toBe(timestampMs);
  expect(decodeTime(write('ulid'))).toBe(timestampMs);
  expect(KSUID.parse(write('ksuid')).date).toEqual(seconds);
  expect(new ObjectId(write('objectid')).getTimestamp()).toEqual(seconds);
});

test('new IDs over HTTP come in a form, and a worker uses a new key from its file without a restart', async () => {
  const keys = formKeys(`${KEY_2}\n${KEY_1}`);
  /** The numbers of the keys with which new IDs in form `number` are written; each text must decode to its ID. */
  const keyNumbers = async () => {
    const response = await fetch(`${await worker.api()}/api/v1/ids?count=20&form=number`, {
      headers: { authorization: `Bearer ${TOKEN}` },
    });
    const { ids } = (await response.json()) as { ids: { value_string: string; value_form: string }[] };
    const values = ids.map(({ value_form: text }) => String(parse(text, 'number', { keys })));
    expect(values).toEqual(ids.map(({ value_string: value }) => value));
    return [...new Set(ids.map(({ value_form: text }) => text.charAt(0)))];
  };
  expect(await keyNumbers()).toEqual(['1']);
  writeFileSync(join(folder, 'keys'), `${KEY_2}\n${KEY_1}\n`);
  await expect.poll(keyNumbers, WITHIN).toEqual(['2']);
  expect((await ask(`${write('number')}?form=number`)).value_string).toBe(String(id));
  const logged = JSON.stringify(worker.lines);
  expect(logged).not.toMatch(/0123456789abcdef|fedcba9876543210/);
});
