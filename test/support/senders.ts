import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../ops/dev/paths.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { EXAMPLES, goPrograms, jars, kcat, nestModules, pythonEnvironment, skipping } from './example-tools.ts';

/** The requests that a client in another language sends: one for each correlation ID, with this trace ID. */
interface Sending {
  readonly brokers: string;
  readonly requestTopic: string;
  readonly replyTopic: string;
  readonly ids: readonly string[];
  readonly count: number;
  /** Whether the correlation ID is the record's key; otherwise the record has no key. */
  readonly withKey: boolean;
  readonly traceparent: string;
}

/** A client library with its default partitioner. Rejects if a request is not acknowledged. */
export interface Sender {
  readonly name: string;
  send(sending: Sending): Promise<void>;
}

const TIMEOUT_MS = 90_000;
const OUTPUT_BYTES = 16 << 20;
const PROGRAMS = join(ROOT, 'test/support/partitioners');

interface Call {
  readonly args: readonly string[];
  readonly stdin?: string | Buffer;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

async function call(program: string, { args, stdin, env, cwd }: Call): Promise<void> {
  const options = { timeout: TIMEOUT_MS, maxBuffer: OUTPUT_BYTES, env: { ...process.env, ...env }, cwd };
  const running = promisify(execFile)(program, args, options);
  running.child.stdin?.end(stdin);
  try {
    await running;
  } catch (error) {
    // The error's own message contains all arguments.
    const { killed, stdout, stderr } = error as { killed?: boolean; stdout?: string; stderr?: string };
    const what = killed ? `did not end within ${TIMEOUT_MS / 1000} s` : 'failed';
    throw new Error(`${program} ${what}: ${stderr}${stdout}`);
  }
}

const lines = ({ ids }: Sending): string => ids.join('\n');
const unlessKey = ({ withKey }: Sending, ...args: string[]): string[] => (withKey ? [] : args);
const positional = (it: Sending): string[] => [
  ...[it.brokers, it.requestTopic, it.replyTopic, String(it.count), it.traceparent],
];

const python = (environment: string): Sender => ({
  name: 'confluent-kafka (Python)',
  send: (it) =>
    call(join(environment, 'bin/python'), {
      args: [...[join(PROGRAMS, 'send.py'), ...unlessKey(it, '--no-key'), ...positional(it)]],
      stdin: lines(it),
      env: { PYTHONPATH: join(EXAMPLES, 'python') },
    }),
});

const go = (directory: string): Sender => ({
  name: 'franz-go',
  send: (it) =>
    call(join(directory, 'send'), { args: [...unlessKey(it, '--no-key'), ...positional(it)], stdin: lines(it) }),
});

const java = (libraries: string): Sender => ({
  name: 'kafka-clients (Java)',
  send: (it) => {
    const program = ['-cp', join(libraries, '*'), join(PROGRAMS, 'Send.java'), ...unlessKey(it, '--no-key')];
    return call('java', { args: [...program, ...positional(it)], stdin: lines(it) });
  },
});

/** The program is copied to the directory of its modules, where Node finds them. */
const nest = (modules: string): Sender => ({
  name: 'ClientKafka (NestJS)',
  async send(it) {
    const cwd = mkdtempSync(join(tmpdir(), 'idalloc-nestjs-'));
    try {
      copyFileSync(join(EXAMPLES, 'nestjs/package.json'), join(cwd, 'package.json'));
      copyFileSync(join(PROGRAMS, 'send.js'), join(cwd, 'send.js'));
      symlinkSync(join(modules, 'node_modules'), join(cwd, 'node_modules'));
      const args = [it.brokers, it.requestTopic, String(it.count), it.traceparent];
      await call(process.execPath, { args: ['send.js', ...unlessKey(it, '--no-key'), ...args], stdin: lines(it), cwd });
    } finally {
      rmSync(cwd, { recursive: true, force: true });
    }
  },
});

const BETWEEN = { key: '<key>', record: '<record>' } as const;

/** kcat sets the same headers for all records, so the values contain the correlation IDs. */
const kcatSender = (program: string): Sender => ({
  name: 'kcat',
  send({ brokers, requestTopic, replyTopic, ids, count, withKey, traceparent }) {
    const records = ids.flatMap((id) => {
      const value = encodeIdRequest({ count, correlationId: Buffer.from(id), replyTopic });
      return [Buffer.from(withKey ? `${id}${BETWEEN.key}` : ''), value, Buffer.from(BETWEEN.record)];
    });
    const key = withKey ? ['-K', BETWEEN.key] : [];
    const to = ['-P', '-b', brokers, '-t', requestTopic, '-H', `traceparent=${traceparent}`];
    return call(program, { args: [...to, '-D', BETWEEN.record, ...key], stdin: Buffer.concat(records) });
  },
});

/** The senders that this machine can run, and why others are missing. */
export async function sendersHere(): Promise<{ readonly senders: readonly Sender[]; readonly missing: string }> {
  const makers = [
    [await nestModules(), nest],
    [await pythonEnvironment(), python],
    [await goPrograms(), go],
    [await jars('java'), java],
    [await kcat(), kcatSender],
  ] as const;
  const tools = makers.map(([tool, make]) => ({ ...skipping(tool), make }));
  return {
    senders: tools.flatMap(({ why, path, make }) => (why === undefined ? [make(path)] : [])),
    missing: tools.map(({ title }) => title).join(''),
  };
}
