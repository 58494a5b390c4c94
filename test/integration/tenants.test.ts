import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Partitioners, type Producer } from 'kafkajs';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { batchOf, type DecodedReply, type Followed } from '../support/followed.ts';
import { type Env, Page } from '../support/page.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { testKafka } from '../support/test-kafka.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc } from '../support/worker-process.ts';

const page = new Page('how-to/pair-of-topics.md', here);

let realm: Realm;
let replies: Followed;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  [replies] = await Promise.all([realm.follow(), realm.worker().ready()]);
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** The page's commands with the names of this realm. */
function here(text: string): string {
  return text.replaceAll(/\bid\./g, `${realm.groupId}.`).replaceAll(/\bacme\b/g, `${realm.groupId}-acme`);
}

test('a tenant with its own topics is served beside the others, and has no right to their topics', async () => {
  const acme: Env = { ...realm.env, ...page.exported((command) => command.includes('acme')) };
  expect(await page.run('idalloc leases', acme)).toContain('1 of 32 worker IDs');
  expect(await page.run('idalloc topics init', acme)).toContain(`created ${acme.REQUEST_TOPIC}`);
  const rights = [
    await page.run('idalloc topics acls --principal User:acme-worker --role worker', acme),
    await page.run(
      'idalloc topics acls --principal User:acme-client --role client --reply-topic acme.replies.orders',
      acme,
    ),
  ].join('');
  expect(rights).toContain(acme.REQUEST_TOPIC);
  expect(rights).not.toMatch(new RegExp(`${realm.groupId}\\.(requests|ledger|replies)`)); // of the other tenants
  await realm.worker(acme).hasPartitions(3);
  const { stdout } = await runIdalloc(['doctor', '--json'], acme);
  const group = JSON.parse(stdout).checks.find(({ name }: { name: string }) => name === 'consumer group').detail;
  expect(group).toMatch(/-acme: Stable, 1 member, lag 0$/);
  const answer = await page.run('idalloc request --count 3 --correlation-id pair-check', acme);
  expect(answer).toContain('3 for correlation ID pair-check');
  const request = { count: 1, correlationId: Buffer.from('stray'), replyTopic: realm.replyTopic };
  await realm.sendRaw([{ key: 'stray', value: encodeIdRequest(request) }], acme.REQUEST_TOPIC);
  await realm.send([{ correlationId: 'other-check', count: 4 }]);
  const letters = await realm.follow(acme.DEAD_LETTER_TOPIC);
  await letters.until('the letter', (seen) => seen.length === 1);
  expect(String(letters.seen[0]?.message.headers?.['kafka_dlt-exception-fqcn'])).toContain('INVALID_REPLY_TOPIC');
  expect(expandIds(batchOf(await replies.reply('other-check')))).toHaveLength(4);
  expect(replies.seen.map(({ message }) => String(message.key))).not.toContain('stray');
  expect(await page.run('idalloc audit --ledger-topic id.ledger', acme)).toMatch(/no problems found/);
});

const FLOOD = 2_000;
const FLOOD_COUNT = 100_000;
const PROBES = 200;
const PROBE_EVERY_MS = 20;
const ERROR_LEVEL = 50;

/** A shared deployment of twelve partitions: replies to the flood go to acme's topic, measured ones to beta's. */
class Shared implements AsyncDisposable {
  readonly own: Realm;
  readonly acme: string;
  readonly beta: string;
  readonly #stack = new AsyncDisposableStack();
  readonly #sender: Producer;
  /** Replies that came between the first and the last request of the last measurement. */
  answeredMeanwhile = 0;
  #probed = 0;
  #flooded = 0;

  private constructor(own: Realm, sender: Producer) {
    this.own = this.#stack.use(own);
    this.#sender = sender;
    this.#stack.defer(() => sender.disconnect());
    [this.acme, this.beta] = [`${own.groupId}.replies.acme.x`, `${own.groupId}.replies.beta.x`];
  }

