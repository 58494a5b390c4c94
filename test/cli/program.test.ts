import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { VARIABLES } from '../../src/config/variables.ts';
import { cli } from './harness.ts';

const MAIN = join(import.meta.dirname, '../../src/main.ts');

describe('the command line', () => {
  test.each([
    ['nothing', []],
    ['an unknown command', ['serve']],
    ['an unknown option', ['decode', '--yaml', '1']],
    ['a decode without IDs', ['decode']],
    ['a count of 0', ['request', '--count', '0']],
    ['a count that is no number', ['request', '--count', '1e3']],
    ['an unknown encoding', ['request', '--encoding', 'JSON']],
    ['an empty correlation ID', ['request', '--correlation-id', '']],
    ['a correlation ID of 257 bytes', ['request', '--correlation-id', 'é'.repeat(129)]],
    ['numbers without the document that gets them', ['request', '--sequence', 'invoices/2027']],
    ['an empty correlation ID to trace', ['trace', '--correlation-id', '']],
    ['a correlation ID to trace beside an ID', ['trace', '55325805773398016', '--correlation-id', 'order']],
    ['a number to trace of no sequence', ['trace', '--number', '7']],
    [
      'a number to trace beside a correlation ID',
      ['trace', '--sequence', 's', '--number', '7', '--correlation-id', 'o'],
    ],
    ['a sequence to trace without a number', ['trace', '--sequence', 'invoices/2027']],
    ['an ID to trace of a sequence', ['trace', '55325805773398016', '--sequence', 'invoices/2027']],
    ['a time to audit that ends before it begins', ['audit', '--from', '1h', '--to', '2h']],
    ['a replay from nowhere', ['replay']],
    ['a replay from a time and an offset', ['replay', '--from', '1d', '--offset', '1', '--partition', '0']],
    ['a replay from an offset of no partition', ['replay', '--offset', '1']],
    ['a timeout of 0', ['request', '--timeout-ms', '0']],
    ['an expiry that is no time', ['request', '--expires-at', 'soon']],
    ['an expiry that has passed', ['request', '--expires-at', '30m']],
    ['arguments that no command takes', ['worker', 'now']],
  ])('exits with 2 for %s, and names --help', async (_, args) => {
    const { code, out, err } = await cli(args, { KAFKA_BROKERS: 'unused:1' });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain('--help');
  });

  test.each([
    ['USAGE', ['request', '--count', '0', '--json'], /^--count '0' must be a whole number/],
    ['USAGE', ['decode', '--yaml', '1', '--json'], /^unknown option '--yaml'/],
    ['CONFIG_INVALID', ['doctor', '--json'], /KAFKA_BROKERS/],
  ])('prints %s for %j as JSON too', async (code, args, text) => {
    const { out } = await cli(args);
    expect(JSON.parse(out)).toEqual({ error: { code, message: expect.stringMatching(text) } });
  });

  test.each([
    [['reqest'], "unknown command 'reqest'; did you mean request?"],
    [['nosuch', '--help'], "unknown command 'nosuch'"],
    [['help', 'nosuch'], "unknown command 'nosuch'"],
    [['topics', 'chek', '--help'], "unknown command 'chek': 'idalloc topics' has init, check, acls"],
    [['help', 'topics', 'chek'], "unknown command 'chek': 'idalloc topics' has init, check, acls"],
    [['leases', 'evcit'], "unknown command 'evcit': 'idalloc leases' has evict"],
    [['--json', 'decode', '1'], "'idalloc' needs a command before --json"],
    [['topics', '--json'], "'idalloc topics' needs a command before --json"],
    [['leases', '--jsn'], "unknown option '--jsn'; did you mean --json?"],
    [['decode', '--json=true', '1'], '--json takes no value'],
    [['decode'], "'idalloc decode' needs <id>"],
    [['worker', 'now', 'then'], "'idalloc worker' takes no arguments: now, then"],
    [['request', '--', '--count'], "'idalloc request' takes no arguments: --count"],
    [['trace', '1', '2'], "'idalloc trace' takes 1 argument, not 2: 1, 2"],
    [['range', '--to', 'now'], '--from <time> is missing'],
    [['request', '--count'], '--count needs a value: --count <n>'],
    [['request', '--count='], "--count '' must be a whole number from 1 to 2147483647"],
    [['request', '--count', '-1'], "--count '-1' must be a whole number from 1 to 2147483647"],
    [['request', '--correlation-id', '--json'], '--correlation-id needs a value, and --json is an option'],
    [['topics', 'init', '--reply-topic', '--json'], '--reply-topic needs a value, and --json is an option'],
    [['request', '--count', '1', '--count', '2'], "--count is given twice, as '1' and as '2'"],
    [['request', '--encoding', 'JSON'], "--encoding 'JSON' must be one of RANGES, IDS"],
    [['completion', 'tcsh'], "<shell> 'tcsh' must be one of bash, zsh, fish"],
    [['leases', 'evict', 'seven'], "<worker-id> 'seven' must be a whole number from 0 to 4294967296"],
  ])('says in one line what is wrong with %j: %s', async (args, message) => {
    const { code, out, err } = await cli(args, { KAFKA_BROKERS: 'unused:1' });
    const forPrograms = `${JSON.stringify({ error: { code: 'USAGE', message } })}\n`;
    expect({ code, out }).toEqual({ code: 2, out: args.includes('--json') ? forPrograms : '' });
    expect(err).toMatch(/^error: .*\n\(try '.* --help'\)\n$/);
    expect(err).toContain(`error: ${message}\n`);
  });

  test.each([
    [
      ['help', 'topics', 'init'],
      ['topics', 'init', '--help'],
    ],
    [
      ['topics', 'help', 'init'],
      ['topics', 'init', '--help'],
    ],
    [['help'], ['--help']],
    [
      ['decode', '--layout', 'default', '--layout', 'default', '1'],
      ['decode', '--layout', 'default', '1'],
    ],
  ])('takes %j as %j', async (args, same) => {
    expect(await cli(args)).toEqual(await cli(same));
    expect((await cli(args)).code).toBe(0);
  });

  test('says why numbers need a correlation ID', async () => {
    const { err } = await cli(['request', '--sequence', 'invoices/2027'], { KAFKA_BROKERS: 'unused:1' });
    expect(err).toContain('--sequence needs --correlation-id with the ID of the document that gets the numbers');
  });

  test.each([
    [['worker']],
    [['request']],
    [['decode']],
    [['range']],
    [['audit']],
    [['journal']],
    [['trace']],
    [['doctor']],
    [['replay']],
    [['leases']],
    [['leases', 'evict']],
    [['deadletters', 'list']],
    [['deadletters', 'show']],
    [['deadletters', 'resend']],
    [['topics', 'check']],
    [['namespace', 'show']],
    [['namespace', 'rebuild']],
    [['topics', 'init']],
  ])('%s --help shows examples', async (args) => {
    const { code, out } = await cli([...args, '--help']);
    expect(code).toBe(0);
    expect(out).toContain('Examples:');
  });

  test('--help lists the exit codes', async () => {
    expect((await cli(['--help'])).out).toMatch(/Exit codes:(\n {2}\d+ .*){7}/);
  });

  test.each([
    [[], /-V, --version +print the version\n +-h, --help +show this help\n/],
    [[], /\n +help \[command\] +show the help of a command\n/],
    [['topics'], /\n +help \[command\] +show the help of a command\n/],
    [['topics', 'init'], /\n +-h, --help +show this help\n/],
    [['completion', 'fish'], /show this help/],
  ])('%j describes what commander adds in the words of the others', async (args, shown) => {
    const { out } = await cli(args[0] === 'completion' ? args : [...args, '--help']);
    expect(out).toMatch(shown);
    expect(out).not.toMatch(/display help|output the version/);
  });

  test.each([80, 100, 200])('help fits a terminal with %i columns, but for what is to be copied', async (columns) => {
    const terminal = { input: true, output: true, errors: true, columns };
    const { out } = await cli(['namespace', 'rebuild', '--help'], {}, undefined, { terminal });
    const [prose = '', examples = ''] = out.split('Examples:\n');
    expect(prose.split('\n').filter((line) => line.length > Math.min(columns, 120))).toEqual([]);
    expect(prose.split(/\s+/)).toEqual(
      (await cli(['namespace', 'rebuild', '--help'])).out.split('Examples:\n')[0]?.split(/\s+/),
    );
    expect(examples).toContain('  idalloc namespace rebuild --yes --now 2026-06-02T16:05:00Z\n');
  });

  test('worker --help names every variable', async () => {
    const { out } = await cli(['worker', '--help']);
    expect(Object.keys(VARIABLES).filter((name) => !out.includes(name))).toEqual([]);
  });

  test('--version prints the version', async () => {
    expect(await cli(['--version'])).toEqual({ code: 0, out: '1.2.3\n', err: '' });
  });

  test.each([[['worker']], [['request']], [['topics', 'init']], [['namespace', 'rebuild']]])(
    '%s without configuration exits with 78',
    async (args) => {
      const { code, out, err } = await cli(args);
      expect({ code, out }).toEqual({ code: 78, out: '' });
      expect(err).toContain('KAFKA_BROKERS');
    },
  );

  test('worker without configuration names every missing variable', async () => {
    expect((await cli(['worker'])).err).toMatch(/KAFKA_BROKERS: .*\n.*ETCD_ENDPOINTS: .*\n.*DATACENTER_ID: /);
  });

  test.each(['id.requests', 'id.ledger', 'orders', 'id.replies.', 'a'.repeat(10_240)])(
    'a request with reply topic %s, on which no worker replies, is refused before any call to a broker',
    async (topic) => {
      const { code, err } = await cli(['request', '--reply-topic', topic], { KAFKA_BROKERS: '127.0.0.1:1' });
      expect({ code, err }).toEqual({
        code: 1,
        err: expect.stringMatching(/^INVALID_REPLY_TOPIC: .*REPLY_TOPIC_PREFIX/),
      });
      expect(err.length).toBeLessThan(500);
    },
  );

  test('arguments in messages can neither control nor flood the terminal', async () => {
    const { code, err } = await cli(['request', '--correlation-id', `\u001b[2J\u0007${'a'.repeat(10_240)}`]);
    expect(code).toBe(2);
    expect(err).toContain('has 10245 bytes');
    expect(err).not.toMatch(/[^\n\x20-\x7e…]/);
    expect(err.length).toBeLessThan(500);
  });

  test('a command that waits for brokers ends on a signal', async () => {
    const stop = new AbortController();
    const running = cli(['request', '--json', '--correlation-id', 'c'], { KAFKA_BROKERS: '127.0.0.1:1' }, stop.signal);
    stop.abort();
    const { code, out } = await running;
    expect(code).toBe(130);
    expect(JSON.parse(out)).toEqual({ correlation_id: 'c', error: { code: 'STOPPING', message: expect.any(String) } });
  });
});

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs the real program in a child process; its output is read only once it had time to fill the pipe. */
function main(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ended> {
  const child = spawn(process.execPath, [MAIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text) => {
    err += text;
  });
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, out, err })));
}

