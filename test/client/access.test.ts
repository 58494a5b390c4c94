import { describe, expect, test } from 'vitest';
import { type Access, accessOf, Bootstrap, type KafkaOptions } from '../../src/client/access.ts';
import { IdallocError } from '../../src/errors.ts';
import { kafkaErrorCode } from '../../src/kafka/wire/kafka-error.ts';
import { FakeRuntime } from './stage.ts';

const brokers = ['kafka-1:9092'];
const login = (password: string) => ({ mechanism: 'plain', username: 'u', password }) as const;

describe('what may change is read anew for each connection', () => {
  test.each<[string, (next: () => string) => Access]>([
    ['a function', (next) => ({ brokers, ssl: () => ({ ca: next() }), sasl: () => login(next()) })],
    ['an async function', (next) => ({ brokers, ssl: async () => ({ ca: next() }), sasl: async () => login(next()) })],
    [
      "a function of kafkajs' configuration",
      (next) => ({ kafka: { brokers, ssl: () => ({ ca: next() }), sasl: () => login(next()) } }),
    ],
    [
      "a getter of kafkajs' configuration",
      (next) => ({
        kafka: {
          brokers,
          get ssl() {
            return { ca: next() };
          },
          get sasl() {
            return login(next());
          },
        },
      }),
    ],
    [
      'a getter',
      (next) => ({
        brokers,
        get ssl() {
          return { ca: next() };
        },
        get sasl() {
          return login(next());
        },
      }),
    ],
  ])('by %s', async (_how, options) => {
    let calls = 0;
    const next = () => {
      calls += 1;
      return String(calls);
    };
    const runtime = new FakeRuntime();
    const { connection, isChanging } = accessOf(options(next), runtime);
    const before = calls;
    expect(await connection()).toMatchObject({ ssl: { ca: String(before + 1) }, sasl: login(String(before + 2)) });
    await runtime.pass(1_000);
    expect(await connection()).toMatchObject({ ssl: { ca: String(before + 3) }, sasl: login(String(before + 4)) });
    expect(isChanging).toBe(true);
  });

  test('by a class with getters, as a service may have its secrets', async () => {
    class Secrets {
      readonly brokers = brokers;
      calls = 0;
      get sasl() {
        this.calls += 1;
        return login(String(this.calls));
      }
    }
    const { connection, isChanging } = accessOf({ kafka: new Secrets() }, new FakeRuntime());
    expect(isChanging).toBe(true);
    const [one, two] = [await connection(), await connection()];
    expect(one.sasl).not.toEqual(two.sasl);
  });

  test('unless it is a value: then a login that is refused stays refused', () => {
    expect(accessOf({ brokers, ssl: true, sasl: login('p') }, new FakeRuntime()).isChanging).toBe(false);
  });
});

describe('a function of the login is called once a second at most, however often connections are tried', () => {
  test.each<[string, () => Promise<never> | ReturnType<typeof login>, number]>([
    ['that returns one', () => login('p'), 10],
    ['that fails', () => Promise.reject(new Error('the vault is sealed')), 10],
    ['that returns nothing for ever, once in 5 s', () => new Promise(() => undefined), 2],
  ])('%s', async (_what, sasl, most) => {
    const runtime = new FakeRuntime();
    let calls = 0;
    const counted = () => {
      calls += 1;
      return sasl();
    };
    const { connection } = accessOf({ brokers, sasl: counted }, runtime);
    for (let tried = 0; tried < 100; tried += 1) {
      connection().catch(() => undefined);
      await runtime.pass(100);
    }
    expect(calls).toBe(most);
  });
});

describe('what a function returns is checked', () => {
  test.each<[string, Partial<KafkaOptions>, RegExp]>([
    ['a text as login', { sasl: (() => 'secret') as never }, /sasl must be an object.*: it is of type string$/],
    ['a function in a function', { sasl: (() => () => login('p')) as never }, /it is of type function$/],
    [
      'a login without a mechanism',
      { sasl: (() => ({ username: 'u', password: 'secret' })) as never },
      /it is an object with username, password$/,
    ],
    ['a text as TLS', { ssl: (() => 'secret') as never }, /ssl must be a boolean.*: it is of type string$/],
  ])('%s is CONFIG_INVALID, without its value', async (_what, options, message) => {
    const refused = accessOf({ kafka: { brokers, ...options } }, new FakeRuntime()).connection();
    const error = await refused.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: 'CONFIG_INVALID', message: expect.stringMatching(message) });
    expect(String(error)).not.toContain('secret');
  });

  test('no login, or none at all as null, is no login', async () => {
    const none = { brokers, ssl: () => undefined, sasl: (() => null) as never };
    const { connection } = accessOf(none, new FakeRuntime());
    expect(await connection()).toMatchObject({ ssl: undefined, sasl: undefined });
  });

  test.each(['ssl', 'sasl'] as const)('%s that fails is UNREACHABLE, which is tried again', async (name) => {
    const sealed = async () => Promise.reject(new Error('the vault is sealed'));
    const failing = accessOf({ brokers, [name]: sealed }, new FakeRuntime());
    const error = await failing.connection().catch((reason: unknown) => reason);
    expect(kafkaErrorCode(error)).toBe('UNREACHABLE');
    expect(error).toMatchObject({ message: `the option ${name} failed: the vault is sealed` });
  });
});