  static async open(): Promise<Shared> {
    const sender = testKafka(suiteServers().brokers).producer({ createPartitioner: Partitioners.DefaultPartitioner });
    const shared = new Shared(await Realm.create(suiteServers(), { partitions: 12 }), sender);
    await sender.connect();
    for (const topic of [shared.acme, shared.beta]) await shared.own.createTopic(topic, { partitions: 3 });
    return shared;
  }

  /** Uses a separate sender, so that measured requests do not queue behind the flood before they are sent. */
  async flood(requests: number): Promise<void> {
    const messages = Array.from({ length: requests }, () => {
      const correlationId = Buffer.from(`flood-${this.#flooded++}`);
      const value = encodeIdRequest({ count: FLOOD_COUNT, correlationId, replyTopic: this.acme });
      return { key: correlationId, value };
    });
    await this.#sender.send({ topic: this.own.requestTopic, messages });
  }

  /** The 99th percentile of the latency of beta's small requests, which are sent one by one. */
  async p99(answers: Followed, beside: () => Promise<void> = async () => {}): Promise<number> {
    const sentMs = new Map<string, number>();
    const sent: Promise<void>[] = [];
    const before = answers.seen.length;
    for (let i = 0; i < PROBES; i += 1) {
      const correlationId = `probe-${this.#probed++}`;
      sentMs.set(correlationId, performance.now());
      sent.push(this.own.send([{ correlationId, count: 10, replyTopic: this.beta }]));
      sent.push(beside());
      await new Promise((resolve) => setTimeout(resolve, PROBE_EVERY_MS)); // a steady rate is what is measured
    }
    await Promise.all(sent);
    this.answeredMeanwhile = answers.seen.length - before;
    const all = await answers.replies(this.#probed, 120_000);
    const tookMs = [...sentMs].map(([name, atMs]) => firstOf(all, name).seen.atMs - atMs);
    return tookMs.toSorted((one, other) => one - other)[Math.floor(PROBES * 0.99) - 1] ?? Number.NaN;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}

function firstOf(all: ReadonlyMap<string, readonly DecodedReply[]>, name: string): DecodedReply {
  const [first] = all.get(name) ?? [];
  if (first === undefined) throw new Error(`no reply to ${name}`);
  return first;
}

async function measured(
  shared: Shared,
  env: Env,
  annotate: Parameters<typeof report>[0],
  flooded: (answers: Followed) => Promise<number>,
) {
  const [answers, worker] = [await shared.own.follow(shared.beta), shared.own.worker(env)];
  await worker.ready();
  await shared.p99(answers); // warms up code and connections
  const aloneMs = await shared.p99(answers);
  const besideMs = await flooded(answers);
  await report(annotate, `p99 of others ${Math.round(aloneMs)} ms alone, ${Math.round(besideMs)} ms beside the flood`);
  return { worker };
}

test('2,000 requests for 100,000 IDs each, 49 s of work, do not delay small requests behind them', async ({
  annotate,
}) => {
  await using shared = await Shared.open();
  await measured(shared, {}, annotate, async (answers) => {
    await shared.flood(FLOOD);
    const besideMs = await shared.p99(answers);
    // All small requests were sent after the flood, and have their replies before it has.
    expect(await shared.own.records(shared.acme)).toBeLessThan(FLOOD);
    return besideMs;
  });
});

test('quotas refuse a continuing flood, and other tenants are served beside it', async ({ annotate }) => {
  await using shared = await Shared.open();
  const prefix = `${shared.own.groupId}.replies.acme.`;
  const { worker } = await measured(shared, { QUOTAS: `${prefix} 100000 50` }, annotate, (answers) =>
    shared.p99(answers, () => shared.flood(FLOOD / PROBES)),
  );
  expect(shared.answeredMeanwhile).toBeGreaterThan(0);
  const answered = await (await shared.own.follow(shared.acme)).replies(FLOOD, 60_000);
  const refused = [...answered].filter(([, [first]]) => first !== undefined && 'error' in first.reply);
  expect(new Set(refused.map(([, [first]]) => first && 'error' in first.reply && first.reply.error.code))).toEqual(
    new Set(['QUOTA_EXCEEDED']),
  );
  expect(refused.length).toBeGreaterThan(FLOOD * 0.9);
  expect(await worker.metric(`idalloc_quota_exceeded_total{prefix="${prefix}"}`)).toBe(refused.length);
  expect(worker.lines.filter(({ prefix: of }) => of === prefix).length).toBeLessThan(5);
});

test('quotas from a file change without a restart, and an invalid text leaves the last valid ones', async () => {
  await using shared = await Shared.open();
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-quotas-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const file = join(dir, 'quotas');
  const prefix = `${shared.own.groupId}.replies.acme.`;
  const replace = (text: string) => {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  replace('# none yet');
  const worker = shared.own.worker({ QUOTAS_FILE: file });
  await worker.ready();
  const answers = await shared.own.follow(shared.acme);
  let asked = 0;
  /** The error code of a request for more than a second's quota; undefined if it is served. */
  const ask = async () => {
    const correlationId = `ask-${asked++}`;
    await shared.own.send([{ correlationId, count: 5_000, replyTopic: shared.acme }]);
    const { reply } = await answers.reply(correlationId);
    return 'error' in reply ? reply.error.code : undefined;
  };
  expect([await ask(), await ask()]).toEqual([undefined, undefined]);
  replace(`${prefix} 1 -`);
  await expect.poll(ask).toBe('QUOTA_EXCEEDED');
  replace('elsewhere. 1 -');
  const { problem } = await worker.line(({ variable, level }) => variable === 'QUOTAS_FILE' && level === ERROR_LEVEL);
  expect(problem).toContain("has 'elsewhere.', which matches no allowed reply topic");
  expect(await ask()).toBe('QUOTA_EXCEEDED');
  replace('# none any more');
  await expect.poll(ask).toBeUndefined();
});

test('a request over its quota gets its batch when it is sent again later, as the client library does, and a known request at any time', async () => {
  await using shared = await Shared.open();
  await shared.own.worker({ QUOTAS: `${shared.own.groupId}.replies.acme. 1000 -` }).ready();
  const answers = await shared.own.follow(shared.acme);
  const ask = (correlationId: string) => shared.own.send([{ correlationId, count: 5_000, replyTopic: shared.acme }]);
  await ask('first');
  const first = batchOf(await answers.reply('first'));
  await ask('second');
  const second = await answers.reply('second');
  const waitMs = String(second.seen.message.headers?.['idalloc-retry-after-ms']);
  const message = expect.stringContaining(`after ${waitMs} ms`);
  expect(second.reply).toMatchObject({ error: { code: 'QUOTA_EXCEEDED', message } });
  await ask('first');
  expect(batchOf(await answers.reply('first', 1))).toEqual(first);
  let tries = 0;
  await expect
    .poll(
      async () => {
        await ask('second');
        tries += 1;
        return 'batch' in (await answers.reply('second', tries)).reply;
      },
      { timeout: 60_000, interval: 500 },
    )
    .toBe(true);
  const attempts: number[] = [];
  await using client = await IdClient.connect({
    ...{ brokers: suiteServers().brokers, requestTopic: shared.own.requestTopic, replyTopic: shared.acme },
    ...{ prefetch: false, hooks: { onRequest: ({ attempt }) => void attempts.push(attempt) } },
  });
  await client.request({ count: 5_000, timeoutMs: 60_000 }); // it uses up the quota of the next seconds
  const before = attempts.length;
  const asked = { count: 1_000, correlationId: 'third' };
  await expect(client.request({ ...asked, timeoutMs: 500 })).rejects.toMatchObject({
    ...{ name: 'RequestRefused', code: 'QUOTA_EXCEEDED', retryAfterMs: expect.any(Number), ...asked },
  });
  const third = await client.request({ ...asked, timeoutMs: 60_000 });
  expect(expandIds(third.batch)).toHaveLength(1_000);
  // One for the caller that had no time, and two at least for the one that had.
  expect(attempts.slice(before, before + 3)).toEqual([1, 1, 2]);
});
