import {
  ConfigurableModuleBuilder,
  type DynamicModule,
  Inject,
  Logger,
  Module,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { type ClientHooks, IdallocError, IdClient, type IdClientOptions } from '../client/index.ts';
import { IdallocHealthIndicator } from './health.ts';

/** Beside the options of the client. */
interface ModuleExtras {
  /** Provides the client to all modules. */
  readonly isGlobal: boolean;
  /** For a second client: it is injected with `@InjectIds(name)`. */
  readonly name: string | undefined;
}

/** The client of a module, for the module itself, whatever its name. */
const OWN_CLIENT = Symbol('the client of an IdallocModule');

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<IdClientOptions>({
  moduleName: 'Idalloc',
})
  .setClassMethodName('forRoot')
  .setExtras<ModuleExtras>({ isGlobal: true, name: undefined }, providing)
  .build();

/**
 * Provides an IdClient and an IdallocHealthIndicator to all modules; with `isGlobal: false` only to those that import
 * it, and with a `name` under `InjectIds(name)` and `InjectIdsHealth(name)`, so that an application can have several.
 * `forRoot` takes the options of IdClient.connect, `forRootAsync` a factory of them, with `imports` and `inject`. The
 * application starts when the client is connected, whether or not a worker runs; it fails to start with the errors of
 * IdClient.connect.
 */
export class IdallocModule extends ConfigurableModuleClass implements OnApplicationShutdown {
  readonly #client: IdClient;

  /** @internal */
  constructor(client: IdClient) {
    super();
    this.#client = client;
  }

  /** Closes the client, after the application has closed its listeners, so that requests in progress still get IDs. */
  async onApplicationShutdown(): Promise<void> {
    await this.#client.close();
  }
}

// Calls in place of decorators, whose syntax Node does not run.
Module({})(IdallocModule);
Inject(OWN_CLIENT)(IdallocModule, undefined, 0);

/** The token of a client, for `overrideProvider` and for factories: the class IdClient for the one without a name. */
export function getIdsToken(name?: string): typeof IdClient | string {
  return name === undefined ? IdClient : `idalloc client ${checkName(name)}`;
}

/** The token of the health indicator of a client. */
export function getIdsHealthToken(name?: string): typeof IdallocHealthIndicator | string {
  return name === undefined ? IdallocHealthIndicator : `idalloc health ${checkName(name)}`;
}

/** Injects the client of the module with this name. */
export function InjectIds(name?: string): PropertyDecorator & ParameterDecorator {
  return Inject(getIdsToken(name));
}

/** Injects the health indicator of the client with this name. */
export function InjectIdsHealth(name?: string): PropertyDecorator & ParameterDecorator {
  return Inject(getIdsHealthToken(name));
}

function checkName(name: unknown): string {
  if (typeof name === 'string' && name !== '') return name;
  throw new IdallocError('CONFIG_INVALID', 'the name of a client must be a text that is not empty');
}

function providing(definition: DynamicModule, { isGlobal, name }: ModuleExtras): DynamicModule {
  const client = getIdsToken(name);
  const health = getIdsHealthToken(name);
  const inject = [MODULE_OPTIONS_TOKEN];
  const providers = [
    { provide: client, useFactory: (options: IdClientOptions) => connect(options, name), inject },
    { provide: OWN_CLIENT, useExisting: client },
    {
      provide: health,
      useFactory: (one: IdClient, { prefetch }: IdClientOptions) => new IdallocHealthIndicator(one, prefetch),
      inject: [client, ...inject],
    },
  ];
  const all = [...(definition.providers ?? []), ...providers];
  return { ...definition, global: isGlobal, providers: all, exports: [client, health] };
}

/** Background errors, which the client retries, go to the application's log, unless the service has a hook for them. */
function connect(options: IdClientOptions, name: string | undefined): Promise<IdClient> {
  const logger = new Logger(name === undefined ? IdallocModule.name : `${IdallocModule.name} ${name}`);
  const onError = (error: Error) => logger.warn(error.message);
  const hooks = { onError, ...boundHooks(options.hooks ?? {}) };
  // Copied with its getters, which the client reads anew for each connection.
  const own = Object.getOwnPropertyDescriptors(options);
  return IdClient.connect(
    Object.defineProperties({} as IdClientOptions, { ...own, hooks: { value: hooks, enumerable: true } }),
  );
}

/** What Nest calls of a provider, which looks like hooks of the client. */
const OF_NEST = ['onModuleInit', 'onApplicationBootstrap', 'onModuleDestroy', 'onApplicationShutdown'];

/**
 * The hooks of an object or of an injected instance, with those of its class. Other methods that look like hooks are
 * left to the client, which refuses them.
 */
function boundHooks(hooks: ClientHooks): ClientHooks {
  if (typeof hooks !== 'object') throw new IdallocError('CONFIG_INVALID', `hooks must be an object, not ${hooks}`);
  const bound: Record<string, unknown> = {};
  for (let at: object = hooks; at !== Object.prototype; at = Object.getPrototypeOf(at) ?? Object.prototype) {
    for (const name of Object.getOwnPropertyNames(at).filter((one) => /^on/i.test(one) && !OF_NEST.includes(one))) {
      const hook: unknown = Reflect.get(hooks, name);
      if (hook !== undefined) bound[name] = typeof hook === 'function' ? hook.bind(hooks) : hook;
    }
  }
  return bound;
}