describe('bootstrap brokers', () => {
  test('are found again at most once in 5 s, and used from then on', async () => {
    const { bootstrap, runtime, finds } = stageBootstrap((call) => [`kafka-${call}:9092`]);
    await bootstrap.open(10_000);
    expect(bootstrap.seeds).toEqual([{ host: 'kafka-1', port: 9092 }]);
    for (let second = 0; second < 12; second += 1) {
      void bootstrap.findAgain();
      await runtime.pass(1_000);
    }
    expect(finds()).toBe(3);
    expect(bootstrap.seeds).toEqual([{ host: 'kafka-3', port: 9092 }]);
  });

  test.each<[string, (call: number) => readonly string[] | Promise<readonly string[]>, object]>([
    [
      'that fail',
      (call) => (call === 1 ? brokers : Promise.reject(new Error('no DNS'))),
      { code: 'KAFKA_UNAVAILABLE', message: 'brokers failed: no DNS' },
    ],
    [
      'that are none',
      (call) => (call === 1 ? brokers : ['kafka']),
      { code: 'CONFIG_INVALID', message: expect.stringMatching(/^brokers must be a list of host:port/) },
    ],
    [
      'that never come',
      (call) => (call === 1 ? brokers : new Promise(() => undefined)),
      { code: 'KAFKA_UNAVAILABLE', message: 'the function brokers has returned nothing for 5000 ms' },
    ],
  ])('%s later are reported, and those of before are kept', async (_what, find, error) => {
    const { bootstrap, runtime, faults } = stageBootstrap(find);
    await bootstrap.open(10_000);
    await runtime.pass(5_000);
    void bootstrap.findAgain();
    await runtime.pass(5_000);
    expect(faults).toEqual([expect.objectContaining(error)]);
    expect(bootstrap.seeds).toEqual([{ host: 'kafka-1', port: 9092 }]);
  });

  test('that fail at the start are tried again within the time limit', async () => {
    const { bootstrap, runtime, finds } = stageBootstrap((call) =>
      call < 4 ? Promise.reject(new Error('not yet')) : brokers,
    );
    const opened = bootstrap.open(10_000);
    await runtime.pass(2_000);
    await opened;
    expect(finds()).toBe(4);
  });

  test('that fail at the start for long are sought ever more rarely, up to once in 5 s', async () => {
    const { bootstrap, runtime, finds } = stageBootstrap(() => Promise.reject(new Error('not yet')));
    const ended = bootstrap.open(Number.POSITIVE_INFINITY).catch((error: unknown) => error);
    await runtime.pass(60_000);
    const before = finds();
    await runtime.pass(60_000);
    expect(finds() - before).toBeLessThanOrEqual(13);
    bootstrap.close();
    await ended;
  });

  test.each<[string, number]>([
    ['are KAFKA_UNAVAILABLE with the reason after the time limit', 2_000],
    ['end at a time limit that is shorter than one attempt', 100],
  ])('that never come at the start %s', async (_what, timeoutMs) => {
    const { bootstrap, runtime } = stageBootstrap(() => new Promise(() => undefined));
    const beganMs = runtime.nowMs;
    const ended = bootstrap.open(timeoutMs).catch((error: unknown) => [error, runtime.nowMs - beganMs]);
    await runtime.pass(timeoutMs + 1_000);
    expect(await ended).toEqual([expect.objectContaining({ code: 'KAFKA_UNAVAILABLE' }), timeoutMs]);
  });

  test.each<[string, () => Promise<readonly string[]>]>([
    ['that fail', () => Promise.reject(new Error('not yet'))],
    ['that never come', () => new Promise(() => undefined)],
  ])('%s are no longer sought once closed, at the start or later', async (_what, find) => {
    const { bootstrap, runtime, finds } = stageBootstrap(find);
    const ended = bootstrap.open(Number.POSITIVE_INFINITY).catch((error: unknown) => error);
    await runtime.pass(62_000);
    bootstrap.close();
    expect(await ended).toBeInstanceOf(IdallocError);
    const after = finds();
    void bootstrap.findAgain();
    await runtime.pass(60_000);
    expect(finds()).toBe(after);
    expect(runtime.pending).toBe(0);
  });

  test('that are sought while it is closed leave no timer, and no error', async () => {
    const later = new Promise<never>(() => undefined);
    const { bootstrap, runtime, faults } = stageBootstrap((call) => (call === 1 ? brokers : later));
    await bootstrap.open(10_000);
    await runtime.pass(5_000);
    void bootstrap.findAgain();
    await runtime.pass(1_000);
    expect(runtime.pending).toBe(1);
    bootstrap.close();
    await runtime.pass(0);
    expect([runtime.pending, faults]).toEqual([0, []]);
  });
});

function stageBootstrap(find: (call: number) => readonly string[] | Promise<readonly string[]>) {
  const runtime = new FakeRuntime();
  const faults: Error[] = [];
  let calls = 0;
  const counted = () => {
    calls += 1;
    return find(calls);
  };
  const access = accessOf({ brokers: counted }, runtime);
  const bootstrap = new Bootstrap(access.brokers, runtime, (error) => faults.push(error));
  return { bootstrap, runtime, faults, finds: () => calls };
}
