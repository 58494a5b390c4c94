import { expect, test } from 'vitest';
import { withCluster } from '../../src/cli/kafka-session.ts';
import { loadKafkaConfig } from '../../src/config/config.ts';
import { IdallocError } from '../../src/errors.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../src/kafka/wire/port.ts';
import { metadataAnswer } from '../adapters/kafka/scripted-brokers.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const CONFIG = loadKafkaConfig({ KAFKA_BROKERS: 'kafka-1:9092,kafka-2:9092' });
const SEEDS = [
  { host: 'kafka-1', port: 9092 },
  { host: 'kafka-2', port: 9092 },
];

interface Options {
  readonly atTerminal?: boolean;
  readonly use?: () => Promise<string>;
}

/** A command connected to brokers that answer or refuse on demand. */
function start({ atTerminal = true, use = async () => 'done' }: Options = {}) {
  const runtime = new VirtualRuntime();
  const connected = Promise.withResolvers<void>();
  const stop = new AbortController();
  const said: string[] = [];
  let open = 0;
  let refusal: string | undefined;
  const dial = async (_address: unknown, signal: AbortSignal): Promise<BrokerLink> => {
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(new KafkaError('CLOSED', 'closed')));
    });
    await Promise.race([connected.promise, aborted]);
    if (refusal !== undefined) throw new KafkaError(refusal, `kafka-1:9092: ${refusal}`);
    open += 1;
    const ended = Promise.withResolvers<void>();
    const link = {
      ended: ended.promise,
      close: () => {
        open -= 1;
        link.close = () => undefined;
        ended.resolve();
      },
      call: async () => metadataAnswer([]),
    } as unknown as { close: () => void };
    return link as unknown as BrokerLink;
  };
  const context = {
    stop: stop.signal,
    env: {},
    err: (text: string) => void said.push(text),
    terminal: { errors: atTerminal },
  };
  const session = withCluster(context, CONFIG, use, { dialer: { dial }, seeds: SEEDS, runtime });
  session.catch(() => undefined); // each test awaits it later
  return {
    runtime,
    said,
    stop,
    answer: connected.resolve,
    refuse: (errorCode: string) => {
      refusal = errorCode;
      connected.resolve();
    },
    done: () => runtime.until(session),
    pass: (ms: number) => runtime.until(runtime.sleep(ms)),
    openLinks: () => open,
  };
}

test('a terminal shows after 3 s which brokers the command waits for; a script does not', async () => {
  const [seen, unseen] = [start(), start({ atTerminal: false })];
  await seen.pass(2_999);
  expect(seen.said).toEqual([]);
  await seen.pass(2);
  await unseen.pass(8_000);
  expect(seen.said).toEqual(['waiting for a response from kafka-1:9092, kafka-2:9092 …\n']);
  expect(unseen.said).toEqual([]);
  seen.answer();
  unseen.answer();
  expect([await seen.done(), await unseen.done()]).toEqual(['done', 'done']);
});

test('prints nothing about brokers that answer, or after the command has ended', async () => {
  const [answered, stopped] = [start(), start()];
  answered.answer();
  await answered.done();
  stopped.stop.abort();
  await expect(stopped.done()).rejects.toMatchObject({ code: 'STOPPING' });
  await stopped.pass(60_000);
  await answered.pass(60_000);
  expect([...answered.said, ...stopped.said]).toEqual([]);
});

test('brokers that do not answer for 10 s are KAFKA_UNAVAILABLE, with the variables to check', async () => {
  const silent = start();
  await expect(silent.done()).rejects.toMatchObject({
    code: 'KAFKA_UNAVAILABLE',
    message: expect.stringMatching(/kafka-1:9092, kafka-2:9092.*KAFKA_BROKERS, KAFKA_TLS and KAFKA_CA/),
  });
  expect(silent.runtime.monotonicMs()).toBeGreaterThanOrEqual(10_000);
  expect(silent.runtime.monotonicMs()).toBeLessThan(16_000);
});

test('retries brokers that refuse connections at first, as while they start', async () => {
  const starting = start();
  starting.refuse('UNREACHABLE');
  await starting.pass(5_000);
  starting.refuse('LOGIN_REFUSED');
  await expect(starting.done()).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
});

test('a rejected login is CONFIG_INVALID immediately', async () => {
  const refused = start();
  refused.refuse('LOGIN_REFUSED');
  await expect(refused.done()).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  expect(refused.runtime.monotonicMs()).toBeLessThan(2_000);
});

test.each([
  [
    'a fault of the brokers',
    new KafkaError('NO_RESPONSE', 'kafka-1:9092 did not answer'),
    { code: 'KAFKA_UNAVAILABLE' },
  ],
  ['a fault with a code', new IdallocError('NOT_FOUND', 'no such letter'), { code: 'NOT_FOUND' }],
  ['a bug', new TypeError('x is not a function'), { name: 'TypeError' }],
])('%s during the work reaches the caller unchanged', async (_, error, expected) => {
  const failing = start({ use: () => Promise.reject(error) });
  failing.answer();
  await expect(failing.done()).rejects.toMatchObject(expected);
});

test('a signal during the work ends it with STOPPING', async () => {
  const endless = start({ use: () => new Promise(() => undefined) });
  endless.answer();
  endless.runtime.schedule(1_000, () => endless.stop.abort());
  await expect(endless.done()).rejects.toMatchObject({ code: 'STOPPING' });
});

test('leaves no connection and no timer, however it ends', async () => {
  const ends = [
    start(),
    start({ use: () => Promise.reject(new Error('it failed')) }),
    start({ use: () => new Promise(() => undefined) }),
  ];
  for (const end of ends) {
    end.answer();
    end.runtime.schedule(1_000, () => end.stop.abort());
    await end.done().catch(() => undefined);
    await end.pass(1_000);
    expect([end.openLinks(), end.runtime.pending]).toEqual([0, 0]);
  }
});
