import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli } from '../../src/cli/program.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { VARIABLES } from '../../src/config/variables.ts';
import { format } from '../../src/ids/ids.ts';
import { curl } from '../support/curl.ts';
import { blockCommands, readPage, type ShownCommand } from '../support/docs.ts';
import type { Followed } from '../support/followed.ts';
import { idFor } from '../support/home.ts';
import { Realm, STEADY_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { ELSEWHERE, FOLLOWED, UNTESTED } from '../support/shown-commands.ts';
import { misfit } from '../support/shown-output.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const REQUESTS = 30;
/** Commands whose output depends on nothing but their arguments. */
const EXACT = /^idalloc (decode|range) /;
/** The characters that erase a progress bar. */
const WIPE = '\r\u001b[K';

let realm: Realm;
let worker: WorkerProcess;
let serves = false;
let orders: string;
/** The worker ID of the worker that a replay stopped. */
let workerId: string;
let batchOfOrder: Followed;
/** The place of the newest dead letter for an undeliverable reply. */
let undeliverable: string;
/** The output of each command so far, by the page, the command and the output that the page shows. */
const printed = new Map<string, string>();

beforeAll(async () => {
  // A short reservation, since a worker waits for it after a rebuild; a long lease, so that a slow machine keeps it.
  realm = await Realm.create(suiteServers(), {
    apiReplies: true,
    env: { ...STEADY_LEASE, FORM_KEY: `1:${'5e'.repeat(32)}` },
  });
  orders = `${realm.env.REPLY_TOPIC_PREFIX}orders`;
});

afterAll(() => realm?.[Symbol.asyncDispose]());

interface Outcome {
  readonly code: number;
  readonly text: string;
}

/** What prepares a command so that it can print what its page shows. */
interface Scene {
  readonly before?: () => Promise<unknown>;
  readonly after?: () => Promise<unknown>;
  /** The expected exit code, if not 0. */
  readonly code?: number;
  /** Turns the page's arguments into those of this run. */
  readonly args?: (args: readonly string[]) => Promise<readonly string[]>;
  /** Called when the output of the running command matches. */
  readonly when?: readonly [RegExp, () => void];
}

/** Starts the one worker that the pages' output shows, unless an earlier page left it running. */
const startWorker = async () => {
  if (serves) return;
  worker = realm.worker();
  serves = true;
  await worker.ready();
};

const stopWorker = async () => {
  serves = false;
  await worker.stop();
};

const tracing: Scene = { args: async () => ['trace', String((await batchOf('order-4711')).ranges[0]?.first)] };

/** Scenes by page and command. */
const SCENES: Readonly<Record<string, Readonly<Record<string, Scene>>>> = {
  'docs/how-to/client.md': {
    'idalloc topics init --reply-topic id.replies.orders': {
      args: async () => ['topics', 'init', '--reply-topic', orders],
      after: startWorker,
    },
  },
  'docs/reference/cli.md': {
    'idalloc request --count 1000 --correlation-id order-4711 --json': { after: serveOrders },
    'idalloc audit': { before: forge, after: () => realm.admin.deleteTopics({ topics: [forgedTopic()] }), code: 1 },
    'idalloc trace 117661231645038394': tracing,
    'idalloc replay --from 2h': {
      before: async () => {
        workerId = await heldWorkerId();
        await stopWorker();
      },
      when: [
        /restart the workers now/,
        () => {
          // The same one, since `leases` also lists those that were used before.
          worker = realm.worker({ WORKER_ID: workerId });
          serves = true;
        },
      ],
    },
    'idalloc leases evict 25 --yes': {
      args: async () => ['leases', 'evict', await heldWorkerId(), '--yes'],
      // Another worker ID takes an evicted worker a while.
      after: () => stopWorker().then(startWorker),
    },
    'idalloc deadletters list': { before: async () => emptyDeadLetters().then(spoilTwo) },
    'idalloc deadletters show 0:0': { args: async () => ['deadletters', 'show', undeliverable] },
    'idalloc deadletters resend 0:0 --yes': {
      args: async () => ['deadletters', 'resend', undeliverable, '--yes'],
    },
    'idalloc namespace rebuild': { before: stopWorker, after: startWorker },
    'idalloc topics check': {
      before: () => realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', '3600000'),
      after: () => realm.setTopicConfig(realm.ledgerTopic, 'retention.ms', '93600000'),
      code: 1,
    },
  },
  'docs/operations/running.md': { 'idalloc worker': { before: stopWorker } },
  'docs/how-to/rolling-upgrade.md': { 'idalloc worker': { before: stopWorker } },
  'docs/reference/forms.md': {
    'idalloc trace 01a1fecb-c85a-7038-8006-f39ff4627d47': {
      args: async () => ['trace', format((await batchOf('order-4711')).ranges[0]?.first ?? 0n, 'uuid7')],
    },
  },
  'docs/how-to/rebuild.md': { 'idalloc namespace rebuild': { before: stopWorker, after: startWorker } },
};

function forgedTopic(): string {
  return `${realm.env.REPLY_TOPIC_PREFIX}billing`;
}

async function batchOf(correlationId: string) {
  batchOfOrder ??= await realm.follow(`${realm.env.REPLY_TOPIC_PREFIX}cli`);
  const { reply } = await batchOfOrder.reply(correlationId);
  if (!('batch' in reply)) throw new Error(`${correlationId} has no batch`);
  return reply.batch;
}

async function serveOrders(): Promise<void> {
  const replies = await realm.follow(orders);
  const asks = Array.from({ length: REQUESTS }, (_, i) => ({ correlationId: idFor(`c${i}`, i % 3, 3), count: 5 }));
  await realm.send(asks.map((ask) => ({ ...ask, replyTopic: orders })));
  await replies.replies(REQUESTS);
}

async function spoilTwo(): Promise<void> {
  const letters = await realm.records(realm.deadLetterTopic);
  undeliverable = `0:${letters}`;
  const nowhere = `${realm.env.REPLY_TOPIC_PREFIX}nowhere`;
  const value = encodeIdRequest({ count: 3, correlationId: Buffer.from('order-1'), replyTopic: nowhere });
  await realm.sendRaw([{ key: 'order-1', value }]);
  await expect.poll(() => realm.records(realm.deadLetterTopic)).toBe(letters + 1);
  await realm.sendRaw([{ key: 'order-2', value: 'a text!' }]);
  await expect.poll(() => realm.records(realm.deadLetterTopic)).toBe(letters + 2);
}

async function emptyDeadLetters(): Promise<void> {
  const ends = await realm.admin.fetchTopicOffsets(realm.deadLetterTopic);
  const partitions = ends.map(({ partition, high }) => ({ partition, offset: high }));
  await realm.admin.deleteTopicRecords({ topic: realm.deadLetterTopic, partitions });
}

async function heldWorkerId(): Promise<string> {
  return String((await worker.ready()).workerId);
}

/** A reply that claims two IDs of another batch. */
async function forge(): Promise<void> {
  const batch = await batchOf('order-4711');
  const ranges = batch.ranges.slice(0, 1).map(({ first }) => ({ first: first + 1n, count: 2 }));
  const value = encodeIdReply({ correlationId: Buffer.from('forged'), batch: { ...batch, ranges } }, 'RANGES');
  await realm.createTopic(forgedTopic());
  await realm.sendRaw([{ key: 'forged', value }], forgedTopic());
}

/**
 * Runs a command in this process, which is faster than a child process, at a simulated terminal where a person confirms
 * with y. The result is the text on the terminal.
 */
async function atTerminal(args: readonly string[], when: Scene['when']): Promise<Outcome> {
  let seen = '';
  let exitCode = 0;
  const write = (text: string) => {
    seen += text;
    if (when?.[0].test(text)) when[1]();
  };
  const code = await runCli(args, {
    version: '0.0.0',
    env: realm.env,
    out: write,
    err: write,
    stop: new AbortController().signal,
    hostIp: () => '127.0.0.1',
    who: () => 'docs@localhost',
    setExitCode: (exit) => {
      exitCode = exit;
    },
    now: () => Date.now(),
    terminal: { input: true, output: false, errors: true },
    ask: async (question) => {
      write(`${question}y\n`);
      return 'y';
    },
  });
  const lines = seen.split('\n').map((line) => line.split(WIPE).at(-1));
  return { code: code === 0 ? exitCode : code, text: lines.join('\n') };
}

/** The words of a command line, with single quotes removed. */
function words(command: string): string[] {
  return [...command.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '');
}

async function run({ command, output }: ShownCommand, scene: Scene): Promise<Outcome> {
  const [program, ...rest] = words(command.replace(/^bin\/idalloc /, 'idalloc '));
  if (program === 'curl') return { code: 0, text: await curl(rest, worker) };
  if (program !== 'idalloc')
    throw new Error(
      'this test runs only commands of idalloc: add the command to ELSEWHERE or UNTESTED in test/support/shown-commands.ts',
    );
  const args = (await scene.args?.(rest)) ?? rest;
  if (output === undefined || output.some((line) => line.endsWith(' [y/N] y'))) return atTerminal(args, scene.when);
  const { code, stdout, stderr } = await runIdalloc(args, realm.env);
  return { code, text: stdout + stderr };
}

/** Output with this realm's names replaced by those of the pages. */
function asShown(text: string): string {
  const { groupId, env } = realm;
  return text
    .replaceAll(`${groupId}.`, 'id.')
    .replaceAll(groupId, 'idalloc')
    .replaceAll(env.ETCD_PREFIX ?? '', '/keyspace')
    .replaceAll(SLOW_SERVER, 'ok  $1');
}

/**
 * A warning of doctor that a broker or an etcd took long to respond, as it may on a busy machine. Only the last of
 * several has the fix.
 */
const SLOW_SERVER =
  /^warn( +(?:Kafka |etcd http)\S+ +(?:Kafka|etcd) .*, [\d.]+ m?s)(\n +fix: (?:find out why it is slow|check its disk).*)?$/gm;

/** Lines about the suite's single broker and about the machine, which the pages don't show. */
const ENVIRONMENT = /^(warning LEDGER_WEAK|(ok|warn|fault) +(topics LEDGER_WEAK|NTP|limits|index directory) )/;

/** The lines that a page and this run must share; the fix of a check is on the line below it. */
function shared(lines: readonly string[]): readonly string[] {
  let own = false;
  return lines.filter((line) => {
    own = ENVIRONMENT.test(line) || (own && /^ +fix: /.test(line));
    return !own;
  });
}

/** The outcome of a doctor that finds only faults of the environment, as if it found none. */
function withoutOwnFaults({ code, text }: Outcome): Outcome {
  const own = text.split('\n').filter((line) => line.startsWith('fault') && ENVIRONMENT.test(line)).length;
  const verdict = new RegExp(`^${own} faults$`, 'm');
  if (own === 0 || !verdict.test(text)) return { code, text };
  return { code: 0, text: text.replace(verdict, 'no fault: a worker can run') };
}

const STEPS = FOLLOWED.flatMap((page) => {
  const commands = blockCommands(readPage(page)).filter(
    ({ command }) => !ELSEWHERE.has(command) && !UNTESTED.has(command),
  );
  return commands.map((step, at) => {
    const same = commands.slice(0, at).filter(({ command }) => command === step.command).length;
    return { ...step, page, name: same === 0 ? step.command : `${step.command} ${same + 1}` };
  });
});

test('each scene belongs to a command of its page', () => {
  const scenes = Object.entries(SCENES).flatMap(([page, of]) => Object.keys(of).map((name) => `${page}: ${name}`));
  const steps = new Set(STEPS.map(({ page, name }) => `${page}: ${name}`));
  expect(scenes.filter((scene) => !steps.has(scene))).toEqual([]);
});

test.for(STEPS)('$page, line $line: $name', async (step, { annotate }) => {
  const { command, output, name, page } = step;
  if (command.startsWith('export ')) {
    const names = words(command)
      .slice(1)
      .map((word) => word.replace(/=.*/, ''));
    return expect(names.filter((variable) => !(variable.replace(/_FILE$/, '') in VARIABLES))).toEqual([]);
  }
  const scene = SCENES[page]?.[name] ?? {};
  await scene.before?.();
  if (command.endsWith(' worker')) return startWorker();
  const { code, text } = withoutOwnFaults(await run(step, scene));
  await scene.after?.();
  await annotate(`printed:\n${asShown(text)}`);
  expect({ code, text }).toEqual({ code: scene.code ?? 0, text: expect.stringMatching(/./) });
  if (output === undefined) return;
  const real = asShown(text).trimEnd().split('\n');
  expect(misfit(shared(output), shared(real), EXACT.test(command))).toBeUndefined();
  // What a page shows twice for the same command is the same here as well: an idempotent answer.
  const key = [page, command, ...output].join('\n');
  expect(text).toBe(printed.get(key) ?? text);
  printed.set(key, text);
});