describe('the program', () => {
  test('exits as by SIGPIPE, without output, when the reader of its output exits first', async () => {
    const child = spawn(process.execPath, [MAIN, 'decode', ...Array.from({ length: 5_000 }, (_, id) => String(id))], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      err += text;
    });
    child.stdout.once('data', () => child.stdout.destroy());
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect({ code, err }).toEqual({ code: 141, err: '' });
  });

  test('exits with 78 for an invalid configuration, and reports it on stderr', async () => {
    const { code, out, err } = await main(['worker'], { KAFKA_BROKERS: 'a:1', ETCD_ENDPOINTS: 'x' });
    expect({ code, out }).toEqual({ code: 78, out: '' });
    expect(err).toMatch(/^CONFIG_INVALID: 2 configuration errors:\n {2}ETCD_ENDPOINTS: .*\n {2}DATACENTER_ID: .*\n$/);
  });

  test("ends a worker immediately when its INDEX_DIR can't be created, though no server answers", async () => {
    const servers = { KAFKA_BROKERS: '127.0.0.1:1', ETCD_ENDPOINTS: 'http://127.0.0.1:1', DATACENTER_ID: '0' };
    const env = { ...servers, API_PORT: 'off', OPS_PORT: '0', INDEX_DIR: join(MAIN, 'index') };
    const { code, out } = await main(['worker'], env);
    expect(code).toBe(1);
    const lines = out.trimEnd().split('\n');
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      level: 'info',
      msg: 'idalloc is starting',
      settings: { LOG_LEVEL: 'info' },
    });
    const { level, msg } = JSON.parse(lines.at(-1) ?? '');
    expect({ level, msg }).toEqual({
      level: 'fatal',
      msg: expect.stringMatching(/^INDEX_UNUSABLE: .*set INDEX_DIR to/),
    });
  });

  test('writes all output, even if it is larger than a pipe holds', async () => {
    const ids = Array.from({ length: 5_000 }, (_, index) => String(index));
    const { code, out } = await main(['decode', '--json', ...ids]);
    expect(code).toBe(0);
    expect(out.length).toBeGreaterThan(10 * 65_536);
    expect(JSON.parse(out).ids).toHaveLength(5_000);
  });
});
