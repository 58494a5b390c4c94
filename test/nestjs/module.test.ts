import 'reflect-metadata';
import { Inject, Injectable, Logger, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from 'vitest';
import { type BufferOptions, IdClient, type IdClientOptions } from '../../src/client/index.ts';
import { MemoryWorkers } from '../../src/client/testing.ts';
import {
  getIdsHealthToken,
  getIdsToken,
  IdallocHealthIndicator,
  IdallocModule,
  InjectIds,
  InjectIdsHealth,
} from '../../src/nestjs/index.ts';

const OPTIONS: IdClientOptions = { brokers: ['localhost:9092'], replyTopic: 'id.replies.orders' };

/** A service of another module, to which the client is injected. */
class Orders {
  readonly ids: IdClient;
  constructor(ids: IdClient) {
    this.ids = ids;
  }
}
Injectable()(Orders);
Inject(IdClient)(Orders, undefined, 0);

class OrdersModule {}
Module({ providers: [Orders], exports: [Orders] })(OrdersModule);

const SETTINGS = 'settings';
class SettingsModule {}
Module({ providers: [{ provide: SETTINGS, useValue: OPTIONS }], exports: [SETTINGS] })(SettingsModule);

let workers: MemoryWorkers;
let connect: MockInstance<typeof IdClient.connect>;

beforeEach(() => {
  workers = new MemoryWorkers();
  connect = vi.spyOn(IdClient, 'connect').mockImplementation((options) => workers.connect(options));
});
afterEach(() => vi.restoreAllMocks());

async function started(...imports: Parameters<typeof Test.createTestingModule>[0]['imports'] & object) {
  const module = await Test.createTestingModule({ imports: [...imports] }).compile();
  return await module.init();
}

const MODULES: readonly [how: string, make: () => ReturnType<typeof IdallocModule.forRoot>][] = [
  ['forRoot', () => IdallocModule.forRoot(OPTIONS)],
  [
    'forRootAsync',
    () =>
      IdallocModule.forRootAsync({
        imports: [SettingsModule],
        inject: [SETTINGS],
        useFactory: async (settings: IdClientOptions) => settings,
      }),
  ],
];

describe.for(MODULES)('%s', ([, make]) => {
  test('injects a connected client into every module, and closes it with the application', async () => {
    const app = await started(make(), OrdersModule);
    const { ids } = app.get(Orders);
    expect(ids).toBe(app.get(IdClient));
    expect(ids.take(3)).toHaveLength(3);
    expect(connect).toHaveBeenCalledExactlyOnceWith(expect.objectContaining(OPTIONS));
    await app.close();
    expect(() => ids.next()).toThrow(expect.objectContaining({ code: 'CLIENT_CLOSED' }));
  });
});

test('a client that is not global is injected only where the module is imported', async () => {
  const module = IdallocModule.forRoot({ ...OPTIONS, isGlobal: false });
  await expect(started(module, OrdersModule)).rejects.toThrow(/can't resolve dependencies of the Orders/);
  const app = await started(module);
  expect(connect).toHaveBeenLastCalledWith(expect.not.objectContaining({ isGlobal: false }));
  await app.close();
});

test("an application whose client can't connect does not start, and gets the error", async () => {
  connect.mockRestore();
  const without = IdallocModule.forRoot({ ...OPTIONS, brokers: [] });
  await expect(started(without)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
});

test('a client in memory takes the place of the real one in unit tests of a service', async () => {
  const app = await Test.createTestingModule({ imports: [IdallocModule.forRoot(OPTIONS), OrdersModule] })
    .overrideProvider(IdClient)
    .useFactory({ factory: () => workers.connect() })
    .compile();
  expect(app.get(Orders).ids.take(10)).toHaveLength(10);
  expect(connect).not.toHaveBeenCalled();
  await app.close();
});

test('a login that the options of a factory read anew is passed on as such', async () => {
  let password = 'first';
  const options = {
    ...OPTIONS,
    get sasl() {
      return { mechanism: 'plain' as const, username: 'orders', password };
    },
  };
  const app = await started(IdallocModule.forRootAsync({ useFactory: async () => options }));
  password = 'rotated';
  expect(connect.mock.calls[0]?.[0]).toMatchObject({ sasl: { password: 'rotated' } });
  await app.close();
});

test('background errors of the client are in the log, unless the service has a hook for them', async () => {
  const warn = vi.spyOn(Logger.prototype, 'warn').mockImplementation(() => {});
  const report = (call: number) => connect.mock.calls[call]?.[0].hooks?.onError?.(new Error('the broker is away'));
  const onError = vi.fn();
  await (await started(IdallocModule.forRoot({ ...OPTIONS, hooks: { onBatch: () => {} } }))).close();
  report(0);
  expect(warn).toHaveBeenCalledExactlyOnceWith('the broker is away');
  await (await started(IdallocModule.forRoot({ ...OPTIONS, hooks: { onError } }))).close();
  report(1);
  expect([warn.mock.calls.length, onError.mock.calls.length]).toEqual([1, 1]);
});

describe('hooks', () => {
  /** A provider of a service that counts what the client reports. */
  class Watch {
    readonly #seen: string[] = [];
    onBatch({ count }: { count: number }): void {
      this.#seen.push(`a batch of ${count}`);
    }
    get seen(): readonly string[] {
      return this.#seen;
    }
  }
  Injectable()(Watch);
  class WatchModule {}
  Module({ providers: [Watch], exports: [Watch] })(WatchModule);

  test('may be the methods of an injected class, beside which errors still go to the log', async () => {
    const warn = vi.spyOn(Logger.prototype, 'warn').mockImplementation(() => {});
    const useFactory = async (hooks: Watch) => ({ ...OPTIONS, hooks });
    const app = await started(IdallocModule.forRootAsync({ imports: [WatchModule], inject: [Watch], useFactory }));
    await app.get(IdClient).ready();
    await expect.poll(() => app.get(Watch, { strict: false }).seen).toEqual(['a batch of 4000']);
    connect.mock.calls[0]?.[0].hooks?.onError?.(new Error('the broker is away'));
    expect(warn).toHaveBeenCalledExactlyOnceWith('the broker is away');
    await app.close();
  });

  test('of a class may stand beside what Nest calls', async () => {
    class Living extends Watch {
      readonly calls: string[] = [];
      onModuleInit(): void {
        this.calls.push('init');
      }
      onApplicationBootstrap(): void {
        this.calls.push('bootstrap');
      }
      onModuleDestroy(): void {
        this.calls.push('destroy');
      }
      onApplicationShutdown(): void {
        this.calls.push('shutdown');
      }
    }
    const hooks = new Living();
    const app = await started(IdallocModule.forRoot({ ...OPTIONS, hooks }));
    await app.get(IdClient).ready();
    await expect.poll(() => hooks.seen).toEqual(['a batch of 4000']);
    expect(hooks.calls).toEqual([]);
    await app.close();
  });

  test('that are no object are refused; null is none', async () => {
    const given = (hooks: unknown) => started(IdallocModule.forRoot({ ...OPTIONS, hooks: hooks as never }));
    await expect(given('loud')).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    await (await given(null)).close();
  });

  test('of a class that are no hooks are refused', async () => {
    class Misspelt extends Watch {
      onBatches(): void {}
    }
    const hooks = new Misspelt();
    await expect(started(IdallocModule.forRoot({ ...OPTIONS, hooks }))).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('onBatches'),
    });
  });
});

describe('a second client with a name', () => {
  class Billing {
    readonly ids: IdClient;
    readonly invoices: IdClient;
    readonly health: IdallocHealthIndicator;
    constructor(ids: IdClient, invoices: IdClient, health: IdallocHealthIndicator) {
      this.ids = ids;
      this.invoices = invoices;
      this.health = health;
    }
  }
  Injectable()(Billing);
  InjectIds()(Billing, undefined, 0);
  InjectIds('invoices')(Billing, undefined, 1);
  InjectIdsHealth('invoices')(Billing, undefined, 2);
  class BillingModule {}
  Module({ providers: [Billing] })(BillingModule);
  const INVOICES = { ...OPTIONS, name: 'invoices', replyTopic: 'id.replies.invoices' };

  test('is another one, with its own health, and both are closed with the application', async () => {
    const app = await started(IdallocModule.forRoot(OPTIONS), IdallocModule.forRoot(INVOICES), BillingModule);
    const { ids, invoices, health } = app.get(Billing, { strict: false });
    expect(ids).toBe(app.get(IdClient));
    expect(invoices).not.toBe(ids);
    expect(invoices).toBe(app.get(getIdsToken('invoices')));
    expect(health).toBe(app.get(getIdsHealthToken('invoices')));
    ids.take(7);
    expect(health.isHealthy('invoices')).toMatchObject({ invoices: { buffered: invoices.buffered } });
    expect(connect.mock.calls.map(([{ replyTopic }]) => replyTopic).sort()).toEqual([
      'id.replies.invoices',
      'id.replies.orders',
    ]);
    expect(connect.mock.calls.filter(([options]) => 'name' in options)).toEqual([]);
    await app.close();
    expect([ids, invoices].map((one) => one.metrics().closed)).toEqual([true, true]);
  });

  test('is made by a factory, replaced in tests, and has a name that is not empty', async () => {
    const useFactory = async () => OPTIONS;
    const second = IdallocModule.forRootAsync({ name: 'invoices', useFactory });
    const app = await Test.createTestingModule({ imports: [IdallocModule.forRoot(OPTIONS), second, BillingModule] })
      .overrideProvider(getIdsToken('invoices'))
      .useFactory({ factory: () => workers.connect({ prefetch: false }) })
      .compile();
    expect(app.get(Billing, { strict: false }).invoices.buffered).toBe(0);
    expect(connect).toHaveBeenCalledTimes(1);
    await app.close();
    for (const name of ['', 7 as unknown as string]) {
      expect(() => IdallocModule.forRoot({ ...OPTIONS, name })).toThrow(
        expect.objectContaining({ code: 'CONFIG_INVALID' }),
      );
    }
  });
});

describe('the health indicator', () => {
  const healthOf = async (options: BufferOptions = {}) => {
    const app = await started(IdallocModule.forRoot({ ...OPTIONS, ...options }));
    return { app, health: app.get(IdallocHealthIndicator) };
  };

  test('is up while the buffer has IDs, and down while it is empty', async () => {
    const { app, health } = await healthOf();
    const { buffered, lowWater } = app.get(IdClient);
    expect(health.isHealthy()).toEqual({ idalloc: { status: 'up', buffered, lowWater, pending: 0 } });
    workers.empty();
    expect(health.isHealthy('ids')).toMatchObject({ ids: { status: 'down', buffered: 0 } });
    await app.close();
    expect(health.isHealthy()).toMatchObject({ idalloc: { status: 'down' } });
  });

  test('is up without a buffer', async () => {
    const { app, health } = await healthOf({ prefetch: false });
    expect(health.isHealthy()).toMatchObject({ idalloc: { status: 'up', buffered: 0 } });
    await app.close();
  });
});
