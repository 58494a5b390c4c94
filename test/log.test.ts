import { describe, expect, test } from 'vitest';
import { createLogger, etcdLog, type Log, wireLog } from '../src/log.ts';

type Line = Record<string, unknown> & { readonly level: string; readonly msg: string };

function recorder(level = 'debug'): { log: Log; texts: string[]; lines: () => Line[] } {
  const texts: string[] = [];
  const log = createLogger({ level, destination: { write: (text: string) => void texts.push(text) } });
  return { log, texts, lines: () => texts.map((text) => JSON.parse(text) as Line) };
}

describe('the log as text', () => {
  const lineOf = (colours: boolean) => {
    const texts: string[] = [];
    const destination = { write: (text: string) => void texts.push(text) };
    createLogger({ level: 'info', destination, text: { colours } }).warn(
      { reason: 'LEASE_LOST', password: 'x' },
      'gate closed',
    );
    return texts.join('');
  };

  test('has a readable time and level, the fields, and no secret', () => {
    expect(lineOf(false)).toMatch(/^\[\d\d:\d\d:\d\d\.\d{3}\] WARN: gate closed \{.*"reason":"LEASE_LOST".*\}\n$/);
    expect(lineOf(false)).toContain('[secret]');
  });

  test('has colours only where they are asked for', () => {
    expect(lineOf(true)).toContain('\u001b[33m');
    expect(lineOf(false)).not.toContain('\u001b');
  });

  test('shows controls in what others wrote, and a further line of a message is indented', () => {
    const texts: string[] = [];
    const destination = { write: (text: string) => void texts.push(text) };
    const said = '\u001b[2J\u009b31m\u202e';
    createLogger({ level: 'info', destination, text: { colours: false } }).warn(
      { said, err: new Error(said) },
      `${said}\n[00:00:00.000] INFO: all is well`,
    );
    expect(texts.join('')).not.toMatch(/[^\P{Cc}\n]|\p{Cf}/u);
    expect(texts.join('')).toContain(String.raw`\u001b[2J`);
    expect(texts.join('')).not.toMatch(/\n\[00/);
  });

  test('as JSON keeps what others wrote, escaped', () => {
    const { log, texts } = recorder();
    log.warn({ said: '\u009b31m\u202e' }, 'refused');
    expect(texts.join('')).not.toMatch(/[\u009b\u202e]/);
    expect(JSON.parse(texts.join(''))).toMatchObject({ said: '\u009b31m\u202e' });
  });
});

describe('the log of etcd', () => {
  test('a failed endpoint is a warning once in 10 s for each endpoint', () => {
    const { log, lines } = recorder('warn');
    let now = 0;
    const report = etcdLog(log, { monotonicMs: () => now }).onError;
    const fault = (endpoint: string, said: string, remedy?: string) =>
      report({ what: 'a read', endpoint, error: said, remedy });
    fault('http://a', 'away');
    fault('http://a', 'away');
    fault('http://b', 'away');
    now = 10_000;
    fault('http://a', 'away');
    expect(lines().map(({ endpoint, error }) => [endpoint, error])).toEqual([
      ['http://a', 'away'],
      ['http://b', 'away'],
      ['http://a', 'away'],
    ]);
  });

  test('a fault that only an operator can fix is an error, with the remedy', () => {
    const { log, lines } = recorder('warn');
    etcdLog(log).onError({ what: 'a read', endpoint: 'http://a', error: 'refused', remedy: 'check it' });
    expect(lines().map(({ level, remedy }) => [level, remedy])).toEqual([['error', 'check it']]);
  });

  test('texts of one status differ in times, so they count as one kind, and the line keeps its own text', () => {
    const { log, lines } = recorder('warn');
    const report = etcdLog(log, { monotonicMs: () => 0 }).onError;
    const fault = (said: string) => report({ what: 'a read', endpoint: 'http://a', error: said, remedy: undefined });
    for (const second of [7, 8, 12]) {
      const at = `2026-06-02T16:05:${String(second).padStart(2, '0')}.123Z`;
      fault(`14 UNAVAILABLE: connect ECONNREFUSED 127.0.0.1:2379 (${at})`);
      fault(`4 DEADLINE_EXCEEDED: after ${second}.${second}01s,LB pick: 0.${second}s`);
    }
    expect(lines().map(({ error }) => error)).toEqual([
      '14 UNAVAILABLE: connect ECONNREFUSED 127.0.0.1:2379 (2026-06-02T16:05:07.123Z)',
      '4 DEADLINE_EXCEEDED: after 7.701s,LB pick: 0.7s',
    ]);
  });

  test('endpoints that differ only in a digit have lines of their own', () => {
    const { log, lines } = recorder('warn');
    const report = etcdLog(log, { monotonicMs: () => 0 }).onError;
    for (const endpoint of ['http://etcd-1:2379', 'http://etcd-2:2379'])
      report({ what: 'a read', endpoint, error: 'away', remedy: undefined });
    expect(lines()).toHaveLength(2);
  });
});

test('etcd answers again is one line, after a line that it did not', () => {
  const { log, lines } = recorder('info');
  const { onError, onReturn } = etcdLog(log, { monotonicMs: () => 0 });
  const endpoint = 'http://a';
  onReturn(endpoint);
  for (let round = 0; round < 3; round += 1) {
    onError({ what: 'a read', endpoint, error: `no response in ${round} ms`, remedy: undefined });
    onReturn(endpoint);
  }
  expect(lines().map(({ level, msg }) => `${level}: ${msg}`)).toEqual([
    'warn: etcd failed a call',
    'info: etcd answers again',
  ]);
});

describe('the log of the wire', () => {
  test('keeps levels and fields, under its component', () => {
    const { log, lines } = recorder();
    const write = wireLog(log, { monotonicMs: () => 0 });
    write('warn', { node: 2 }, 'broker does not answer');
    write('info', { node: 2 }, 'broker answers again');
    write('debug', { node: 2 }, 'connected');
    expect(lines().map(({ level, msg, component, node }) => [level, msg, component, node])).toEqual([
      ['warn', 'broker does not answer', 'kafka', 2],
      ['info', 'broker answers again', 'kafka', 2],
      ['debug', 'connected', 'kafka', 2],
    ]);
  });

  test('writes a warning about the same broker to debug for 10 s', () => {
    const { log, lines } = recorder();
    const write = wireLog(log, { monotonicMs: () => 0 });
    for (const about of ['kafka-1:9092', 'kafka-2:9092', 'kafka-1:9092']) write('warn', {}, 'no answer', { about });
    expect(lines().map(({ level }) => level)).toEqual(['warn', 'warn', 'debug']);
  });
});

describe('secrets', () => {
  test('are not in a configuration that is logged', () => {
    const { log, lines } = recorder();
    const kafka = { brokers: ['a:1'], sasl: { mechanism: 'plain', username: 'u', password: 's3cret' } };
    const etcd = { auth: { username: 'u', password: 's3cret' } };
    log.info({ config: { kafka, etcd }, kafka, password: 's3cret' }, 'started');
    log.info(kafka, 'started');
    log.info({ env: { ETCD_PASSWORD: 's3cret', KAFKA_SASL_PASSWORD: 's3cret' } }, 'started');
    expect(lines()).toHaveLength(3);
    expect(JSON.stringify(lines())).not.toContain('s3cret');
    expect(JSON.stringify(lines())).toContain('a:1');
  });
});
