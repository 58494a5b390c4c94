import { Inject, Logger, Module, type OnApplicationShutdown } from '@nestjs/common';
import { IdClient, type IdClientOptions } from '../client/index.ts';
import { IdallocHealthIndicator } from './health.ts';
import { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } from './options.ts';

/**
 * Provides an IdClient and an IdallocHealthIndicator to all modules; with `isGlobal: false` only to those that import it.
 * `forRoot` takes the options of IdClient.connect, `forRootAsync` a factory of them, with `imports` and `inject`. The application
 * starts when the client is connected, whether or not a worker runs; it fails to start with the errors of IdClient.connect.
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

/** Background errors, which the client retries, go to the application's log, unless the service has a hook for them. */
function connect(options: IdClientOptions): Promise<IdClient> {
  const logger = new Logger(IdallocModule.name);
  const onError = (error: Error) => logger.warn(error.message);
  return IdClient.connect({ ...options, hooks: { onError, ...options.hooks } });
}

// Calls in place of decorators, whose syntax Node does not run.
Module({
  providers: [
    { provide: IdClient, useFactory: connect, inject: [MODULE_OPTIONS_TOKEN] },
    {
      provide: IdallocHealthIndicator,
      useFactory: (client: IdClient, { prefetch }: IdClientOptions) => new IdallocHealthIndicator(client, prefetch),
      inject: [IdClient, MODULE_OPTIONS_TOKEN],
    },
  ],
  exports: [IdClient, IdallocHealthIndicator],
})(IdallocModule);
Inject(IdClient)(IdallocModule, undefined, 0);
